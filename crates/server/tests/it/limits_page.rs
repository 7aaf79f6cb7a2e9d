//! docs/src/reference/limits.md against the source: every value in its tables equals the code's, and no bound is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose bounds are on the page.
const CRATES: [&str; 11] = [
    "client",
    "core",
    "flow",
    "gateway",
    "http",
    "operations",
    "outgoing",
    "server",
    "settings",
    "stores",
    "traces",
];

/// Files whose constants bound texts for people, or are units: the tools, `doctor`, and the reading of
/// settings.
const OTHER_FILES: [&str; 8] = [
    "server/cli",
    "settings/engine/diagnostic.rs",
    "settings/engine/nearest.rs",
    "settings/engine/units.rs",
    "settings/engine/value.rs",
    "settings/warn.rs",
    "stores/postgres/doctor.rs",
    "stores/sqlite/doctor",
];

/// Constants that are no bounds of their own: sums of others, units, the digits of a double, or a
/// `Retry-After`.
const OTHER_CONSTANTS: [&str; 12] = [
    "core/json/number.rs MAX_DIGITS",
    "core/jump.rs TOLERANCE",
    "core/transition.rs PURGE_GRACE",
    "core/policy.rs MAX_WAIT_DAYS",
    "core/policy.rs MAX_KEPT_DAYS",
    "flow/phases/input.rs MAX_SIZE",
    "http/answer/headers.rs SOON",
    "http/answer/headers.rs HELD",
    "operations/admin.rs LATER",
    "settings/tables/introspection.rs LONG_MEMORY",
    "gateway/guard/body.rs MAX_SIZE_LINE",
    "gateway/proxy.rs LATER",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Row that names a constant.
struct Row {
    constant: String,
    value: String,
}

/// Returns the rows of the page: the second cell is the value, the third the constant.
fn rows(page: &str) -> Vec<Row> {
    let cells = |line: &str| line.split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let lines = page.lines().filter(|line| line.starts_with("| ")).map(cells);
    let row = |cells: Vec<String>| {
        let constant = cells.get(2)?.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        constant.contains(".rs ").then(|| Row { constant, value: cells[1].clone() })
    };
    lines.filter_map(row).collect()
}

/// Returns the text of a file before its tests.
fn source(file: &str) -> Option<String> {
    let (member, path) = file.split_once('/')?;
    let text = fs::read_to_string(root().join("crates").join(member).join("src").join(path)).ok()?;
    let lines: Vec<_> = text.lines().collect();
    let is_tests =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    let end = lines.windows(2).position(is_tests).unwrap_or(lines.len());
    Some(lines[..end].join("\n"))
}

/// Returns the bounding constants of a text: durations, and numbers named as a maximum.
fn bounds(text: &str) -> Vec<String> {
    let bound = |line: &str| {
        let (before, after) = line.split_once("const ")?;
        let (name, rest) = after.split_once(": ")?;
        let (kind, _) = rest.split_once(" = ")?;
        let is_item = before.trim().is_empty() || before.trim().starts_with("pub");
        let is_number = name.starts_with("MAX_") && matches!(kind, "usize" | "u32" | "u64");
        (is_item && (kind == "Duration" || is_number)).then(|| name.to_owned())
    };
    text.lines().filter_map(bound).collect()
}

/// Returns the expression of a constant, or of a member in the defaults of a type, which begins with a small
/// letter.
fn expression<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let is_member = name.starts_with(|first: char| first.is_lowercase());
    let mut lines = text.lines().filter_map(|line| match is_member {
        true => line.split_once(&format!("{name}: ")).map(|(before, after)| (before, after, ",}")),
        false => line.split_once(&format!("const {name}: ")).map(|(before, after)| (before, after, ";")),
    });
    lines.find_map(|(_, after, end)| {
        let after = if is_member { after } else { after.split_once(" = ")?.1 };
        let expression = after.split(|c: char| end.contains(c)).next()?.trim();
        evaluate(expression).map(|_| expression)
    })
}

/// Evaluates a number, a product, a shift, or a duration in milliseconds.
fn evaluate(expression: &str) -> Option<u64> {
    let inside = |name: &str| expression.strip_prefix(name)?.strip_suffix(')');
    if let Some(seconds) = inside("Duration::from_secs(") {
        return Some(evaluate(seconds)? * 1000);
    }
    if let Some(milliseconds) = inside("Duration::from_millis(") {
        return evaluate(milliseconds);
    }
    if let Some((number, bits)) = expression.split_once("<<") {
        return Some(evaluate(number.trim())? << evaluate(bits.trim())?);
    }
    expression.split('*').map(|factor| factor.trim().replace('_', "").parse::<u64>().ok()).product()
}

/// Reads a value of the page: a number and an optional unit.
fn written(value: &str) -> Option<u64> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let unit = match unit {
        "s" => 1000,
        "min" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "" | "ms" | "bytes" | "characters" => 1,
        _ => return None,
    };
    Some(number.replace(',', "").parse::<u64>().ok()? * unit)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match path.is_dir() {
            true if name != "tests" => files(&path, found),
            false if name.ends_with(".rs") && name != "tests.rs" => found.push(path),
            true | false => {}
        }
    }
}

#[test]
fn every_value_on_the_page_of_limits_is_the_one_in_the_code() {
    let page = fs::read_to_string(root().join("docs/src/reference/limits.md")).expect("the page is there");
    let rows = rows(&page);
    assert!(rows.len() > 100, "the tables can be read: {} rows", rows.len());
    let mut wrong = Vec::new();
    for Row { constant, value } in &rows {
        let (file, name) = constant.split_once(' ').expect("it has a file and a name");
        let Some(text) = source(file) else {
            wrong.push(format!("{constant}: there is no such file"));
            continue;
        };
        match expression(&text, name) {
            None => wrong.push(format!("{constant}: it is not in that file, or cannot be evaluated")),
            Some(expression) if evaluate(expression) == written(value) => {}
            Some(expression) => {
                wrong.push(format!("{constant}: the page says {value}, the code {expression}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "docs/src/reference/limits.md is not what the code says:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_bound_in_the_sources_is_on_the_limits_page() {
    let page = fs::read_to_string(root().join("docs/src/reference/limits.md")).expect("the page is there");
    let known: BTreeSet<String> = rows(&page).into_iter().map(|row| row.constant).collect();
    let mut missing = Vec::new();
    for member in CRATES {
        let folder = root().join("crates").join(member).join("src");
        let mut found = Vec::new();
        files(&folder, &mut found);
        for path in found {
            let relative = path.strip_prefix(&folder).expect("it is below").display().to_string();
            let file = format!("{member}/{relative}");
            if OTHER_FILES.iter().any(|other| file.starts_with(other)) {
                continue;
            }
            let text = source(&file).expect("it was listed");
            let constants = bounds(&text).into_iter().map(|name| format!("{file} {name}"));
            missing
                .extend(constants.filter(|own| !known.contains(own) && !OTHER_CONSTANTS.contains(&&**own)));
        }
    }
    missing.sort();
    assert!(
        missing.is_empty(),
        "these bounds are not in docs/src/reference/limits.md; add a row for each, such as\n\
         | what is bounded | 10 s | `file.rs NAME` | no | what is seen |\n{}",
        missing.join("\n")
    );
}
