//! Unusable admin tokens, and a public listener without tokens.

use super::*;

#[test]
fn public_admin_address_needs_a_token() {
    wrong(
        r#"
admin_listen = "0.0.0.0:9090"
"#,
        r#"
semel.toml:1:16: error: `admin_listen`: 0.0.0.0:9090 is reachable from other machines, and without tokens anybody could use it: add an `[[admin.token]]` or `[admin.sso]`, or listen on a loopback address such as 127.0.0.1
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

#[test]
fn single_sign_on_without_proxies_header_and_people_is_refused() {
    wrong(
        r#"
admin_listen = "0.0.0.0:9090"
[admin.sso]
"#,
        r#"
semel.toml:2:8: error: `admin.sso.trusted_proxies`: missing: single sign-on needs it
 2 | [admin.sso]
   |        ^^^
semel.toml:2:8: error: `admin.sso.user_header`: missing: single sign-on needs it
 2 | [admin.sso]
   |        ^^^
semel.toml:2:8: error: `admin.sso.operators`: missing: without `operators` and `viewers` nobody could sign in
 2 | [admin.sso]
   |        ^^^
"#,
    );
}

#[test]
fn single_sign_on_that_trusts_nobody_or_makes_everybody_an_operator_is_refused() {
    wrong(
        r#"
[admin.sso]
trusted_proxies = []
user_header = "Authorization"
operators = ["*", "group:oncall"]
viewer = ["*"]
"#,
        r#"
semel.toml:2:19: error: `admin.sso.trusted_proxies`: is empty, so nobody could sign in: list the address of at least one proxy
 2 | trusted_proxies = []
   |                   ^^
semel.toml:3:15: error: `admin.sso.user_header`: `authorization` has another meaning: expected a header that only the proxy sets
 3 | user_header = "Authorization"
   |               ^^^^^^^^^^^^^^^
semel.toml:4:13: error: `admin.sso.operators`: "*" would make every user an operator: name users and groups, or put "*" into `viewers`
 4 | operators = ["*", "group:oncall"]
   |             ^^^^^^^^^^^^^^^^^^^^^
semel.toml:4:13: error: `admin.sso.operators`: names a group, which needs `groups_header`
 4 | operators = ["*", "group:oncall"]
   |             ^^^^^^^^^^^^^^^^^^^^^
semel.toml:5:1: error: `admin.sso.viewer`: unknown setting; did you mean `viewers`?
 5 | viewer = ["*"]
   | ^^^^^^
"#,
    );
}

#[test]
fn the_groups_of_single_sign_on_have_a_header_of_their_own() {
    wrong(
        r#"
[admin.sso]
trusted_proxies = ["10.0.0.1"]
user_header = "X-User"
groups_header = "x-user"
viewers = ["group:a,b"]
"#,
        r#"
semel.toml:4:17: error: `admin.sso.groups_header`: is the same header as `user_header`
 4 | groups_header = "x-user"
   |                 ^^^^^^^^
semel.toml:5:12: error: `admin.sso.viewers`: expected a user, a group as "group:NAME", or "*" for every user, found "group:a,b": a comma separates groups, and is in no name
 5 | viewers = ["group:a,b"]
   |            ^^^^^^^^^^^
"#,
    );
}
