//! No input makes the reader panic, and every error can be shown.

use proptest::prelude::*;

use super::*;

fn read(sources: &Sources) -> bool {
    match load(sources) {
        Ok(loaded) => loaded.rows.iter().all(|row| !row.to_string().is_empty()),
        Err(errors) => !errors.to_string().is_empty(),
    }
}

/// Returns a known or an unknown name.
fn name() -> impl Strategy<Value = String> {
    let known: Vec<String> = settings().iter().map(|info| info.name.to_owned()).collect();
    prop_oneof![4 => proptest::sample::select(known), 1 => "[a-z_]{1,8}"]
}

fn value() -> impl Strategy<Value = String> {
    let words = [
        "\"30s\"",
        "\"off\"",
        "\"1MiB\"",
        "\"127.0.0.1:0\"",
        "\"POST /{a}\"",
        "\"POST /{*a}\"",
        "\"/a\"",
        "true",
        "1.5",
        "-1",
        "[]",
        "[425, \"x\", [1]]",
        "{ a = 1 }",
        "1979-05-27",
        "0x1F",
        "99999999999999999999",
        "nan",
        "'''\n'''",
        "\"\\u0000\"",
        "\"sqlite:é\"",
        "\"http://[::1]\"",
        "\"none\"",
        "\"10.0.0.0/8\"",
        "\"\"",
    ];
    prop_oneof![proptest::sample::select(words.to_vec()).prop_map(str::to_owned), "\"[^\"\\\\\\n]{0,12}\""]
}

fn line() -> impl Strategy<Value = String> {
    let headers = [
        "[defaults]",
        "[server]",
        "[identity]",
        "[[operation]]",
        "[operation.reconcile]",
        "[[webhook]]",
        "[reconcile]",
        "[maintenance]",
        "[traces]",
        "[operation]",
        "[x]",
    ];
    prop_oneof![
        4 => (name(), value()).prop_map(|(name, value)| format!("{name} = {value}")),
        1 => proptest::sample::select(headers.to_vec()).prop_map(str::to_owned),
        1 => "\\PC{0,20}",
    ]
}

proptest! {
    #[test]
    fn reading_settings_from_arbitrary_text_never_panics(text in any::<String>()) {
        prop_assert!(read(&file(&text)));
    }

    #[test]
    fn reading_settings_from_arbitrary_lines_never_panics(lines in proptest::collection::vec(line(), 0..12)) {
        prop_assert!(read(&file(&lines.join("\n"))));
    }

    #[test]
    fn reading_any_single_setting_never_panics(table in 0..6_usize, name in name(), value in value()) {
        let header = ["", "[server]", "[identity]", "[defaults]", "[[operation]]", "[maintenance]"][table];
        let text = format!("{header}\n{name} = {value}\n");
        prop_assert!(read(&file(&text)));
    }

    #[test]
    fn any_variable_and_flag_can_be_given(name in name(), value in any::<String>()) {
        let variable = format!("SEMEL_{}", name.to_uppercase());
        prop_assert!(read(&Sources::new().variable(variable, value.clone())));
        prop_assert!(read(&Sources::new().flag(&name, value)));
    }

    #[test]
    fn any_bytes_can_be_in_the_file(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join(DEFAULT_FILE), bytes).expect("it can be written");
        match Sources::gather(None, directory.path(), []) {
            Ok(sources) => prop_assert!(read(&sources)),
            Err(errors) => prop_assert!(!errors.to_string().is_empty()),
        }
    }
}

#[test]
fn deep_nesting_is_refused_and_not_followed() {
    let deep = format!("a = {}", "[".repeat(100_000));
    assert!(read(&file(&deep)));
    assert!(read(&file(&format!("{}{}", "a.".repeat(50_000), "a = 1"))));
}
