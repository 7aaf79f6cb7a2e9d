//! Mistakes in variables and flags.

use super::*;

#[test]
fn a_wrong_variable_is_named_instead_of_a_line() {
    let sources = Sources::new()
        .variable("SEMEL_NOT_EXECUTED_STATUSES", "425,x")
        .variable("SEMEL_STORE", "mysql://u:secret@h/db")
        .variable("SEMEL_TTL", "");
    assert_eq!(
        refused(&sources),
        r#"SEMEL_NOT_EXECUTED_STATUSES: error: `defaults.not_executed_statuses`: expected an HTTP status from 400 to 599, found "x"
SEMEL_STORE: error: `store`: "mysql://u:***@h/db" is reserved: not built yet; expected "memory:", "sqlite:PATH" or "postgres://…"
SEMEL_TTL: error: `defaults.ttl`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found """#
    );
}

#[test]
fn a_wrong_flag_is_named_instead_of_a_line() {
    let flags = [
        ("key-syntax", "strikt"),
        ("tll", "1h"),
        ("source", "none"),
        ("match", "x"),
        ("limits", "1"),
        ("x", ""),
    ];
    let sources = flags.into_iter().fold(Sources::new(), |sources, (name, value)| sources.flag(name, value));
    assert_eq!(
        refused(&sources),
        r#"--key-syntax: error: `defaults.key_syntax`: expected "lenient" or "strict", found "strikt"; did you mean "strict"?
--tll: error: no such flag; did you mean --ttl?
--source: error: no such flag; `source` is set in `[identity]` of the file only
--match: error: no such flag; `match` is set in `[[operation]]` of the file only
--limits: error: no such flag
--x: error: no such flag"#
    );
}

#[test]
fn conflicting_settings_from_two_sources_are_refused() {
    let sources = file("upstream = \"http://127.0.0.1:7000\"").flag("listen", "0.0.0.0:7000");
    assert_eq!(
        refused(&sources),
        r#"semel.toml:1:12: error: `upstream`: leads back to `listen` (0.0.0.0:7000), so every request would loop: set the address of your service
 1 | upstream = "http://127.0.0.1:7000"
   |            ^^^^^^^^^^^^^^^^^^^^^^^
--listen: error: `listen`: 0.0.0.0:7000 is reachable from other machines, and without an identity all callers would count as the same one. Either set a `source` in `[identity]`, such as "api-key", "jwt", or "trusted-headers" behind a proxy that authenticates; or listen on a loopback address such as 127.0.0.1, for a proxy on the same machine or in the same pod"#
    );
}

#[test]
fn settings_of_a_broken_file_are_not_compared() {
    let errors =
        load(&file("identity.source = api-key").flag("listen", "0.0.0.0:1")).expect_err("it is refused");
    assert_eq!(errors.iter().count(), 1, "the source is not known:\n{errors}");
}

#[test]
fn errors_of_all_sources_are_collected() {
    let sources = file("listen = 1").variable("SEMEL_TTL", "x").flag("lease", "y");
    let errors = load(&sources).expect_err("it is refused");
    let places: Vec<_> = errors.iter().map(|error| error.origin.to_string()).collect();
    assert_eq!(places, ["semel.toml:1", "SEMEL_TTL", "--lease"]);
}

#[test]
fn a_value_that_cannot_be_read_is_not_compared() {
    let errors = load(&file("listen = \"x\"\nadmin_listen = \"127.0.0.1:8080\"")).expect_err("it is refused");
    assert_eq!(errors.iter().count(), 1, "what `listen` would have been is not known:\n{errors}");
}
