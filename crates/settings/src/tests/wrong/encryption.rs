//! Encryption keys that cannot be used.

use super::*;

const KEY: &str = "[[encryption.key]]\nid = \"a\"\nfile = \"a.key\"\n";

#[test]
fn the_current_key_must_be_there() {
    wrong(
        r#"
[encryption]
current = "b"
[[encryption.key]]
id = "a"
file = "a.key"
"#,
        r#"
semel.toml:2:11: error: `encryption.current`: "b" is not the id of any `[[encryption.key]]`
 2 | current = "b"
   |           ^^^
"#,
    );
}

#[test]
fn keys_need_a_current_one() {
    wrong(
        r#"
[[encryption.key]]
id = "a"
file = "a.key"
"#,
        r#"
semel.toml:1:1: error: `encryption.current`: missing: the id of the key that encrypts new data
 1 | [[encryption.key]]
   | ^^^^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn a_second_encryption_key_with_the_same_id_is_refused() {
    wrong(
        r#"
[encryption]
current = "a"
[[encryption.key]]
id = "a"
file = "a.key"
[[encryption.key]]
id = "a"
env = "A"
"#,
        r#"
semel.toml:7:6: error: `encryption.key.a.id`: another key has this id already
 7 | id = "a"
   |      ^^^
"#,
    );
}

#[test]
fn a_key_comes_from_one_place() {
    for (source, path) in [("", "a"), ("file = \"a.key\"\nenv = \"A\"\n", "a")] {
        let text = format!("[encryption]\ncurrent = \"a\"\n[[encryption.key]]\nid = \"a\"\n{source}");
        let said = refused(&file(&text));
        let expected = format!(
            "semel.toml:3:1: error: `encryption.key.{path}`: expected exactly one of `file`, `env` and \
             `command`, the source of the key"
        );
        assert!(said.starts_with(&expected), "{said}");
    }
}

#[test]
fn malformed_encryption_key_settings_are_refused() {
    let with = |key: &str| format!("[encryption]\ncurrent = \"a\"\n{KEY}[[encryption.key]]\n{key}\n");
    let id = "expected the id of a key, such as \"2026-11\": 1 to 64 letters, digits, dots, dashes and underscores";
    for (key, message) in [
        ("file = \"b.key\"", "missing: every key has an `id`, by which records name it"),
        ("id = \"a b\"\nfile = \"b.key\"", &format!("{id}, found \"a b\"")),
        ("id = \"\"\nfile = \"b.key\"", &format!("{id}, found \"\"")),
        ("id = 7\nfile = \"b.key\"", &format!("{id}, found 7")),
        ("id = \"b\"\nfile = \"\"", "expected the path of a file, found \"\""),
        (
            "id = \"b\"\ncommand = \"pass show key\"",
            "expected a list of texts: a program and its arguments, without a shell, found \"pass show key\"",
        ),
        (
            "id = \"b\"\ncommand = []",
            "expected a list of texts: a program and its arguments, without a shell, found a list",
        ),
        ("id = \"b\"\nfiel = \"b.key\"\nenv = \"B\"", "unknown setting; did you mean `file`?"),
    ] {
        assert_eq!(first_message(&with(key)), message, "{key}");
    }
    let current = first_message("[encryption]\ncurrent = \"a/b\"\n");
    assert_eq!(current, format!("{id}, found \"a/b\""));
    let single =
        first_message("[encryption]\ncurrent = \"a\"\n[encryption.key]\nid = \"a\"\nfile = \"a.key\"\n");
    assert_eq!(single, "expected a list of tables: write `[[encryption.key]]`, in double brackets");
}
