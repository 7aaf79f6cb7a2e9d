//! One table, read by the list of its settings.

use crate::engine::findings::Findings;
use crate::engine::setting::Setting;
use crate::engine::value::{NamedValue, SettingValue, Table, ValueContent};

/// Returns the setting of this name.
pub(crate) fn find<'a, T>(settings: &'a [Setting<T>], name: &str) -> Option<&'a Setting<T>> {
    settings.iter().find(|setting| setting.name == name)
}

/// Returns the names of these settings.
pub(crate) fn names<T>(settings: &[Setting<T>]) -> impl Iterator<Item = &'static str> {
    settings.iter().map(|setting| setting.name)
}

/// Reads the entries of a table into the holder of its settings, and reports unknown ones.
pub(crate) fn read_table<T>(
    findings: &mut Findings,
    name: &str,
    settings: &[Setting<T>],
    target: &mut T,
    table: &Table,
) {
    for entry in table {
        let path = format!("{name}.{}", entry.name);
        match find(settings, &entry.name) {
            Some(setting) => findings.read(setting, target, &path, &entry.value),
            None => findings.unknown(entry, &path, names(settings)),
        }
    }
}

/// Returns the tables of a list such as `[[operation]]`, unread.
pub(crate) fn collected(findings: &mut Findings, name: &str, entry: &NamedValue) -> Vec<SettingValue> {
    match &entry.value.content {
        ValueContent::List(tables) => return tables.clone(),
        ValueContent::Table(_) => {
            let message = format!("expected a list of tables: write `[[{name}]]`, in double brackets");
            findings.error(entry.origin.clone(), name, message);
        }
        other => {
            let message = format!("expected tables, each written `[[{name}]]`, found {other}");
            findings.error(entry.value.origin.clone(), name, message);
        }
    }
    Vec::new()
}
