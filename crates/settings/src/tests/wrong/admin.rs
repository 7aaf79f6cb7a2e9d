//! Unusable admin tokens, and a public listener without tokens.

use super::*;

#[test]
fn public_admin_address_needs_a_token() {
    wrong(
        r#"
admin_listen = "0.0.0.0:9090"
"#,
        r#"
semel.toml:1:16: error: `admin_listen`: 0.0.0.0:9090 is reachable from other machines, and without tokens anybody could use it: add an `[[admin.token]]`, or listen on a loopback address such as 127.0.0.1
 1 | admin_listen = "0.0.0.0:9090"
   |                ^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn a_second_admin_token_with_the_same_name_is_refused() {
    wrong(
        r#"
[[admin.token]]
name = "alice"
role = "viewer"
file = "a"
[[admin.token]]
name = "alice"
role = "operator"
file = "b"
"#,
        r#"
semel.toml:6:8: error: `admin.token.alice.name`: another token has this name already
 6 | name = "alice"
   |        ^^^^^^^
"#,
    );
}

#[test]
fn an_unknown_admin_role_is_refused_with_a_suggestion() {
    wrong(
        r#"
[[admin.token]]
name = "alice"
role = "vewer"
file = "a"
"#,
        r#"
semel.toml:3:8: error: `admin.token.alice.role`: expected "viewer" or "operator", found "vewer"; did you mean "viewer"?
 3 | role = "vewer"
   |        ^^^^^^^
"#,
    );
}

#[test]
fn a_token_has_a_name_a_role_and_one_source() {
    wrong(
        r#"
[[admin.token]]
env = "A"
file = "a"
token = "the token itself"
"#,
        r#"
semel.toml:1:1: error: `admin.token.name`: missing: every token needs a `name`, which logs and notes show, and a `role`
 1 | [[admin.token]]
   | ^^^^^^^^^^^^^^^
semel.toml:1:1: error: `admin.token.role`: missing: every token needs a `name`, which logs and notes show, and a `role`
 1 | [[admin.token]]
   | ^^^^^^^^^^^^^^^
semel.toml:1:1: error: `admin.token`: expected exactly one of `file`, `env` and `command`, the source of the token
 1 | [[admin.token]]
   | ^^^^^^^^^^^^^^^
semel.toml:4:1: error: `admin.token.token`: unknown setting; `semel config init` prints all there are
 4 | token = "the token itself"
   | ^^^^^
"#,
    );
}

#[test]
fn tokens_are_in_double_brackets() {
    wrong(
        r#"
[admin.token]
name = "alice"
"#,
        r#"
semel.toml:1:8: error: `admin.token`: expected a list of tables: write `[[admin.token]]`, in double brackets
 1 | [admin.token]
   |        ^^^^^
"#,
    );
}
