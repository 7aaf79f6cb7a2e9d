//! Fuzz target of the gateway's configuration: a file is read or refused with places, and its printed form is complete.
//!
//! The input is the text of a file. If it begins with a zero byte, each four bytes after it stand for a setting
//! (`lines.rs`).

mod lines;

use semel_gateway::service::ADDRESS_CHECKS;
use semel_settings::{Diagnostic, Loaded, Origin, Sources, load};

/// Placeholder for a password in printed settings.
const HIDDEN: &str = "***";

/// Repeatable tables, with their headers.
const LISTS: [(&str, &str); 5] = [
    ("operation", "[[operation]]"),
    ("webhook", "[[webhook]]"),
    ("limit", "[[limit]]"),
    ("admin.token", "[[admin.token]]"),
    ("encryption.key", "[[encryption.key]]"),
];

/// Checks that a file is read, or that each error has a place; and that the printed settings read back as the same.
pub fn check(input: &[u8]) {
    let put_together;
    let text = match (input, str::from_utf8(input)) {
        ([0, choices @ ..], _) => {
            put_together = as_file(&lines::put_together(choices));
            &put_together
        }
        (_, Ok(text)) => text,
        (_, Err(_)) => return,
    };
    match load(&Sources::new().file("semel.toml", text), ADDRESS_CHECKS) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|warning| assert!(!warning.to_string().is_empty()));
            check_shown(&loaded);
        }
        Err(errors) => {
            assert!(errors.iter().count() > 0 && !errors.to_string().is_empty());
            errors.iter().for_each(|error| check_place(error, text));
        }
    }
}

/// Checks that an error names a place in the file, the only source of these settings.
fn check_place(error: &Diagnostic, text: &str) {
    let Origin::File(place) = &error.origin else { panic!("no place: {error}") };
    assert_eq!(place.file(), "semel.toml");
    let line = text.split('\n').nth(place.line() - 1);
    let Some(line) = line else { panic!("there is no such line: {error}") };
    assert!(place.column() <= line.chars().count() + 1, "there is no such column: {error}");
    assert!(!error.message.is_empty());
    let shown = error.to_string();
    assert!(!shown.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')), "{shown:?}");
}

/// Checks that the settings that `semel config show` prints as set by the file, written as a file, are the same
/// configuration. Printed defaults are left out: settings that go together may not be written alone.
fn check_shown(loaded: &Loaded) {
    // A password is not printed, and so not read back.
    if loaded.rows.iter().any(|row| row.value.contains(HIDDEN)) || has_namesakes(loaded) {
        return;
    }
    let set = loaded.rows.iter().filter(|row| row.source != "default");
    let file = as_file(&set.map(|row| (row.name.clone(), row.value.clone())).collect::<Vec<_>>());
    let again = load(&Sources::new().file("semel.toml", file.as_str()), ADDRESS_CHECKS)
        .unwrap_or_else(|errors| panic!("what is shown is refused:\n{errors}\n{file}"));
    assert!(again.config == loaded.config, "what is shown is another configuration:\n{file}");
    let shown = |loaded: &Loaded| -> Vec<_> {
        loaded.rows.iter().map(|row| (row.name.clone(), row.value.clone())).collect()
    };
    assert_eq!(shown(&again), shown(loaded));
}

/// Returns true if names are ambiguous: an operation `a.reconcile` is shown under the same names as the look-up of an
/// operation `a`.
fn has_namesakes(loaded: &Loaded) -> bool {
    let named =
        |wanted: &str| loaded.config.operations.iter().any(|operation| operation.name.as_str() == wanted);
    let names = loaded.config.operations.iter().map(|operation| operation.name.as_str());
    names.filter_map(|name| name.strip_suffix(".reconcile")).any(named)
}

/// Writes a file with these settings, by their paths.
fn as_file(rows: &[(String, String)]) -> String {
    let mut file = String::new();
    let mut table = "";
    let mut seen: Vec<&str> = Vec::new();
    let mut operation = String::new();
    for (name, value) in rows {
        let (path, setting) = name.rsplit_once('.').unwrap_or(("", name));
        // A table has a setting once: a repeated one begins the next table of the list.
        if path != table || seen.contains(&setting) {
            let header = header(path, &operation);
            if header == LISTS[0].1 {
                operation = path.to_owned();
            }
            file += &format!("\n{header}\n");
            (table, seen) = (path, Vec::new());
        }
        seen.push(setting);
        file += &format!("{setting} = {value}\n");
    }
    file
}

fn header(path: &str, operation: &str) -> String {
    if path.strip_suffix(".reconcile").is_some_and(|of| of == operation) {
        return "[operation.reconcile]".to_owned();
    }
    let of_list = |(name, _): &&(&str, &str)| {
        path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    LISTS.iter().find(of_list).map_or_else(|| format!("[{path}]"), |(_, header)| (*header).to_owned())
}
