//! Generator of configuration files: known settings with nearly valid values, from any bytes.

use std::collections::BTreeMap;

use semel_settings::{SettingInfo, settings};

/// Settings that a table needs as soon as it has any other.
const REQUIRED: [(&str, &[&str]); 4] = [
    ("operation", &["name", "match"]),
    ("operation.reconcile", &["url"]),
    ("webhook", &["name", "secret_env", "operations", "operation_id", "verdict"]),
    ("limit", &["tenant"]),
];

/// Maximum number of settings of one input.
const MAX_SETTINGS: usize = 24;

/// Returns the settings for these bytes, four for each: path and value, in the order of tables.
pub(super) fn put_together(choices: &[u8]) -> Vec<(String, String)> {
    let all = settings();
    let mut chosen = BTreeMap::new();
    for choice in choices.as_chunks::<4>().0.iter().take(MAX_SETTINGS) {
        let [setting, shape, high, low] = *choice;
        let index = (usize::from(setting) | usize::from(shape & 0x80) << 1) % all.len();
        let value = value(&all[index], shape & 0x7f, u16::from_be_bytes([high, low]));
        chosen.entry(index).or_insert(value);
    }
    // Settings of an operation need an operation.
    let is_used = |table: &str| chosen.keys().any(|index| all[*index].table == table);
    let needs = |table: &str| {
        is_used(table) || table == "operation" && (is_used("webhook") || is_used("operation.reconcile"))
    };
    let missing = REQUIRED.iter().filter(|(table, _)| needs(table)).flat_map(|(table, names)| {
        let required = |info: &SettingInfo| info.table == *table && names.contains(&info.name);
        all.iter().enumerate().filter(move |(_, info)| required(info))
    });
    let missing: Vec<_> = missing.map(|(index, info)| (index, usual(info))).collect();
    for (index, value) in missing {
        chosen.entry(index).or_insert(value);
    }
    let path = |info: &SettingInfo| match info.table {
        "" => info.name.to_owned(),
        table => format!("{table}.{}", info.name),
    };
    chosen.into_iter().map(|(index, value)| (path(&all[index]), value)).collect()
}

fn usual(info: &SettingInfo) -> String {
    info.example.map(str::to_owned).or_else(|| info.default.clone()).unwrap_or_else(|| "\"x\"".to_owned())
}

fn value(info: &SettingInfo, shape: u8, amount: u16) -> String {
    // Small numbers and large ones, round and others.
    let number = u64::from(amount) << (shape % 3 * 4);
    match shape % 16 {
        0..=2 => usual(info),
        3 if !info.choices.is_empty() => {
            let word = info.choices[usize::from(amount) % info.choices.len()];
            if matches!(word, "true" | "false") { word.to_owned() } else { format!("\"{word}\"") }
        }
        3 => "\"off\"".to_owned(),
        4 | 5 => number.to_string(),
        6 => format!("\"{number}ms\""),
        7 => format!("\"{}m{}s\"", amount % 90, amount % 70),
        8 => format!("\"{number}KiB\""),
        9 => format!("\"{number}B\""),
        10 => format!("\"{}/{}s\"", number, 1 + amount % 100),
        11 => format!("[{number}, {}]", number + 1),
        12 => format!("\"\\u{:04X}x\"", amount % 0x300),
        13 => format!("\"/a~1{amount}/\\u{:04X}\"", amount % 0xd7ff),
        14 => format!("[\"n{amount}\", \"\\\"\\\\{amount}\"]"),
        _ => format!("\"sqlite:\\u{:04X}.db\"", 1 + amount % 0xa0),
    }
}
