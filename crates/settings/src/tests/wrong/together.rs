//! Settings that conflict.

use super::*;

#[test]
fn a_public_listener_needs_an_identity() {
    wrong(
        r#"
listen = "0.0.0.0:8080"
"#,
        r#"
semel.toml:1:10: error: `listen`: 0.0.0.0:8080 is reachable from other machines, and without an identity all callers would count as the same one. Either set a `source` in `[identity]`, such as "api-key", "jwt", or "trusted-headers" behind a proxy that authenticates; or listen on a loopback address such as 127.0.0.1, for a proxy on the same machine or in the same pod
 1 | listen = "0.0.0.0:8080"
   |          ^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn anonymous_operation_cannot_have_an_authorizer() {
    wrong(
        r#"
defaults.authorize_url = "http://authz.internal/check"
[[operation]]
name = "a"
match = "POST /a"
anonymous = true
"#,
        r#"
semel.toml:5:13: error: `operation.a.anonymous`: conflicts with `authorize_url`, which cannot authorize a caller without a name: set `authorize_url = "off"` for this operation, or remove `anonymous`
 5 | anonymous = true
   |             ^^^^
"#,
    );
}

#[test]
fn cookies_are_for_origins_that_are_named() {
    wrong(
        r#"
[cors]
origins = ["*"]
credentials = true
"#,
        r#"
semel.toml:3:15: error: `cors.credentials`: browsers send no credentials if `origins` is "*": list the origins
 3 | credentials = true
   |               ^^^^
"#,
    );
}

#[test]
fn listeners_need_two_ports() {
    wrong(
        r#"
admin_listen = "127.0.0.1:8080"
"#,
        r#"
semel.toml:1:16: error: `admin_listen`: 127.0.0.1:8080 is taken by `listen` (127.0.0.1:8080): choose another port
 1 | admin_listen = "127.0.0.1:8080"
   |                ^^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn an_upstream_that_leads_back_to_the_listener_is_refused() {
    wrong(
        r#"
upstream = "http://LOCALHOST:8080"
"#,
        r#"
semel.toml:1:12: error: `upstream`: leads back to `listen` (127.0.0.1:8080), so every request would loop: set the address of your service
 1 | upstream = "http://LOCALHOST:8080"
   |            ^^^^^^^^^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn a_listener_must_not_be_the_upstream() {
    wrong(
        r#"
listen = "127.0.0.1:3000"
"#,
        r#"
semel.toml:1:10: error: `upstream`: leads back to `listen` (127.0.0.1:3000), so every request would loop: set the address of your service
 1 | listen = "127.0.0.1:3000"
   |          ^^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn headers_need_their_source() {
    wrong(
        r#"
[identity]
source = "api-key"
trusted_proxies = ["127.0.0.1"]
tenant_header = "X-Tenant"
"#,
        r#"
semel.toml:3:19: error: `identity.trusted_proxies`: goes with `source = "trusted-headers"` only, and `source` is "api-key"
 3 | trusted_proxies = ["127.0.0.1"]
   |                   ^^^^^^^^^^^^^
semel.toml:4:17: error: `identity.tenant_header`: goes with `source = "trusted-headers"` only, and `source` is "api-key"
 4 | tenant_header = "X-Tenant"
   |                 ^^^^^^^^^^
"#,
    );
}

#[test]
fn trusted_headers_need_their_settings() {
    wrong(
        r#"
[identity]
source = "trusted-headers"
trusted_proxies = []
caller_header = "X-Caller"
"#,
        r#"
semel.toml:2:10: error: `identity.tenant_header`: missing: `source = "trusted-headers"` needs it
 2 | source = "trusted-headers"
   |          ^^^^^^^^^^^^^^^^^
semel.toml:3:19: error: `identity.trusted_proxies`: is empty, so every command would be refused: list the address of at least one proxy
 3 | trusted_proxies = []
   |                   ^^
"#,
    );
}

#[test]
fn a_credential_header_as_the_caller_header_is_refused() {
    wrong(
        r#"
[identity]
source = "trusted-headers"
trusted_proxies = ["127.0.0.1"]
tenant_header = "X-Tenant"
caller_header = "Authorization"
"#,
        r#"
semel.toml:5:17: error: `identity.caller_header`: `authorization` carries a credential, which changes while the caller stays the same: expected a header that names the tenant or caller
 5 | caller_header = "Authorization"
   |                 ^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn a_policy_must_make_sense() {
    wrong(
        r#"
[defaults]
key_min_length = 300
[[operation]]
name = "a"
match = "POST /a"
lease = "50ms"
[[operation]]
name = "b"
match = "POST /b"
key_min_length = 16
key_max_length = 15
"#,
        r#"
semel.toml:2:18: error: `defaults.key_min_length`: `key_min_length` is larger than `key_max_length`
 2 | key_min_length = 300
   |                  ^^^
semel.toml:6:9: error: `operation.a.lease`: `lease` must be at least 100 ms
 6 | lease = "50ms"
   |         ^^^^^^
semel.toml:10:18: error: `operation.b.key_min_length`: `key_min_length` is larger than `key_max_length`
 10 | key_min_length = 16
    |                  ^^
"#,
    );
}

#[test]
fn tokens_need_keys_an_issuer_and_an_audience() {
    wrong(
        r#"
[identity]
source = "jwt"
algorithms = []
leeway = "11m"
tenant_header = "X-Tenant"
"#,
        r#"
semel.toml:2:10: error: `identity.jwks`: missing: the issuer's keys, in a file or at an address such as "https://issuer.example/jwks.json"; `source = "jwt"` needs it
 2 | source = "jwt"
   |          ^^^^^
semel.toml:2:10: error: `identity.issuer`: missing: the issuer of the tokens, their claim `iss`; `source = "jwt"` needs it
 2 | source = "jwt"
   |          ^^^^^
semel.toml:2:10: error: `identity.audience`: missing: the audience of the tokens, their claim `aud`; `source = "jwt"` needs it
 2 | source = "jwt"
   |          ^^^^^
semel.toml:3:14: error: `identity.algorithms`: is empty, so every token would be refused: expected at least one, such as ["RS256"]
 3 | algorithms = []
   |              ^^
semel.toml:4:10: error: `identity.leeway`: a token would stay valid for more than 10 minutes after it expires: expected "10m" or less
 4 | leeway = "11m"
   |          ^^^^^
semel.toml:5:17: error: `identity.tenant_header`: goes with `source = "trusted-headers"` only, and `source` is "jwt"
 5 | tenant_header = "X-Tenant"
   |                 ^^^^^^^^^^
"#,
    );
}

#[test]
fn token_settings_need_a_token_source() {
    wrong(
        r#"
[identity]
source = "api-key"
issuer = "https://issuer.example"
leeway = "30s"
"#,
        r#"
semel.toml:3:10: error: `identity.issuer`: goes with `source = "jwt"` only, and `source` is "api-key"
 3 | issuer = "https://issuer.example"
   |          ^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn operations_must_be_told_apart() {
    wrong(
        r#"
[[operation]]
name = "a"
match = "POST /a/{id}"
[[operation]]
name = "a"
match = "PUT /a/{id}"
[[operation]]
name = "b"
match = "POST /a/{other}"
aliases = ["a"]
"#,
        r#"
semel.toml:5:8: error: `operation.a.name`: another operation has this name already
 5 | name = "a"
   |        ^^^
semel.toml:9:9: error: `operation.b.match`: matches the same requests as the operation `a`
 9 | match = "POST /a/{other}"
   |         ^^^^^^^^^^^^^^^^^
semel.toml:10:11: error: `operation.b.aliases`: `a` is the current name of another operation: an alias is a former name, so remove it here
 10 | aliases = ["a"]
    |           ^^^^^
"#,
    );
}

#[test]
fn operations_must_be_complete() {
    wrong(
        r#"
[[operation]]
ttl = "1h"
"#,
        r#"
semel.toml:1:1: error: `operation.name`: missing: every operation has a `name` and a `match`
 1 | [[operation]]
   | ^^^^^^^^^^^^^
semel.toml:1:1: error: `operation.match`: missing: every operation has a `name` and a `match`
 1 | [[operation]]
   | ^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn a_ledger_needs_another_to_be_compared_with() {
    wrong(
        r#"
[ledger]
reference = "id"
"#,
        r#"
semel.toml:2:13: error: `ledger.theirs`: missing: a ledger to compare with, a file or an address
 2 | reference = "id"
   |             ^^^^
"#,
    );
}

#[test]
fn compared_ledgers_need_a_reference() {
    wrong(
        r#"
[ledger]
theirs = "provider.csv"
"#,
        r#"
semel.toml:2:10: error: `ledger.reference`: missing: the column or member that identifies an entry in both ledgers
 2 | theirs = "provider.csv"
   |          ^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn the_store_has_nothing_to_compare_but_operation_ids() {
    wrong(
        r#"
[ledger]
theirs = "provider.csv"
reference = "key"
compare = ["amount"]
"#,
        r#"
semel.toml:4:11: error: `ledger.compare`: our ledger is the store, which is compared by operation id only: remove it
 4 | compare = ["amount"]
   |           ^^^^^^^^^^
"#,
    );
}

#[test]
fn a_schedule_has_no_standard_input() {
    wrong(
        r#"
[ledger]
theirs = "-"
reference = "key"
format = "csv"
"#,
        r#"
semel.toml:2:10: error: `ledger.theirs`: only `semel reconcile ledger` reads the standard input: expected a file or an address
 2 | theirs = "-"
   |          ^^^
"#,
    );
}
