//! Values that no setting of their kind accepts.

use super::*;

#[test]
fn values_at_the_top_level() {
    wrong(
        r#"
listen = 8080
admin_listen = "localhost:9090"
upstream = "htps://api.internal"
store = "memory"
log_format = "jsno"
drain = "soon"
"#,
        r#"
semel.toml:1:10: error: `listen`: expected an IP address and a port, such as "127.0.0.1:8080" or "[::1]:8080", found 8080
 1 | listen = 8080
   |          ^^^^
semel.toml:2:16: error: `admin_listen`: expected an IP address and a port, such as "127.0.0.1:8080" or "[::1]:8080", found "localhost:9090"; did you mean "127.0.0.1:9090"?
 2 | admin_listen = "localhost:9090"
   |                ^^^^^^^^^^^^^^^^
semel.toml:3:12: error: `upstream`: expected the address of an HTTP service, such as "http://127.0.0.1:3000", found "htps://api.internal"
 3 | upstream = "htps://api.internal"
   |            ^^^^^^^^^^^^^^^^^^^^^
semel.toml:4:9: error: `store`: expected "memory:", "sqlite:PATH" or "postgres://…", found "memory"; did you mean "memory:"?
 4 | store = "memory"
   |         ^^^^^^^^
semel.toml:5:14: error: `log_format`: expected "text" or "json", found "jsno"; did you mean "json"?
 5 | log_format = "jsno"
   |              ^^^^^^
semel.toml:6:9: error: `drain`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "soon"
 6 | drain = "soon"
   |         ^^^^^^
"#,
    );
}

#[test]
fn values_of_the_server() {
    wrong(
        r#"
[server]
max_connections = 0
head_timeout = "0s"
body_timeout = 30
idle_timeout = ["1s"]
max_head = "1KiB"
"#,
        r#"
semel.toml:2:19: error: `server.max_connections`: expected an integer from 1 to 1000000, found 0
 2 | max_connections = 0
   |                   ^
semel.toml:3:16: error: `server.head_timeout`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "0s": it must be longer than zero
 3 | head_timeout = "0s"
   |                ^^^^
semel.toml:4:16: error: `server.body_timeout`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found 30
 4 | body_timeout = 30
   |                ^^
semel.toml:5:16: error: `server.idle_timeout`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found a list
 5 | idle_timeout = ["1s"]
   |                ^^^^^^
semel.toml:6:12: error: `server.max_head`: expected a size such as "64KiB", "1MiB", "10MB" or 4096, from 8KiB to 1024GiB, found "1KiB"
 6 | max_head = "1KiB"
   |            ^^^^^^
"#,
    );
}

#[test]
fn values_of_the_defaults() {
    wrong(
        r#"
[defaults]
mode = "asinc"
key = "requird"
key_syntax = true
key_min_length = 0
key_max_length = 4097
profile = "paypal"
ttl = "7 days"
lease = "1h1h"
timeout = "99999999999d"
wait = "-1s"
in_progress = "Accepted"
on_lease_expired = "resume"
on_server_error = 500
on_expired = "refused"
tombstone_ttl = 1979-05-27
quarantine_margin = 1.5
not_executed_statuses = [425, 200, "x"]
max_request = "1M"
max_request_age = "of"
timestamp_header = "sent at"
max_stored_response = -1
start_within = "0s"
store_credentials = "yes"
"#,
        r#"
semel.toml:2:8: error: `defaults.mode`: expected "sync" or "async", found "asinc"; did you mean "async"?
 2 | mode = "asinc"
   |        ^^^^^^^
semel.toml:3:7: error: `defaults.key`: expected "required", "optional" or "ignored", found "requird"; did you mean "required"?
 3 | key = "requird"
   |       ^^^^^^^^^
semel.toml:4:14: error: `defaults.key_syntax`: expected "lenient" or "strict", found a boolean
 4 | key_syntax = true
   |              ^^^^
semel.toml:5:18: error: `defaults.key_min_length`: expected an integer from 1 to 4096, found 0
 5 | key_min_length = 0
   |                  ^
semel.toml:6:18: error: `defaults.key_max_length`: expected an integer from 1 to 4096, found 4097
 6 | key_max_length = 4097
   |                  ^^^^
semel.toml:7:11: error: `defaults.profile`: expected "ietf" or "stripe", found "paypal"
 7 | profile = "paypal"
   |           ^^^^^^^^
semel.toml:8:7: error: `defaults.ttl`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "7 days"
 8 | ttl = "7 days"
   |       ^^^^^^^^
semel.toml:9:9: error: `defaults.lease`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "1h1h"
 9 | lease = "1h1h"
   |         ^^^^^^
semel.toml:10:11: error: `defaults.timeout`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "99999999999d": it is longer than 36500d
 10 | timeout = "99999999999d"
    |           ^^^^^^^^^^^^^^
semel.toml:11:8: error: `defaults.wait`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "-1s"
 11 | wait = "-1s"
    |        ^^^^^
semel.toml:12:15: error: `defaults.in_progress`: expected "conflict" or "accepted", found "Accepted"; did you mean "accepted"?
 12 | in_progress = "Accepted"
    |               ^^^^^^^^^^
semel.toml:13:20: error: `defaults.on_lease_expired`: `on_lease_expired = "resume"` is for commands with phases, which say so themselves: a handler that was cut off cannot be resumed
 13 | on_lease_expired = "resume"
    |                    ^^^^^^^^
semel.toml:14:19: error: `defaults.on_server_error`: expected "unknown", "replay" or "retry", found 500
 14 | on_server_error = 500
    |                   ^^^
semel.toml:15:14: error: `defaults.on_expired`: expected "forget" or "refuse", found "refused"; did you mean "refuse"?
 15 | on_expired = "refused"
    |              ^^^^^^^^^
semel.toml:16:17: error: `defaults.tombstone_ttl`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found a date
 16 | tombstone_ttl = 1979-05-27
    |                 ^^^^^^^^^^
semel.toml:17:21: error: `defaults.quarantine_margin`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found 1.5
 17 | quarantine_margin = 1.5
    |                     ^^^
semel.toml:18:31: error: `defaults.not_executed_statuses`: expected an HTTP status from 400 to 599, found 200
 18 | not_executed_statuses = [425, 200, "x"]
    |                               ^^^
semel.toml:19:15: error: `defaults.max_request`: expected a size such as "64KiB", "1MiB", "10MB" or 4096, at most 1024GiB, found "1M"
 19 | max_request = "1M"
    |               ^^^^
semel.toml:20:19: error: `defaults.max_request_age`: expected a duration such as "200ms", "30s", "1h30m" or "7d", or "off", found "of"; did you mean "off"?
 20 | max_request_age = "of"
    |                   ^^^^
semel.toml:21:20: error: `defaults.timestamp_header`: expected a header's name, such as "X-Caller", found "sent at"
 21 | timestamp_header = "sent at"
    |                    ^^^^^^^^^
semel.toml:22:23: error: `defaults.max_stored_response`: expected a size such as "64KiB", "1MiB", "10MB" or 4096, at most 64MiB, found -1
 22 | max_stored_response = -1
    |                       ^^
semel.toml:23:16: error: `defaults.start_within`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "0s": it must be longer than zero
 23 | start_within = "0s"
    |                ^^^^
semel.toml:24:21: error: `defaults.store_credentials`: expected true or false, found "yes"
 24 | store_credentials = "yes"
    |                     ^^^^^
"#,
    );
}

#[test]
fn a_list_is_no_single_value() {
    wrong(
        r#"
[defaults]
not_executed_statuses = 425
"#,
        r#"
semel.toml:2:25: error: `defaults.not_executed_statuses`: expected a list, each an HTTP status from 400 to 599, found 425
 2 | not_executed_statuses = 425
   |                         ^^^
"#,
    );
}

#[test]
fn values_about_tokens() {
    wrong(
        r#"
[identity]
source = "jwt"
jwks = "ftp://issuer.example/keys"
issuer = ""
algorithms = ["RS256", "none", "RS512"]
tenant_claim = "/a~2"
leeway = "-1s"
max_token = "10B"
"#,
        r#"
semel.toml:2:10: error: `identity.audience`: missing: the audience of the tokens, their claim `aud`; `source = "jwt"` needs it
 2 | source = "jwt"
   |          ^^^^^
semel.toml:3:8: error: `identity.jwks`: expected a file, or an address that begins with http:// or https://, found "ftp://issuer.example/keys"
 3 | jwks = "ftp://issuer.example/keys"
   |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^
semel.toml:4:10: error: `identity.issuer`: expected a text that is not empty, found ""
 4 | issuer = ""
   |          ^^
semel.toml:5:24: error: `identity.algorithms`: expected "RS256", "ES256", "EdDSA" or "HS256", found "none"
 5 | algorithms = ["RS256", "none", "RS512"]
   |                        ^^^^^^
semel.toml:6:16: error: `identity.tenant_claim`: expected the name of a claim, or a JSON Pointer such as "/organization/id", found "/a~2": in a JSON Pointer, `~` is followed by `0` or `1`
 6 | tenant_claim = "/a~2"
   |                ^^^^^^
semel.toml:7:10: error: `identity.leeway`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "-1s"
 7 | leeway = "-1s"
   |          ^^^^^
semel.toml:8:13: error: `identity.max_token`: expected a size such as "64KiB", "1MiB", "10MB" or 4096, from 256B to 1024GiB, found "10B"
 8 | max_token = "10B"
   |             ^^^^^
"#,
    );
}

#[test]
fn values_of_an_authorization() {
    wrong(
        r#"
[defaults]
authorize_url = "authz.internal/check"
authorize_timeout = "0s"
[[operation]]
name = "a"
match = "POST /a"
authorize_url = "http://user:secret@authz.internal/"
authorize_cache = 5
"#,
        r#"
semel.toml:2:17: error: `defaults.authorize_url`: expected an address such as "https://authz.internal/check", or "off", found "authz.internal/check"
 2 | authorize_url = "authz.internal/check"
   |                 ^^^^^^^^^^^^^^^^^^^^^^
semel.toml:3:21: error: `defaults.authorize_timeout`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "0s": it must be longer than zero
 3 | authorize_timeout = "0s"
   |                     ^^^^
semel.toml:7:17: error: `operation.a.authorize_url`: credentials do not belong in the address: found "http://user:***@authz.internal/", expected an address such as "https://authz.internal/check", or "off"
 7 | authorize_url = "http://user:***@authz.internal/"
   |                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
semel.toml:8:19: error: `operation.a.authorize_cache`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found 5
 8 | authorize_cache = 5
   |                   ^
"#,
    );
}

#[test]
fn values_of_the_identity() {
    wrong(
        r#"
[identity]
source = "jvt"
trusted_proxies = ["10.0.0.1/8", "proxy"]
tenant_header = ""
caller_header = { a = 1 }
"#,
        r#"
semel.toml:2:10: error: `identity.source`: expected "none", "api-key", "trusted-headers", "jwt", "client-certificate" or "introspection", found "jvt"; did you mean "jwt"?
 2 | source = "jvt"
   |          ^^^^^
semel.toml:3:20: error: `identity.trusted_proxies`: expected an IP address or a range such as "10.0.0.0/8", found "10.0.0.1/8"; did you mean "10.0.0.0/8"?
 3 | trusted_proxies = ["10.0.0.1/8", "proxy"]
   |                    ^^^^^^^^^^^^
semel.toml:4:17: error: `identity.tenant_header`: expected a header's name, such as "X-Caller", found ""
 4 | tenant_header = ""
   |                 ^^
semel.toml:5:17: error: `identity.caller_header`: expected a header's name, such as "X-Caller", found a table
 5 | caller_header = { a = 1 }
   |                 ^^^^^^^^^
"#,
    );
}

#[test]
fn values_of_an_operation() {
    wrong(
        r#"
[[operation]]
name = ""
match = "/a"
business_reference = "reference"
fingerprint_exclude = ["/a", "/~2"]
aliases = "b"
ttl = "x"
"#,
        r#"
semel.toml:2:8: error: `operation.name`: expected the name of an operation, such as "payments.create", found "": an operation's name is empty
 2 | name = ""
   |        ^^
semel.toml:3:9: error: `operation.match`: expected a method and a path, such as "POST /payments/{id}", found "/a"
 3 | match = "/a"
   |         ^^^^
semel.toml:4:22: error: `operation.business_reference`: expected a JSON Pointer such as "/payment/reference", found "reference": a JSON Pointer starts with `/`
 4 | business_reference = "reference"
   |                      ^^^^^^^^^^^
semel.toml:5:30: error: `operation.fingerprint_exclude`: expected a JSON Pointer such as "/payment/reference", found "/~2": in a JSON Pointer, `~` is followed by `0` or `1`
 5 | fingerprint_exclude = ["/a", "/~2"]
   |                              ^^^^^
semel.toml:6:11: error: `operation.aliases`: expected a list, each the name of an operation, such as "payments.create", found "b"
 6 | aliases = "b"
   |           ^^^
semel.toml:7:7: error: `operation.ttl`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "x"
 7 | ttl = "x"
   |       ^^^
"#,
    );
}

#[test]
fn values_of_the_maintenance() {
    wrong(
        r#"
[maintenance]
sweep_interval = "0s"
reap_interval = ""
reap_batch = 100001
"#,
        r#"
semel.toml:2:18: error: `maintenance.sweep_interval`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "0s": it must be longer than zero
 2 | sweep_interval = "0s"
   |                  ^^^^
semel.toml:3:17: error: `maintenance.reap_interval`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found ""
 3 | reap_interval = ""
   |                 ^^
semel.toml:4:14: error: `maintenance.reap_batch`: expected an integer from 1 to 100000, found 100001
 4 | reap_batch = 100001
   |              ^^^^^^
"#,
    );
}

#[test]
fn malformed_or_unsupported_store_addresses_are_refused() {
    for (value, message) in [
        (
            "postgres://u:secret@h:port/db",
            r#"expected "memory:", "sqlite:PATH" or "postgres://…", found "postgres://u:***@h:port/db": not an address of PostgreSQL: invalid value for option `port`"#,
        ),
        (
            "postgresql:///db",
            r#"expected "memory:", "sqlite:PATH" or "postgres://…", found "postgresql:///db": not an address of PostgreSQL: it names no host"#,
        ),
        (
            "mysql://u:secret@h/db",
            r#""mysql://u:***@h/db" is reserved: not built yet; expected "memory:", "sqlite:PATH" or "postgres://…""#,
        ),
        (
            "memory",
            r#"expected "memory:", "sqlite:PATH" or "postgres://…", found "memory"; did you mean "memory:"?"#,
        ),
        (
            "sqlite:",
            r#"expected "memory:", "sqlite:PATH" or "postgres://…", found "sqlite:": the path is missing"#,
        ),
        (
            "sqlite::memory:",
            r#"expected "memory:", "sqlite:PATH" or "postgres://…", found "sqlite::memory:"; did you mean "memory:"?"#,
        ),
        (
            "sqlite://semel.db",
            r#"expected "memory:", "sqlite:PATH" or "postgres://…", found "sqlite://semel.db": a path follows the colon, without `//`"#,
        ),
        (
            "sqlit:x.db",
            r#"expected "memory:", "sqlite:PATH" or "postgres://…", found "sqlit:x.db"; did you mean "sqlite:x.db"?"#,
        ),
        ("redis://x", r#"expected "memory:", "sqlite:PATH" or "postgres://…", found "redis://x""#),
        ("", r#"expected "memory:", "sqlite:PATH" or "postgres://…", found """#),
    ] {
        assert_eq!(first_message(&format!("store = {value:?}")), message);
    }
}

#[test]
fn an_upstream_is_a_host_and_a_port() {
    for (value, message) in [
        (
            "https://api/v1",
            r#"expected the address of an HTTP service, such as "http://127.0.0.1:3000", found "https://api/v1": a path or query is not supported: requests keep their own"#,
        ),
        (
            "127.0.0.1:3000",
            r#"expected the address of an HTTP service, such as "http://127.0.0.1:3000", found "127.0.0.1:3000"; did you mean "http://127.0.0.1:3000"?"#,
        ),
        (
            "api",
            r#"expected the address of an HTTP service, such as "http://127.0.0.1:3000", found "api"; did you mean "http://api"?"#,
        ),
        (
            "http://u:secret@api",
            r#"credentials do not belong in the address: found "http://u:***@api", expected the address of an HTTP service, such as "http://127.0.0.1:3000""#,
        ),
        (
            "http://api/v1",
            r#"expected the address of an HTTP service, such as "http://127.0.0.1:3000", found "http://api/v1": a path or query is not supported: requests keep their own"#,
        ),
        (
            "http://api:99999",
            r#"expected the address of an HTTP service, such as "http://127.0.0.1:3000", found "http://api:99999": a port is a number from 1 to 65535"#,
        ),
        (
            "ftp://api",
            r#"expected the address of an HTTP service, such as "http://127.0.0.1:3000", found "ftp://api""#,
        ),
    ] {
        assert_eq!(first_message(&format!("upstream = {value:?}")), message);
    }
}

#[test]
fn a_match_is_a_method_and_a_path() {
    for (value, message) in [
        ("/a", r#"expected a method and a path, such as "POST /payments/{id}", found "/a""#),
        (
            "post /a",
            r#"expected a method and a path, such as "POST /payments/{id}", found "post /a"; did you mean "POST /a"?"#,
        ),
        (
            "GET /a",
            r#"expected a method and a path, such as "POST /payments/{id}", found "GET /a": GET is never a command"#,
        ),
        ("POST a", r#"expected a method and a path, such as "POST /payments/{id}", found "POST a""#),
        (
            "POST /a?b",
            r#"expected a method and a path, such as "POST /payments/{id}", found "POST /a?b": a route has no query: remove it"#,
        ),
        (
            "POST /{",
            r#"expected a method and a path, such as "POST /payments/{id}", found "POST /{": a placeholder is written `{name}`"#,
        ),
        (
            "POST /{a}{b}",
            r#"expected a method and a path, such as "POST /payments/{id}", found "POST /{a}{b}": a segment holds at most one `{name}`"#,
        ),
        (
            "POST /{*a}/b",
            r#"expected a method and a path, such as "POST /payments/{id}", found "POST /{*a}/b": `{*name}` must be the last segment"#,
        ),
        (
            "POST /a/:id",
            r#"expected a method and a path, such as "POST /payments/{id}", found "POST /a/:id": `:id` would be matched letter by letter: a placeholder is written `{id}`, so "/a/{id}""#,
        ),
        (
            "POST /a/*",
            r#"expected a method and a path, such as "POST /payments/{id}", found "POST /a/*": `*` would be matched letter by letter: write `{name}` for one segment, or `{*rest}` at the end for all that follow"#,
        ),
        (
            "ANY /a",
            r#"expected a method and a path, such as "POST /payments/{id}", found "ANY /a": `ANY` is no method of HTTP: write one rule for each method"#,
        ),
        (
            "POST ^/a/[0-9]+$",
            r#"expected a method and a path, such as "POST /payments/{id}", found "POST ^/a/[0-9]+$": it is read as a path, and not as a regular expression: write `{name}` for one segment, or `{*rest}` at the end for all that follow"#,
        ),
        (
            "POST /a/{id:int}",
            r#"expected a method and a path, such as "POST /payments/{id}", found "POST /a/{id:int}": `{id:int}` has more than a name: a placeholder stands for any segment, and is written `{id}`"#,
        ),
        (
            "POST /é",
            r#"expected a method and a path, such as "POST /payments/{id}", found "POST /é": a request's path is ASCII: write other characters percent-encoded, as they arrive"#,
        ),
    ] {
        assert_eq!(first_message(&format!("[[operation]]\nname = \"a\"\nmatch = {value:?}")), message);
    }
}

/// A typing mistake in the scheme must not reveal the password after it.
#[test]
fn no_refusal_of_a_store_shows_its_password() {
    for store in [
        "postgre://u:hunter2@h/db",
        "POSTGRES://u:hunter2@h/db",
        "postgres:/u:hunter2@h/db",
        "postgres:u:hunter2@h/db",
        "postgres://u:a?sslmode=hunter2@h/db",
        "postgre://h/db?password=a&password=hunter2",
    ] {
        let message = first_message(&format!("store = \"{store}\"\n"));
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn values_of_the_ledger() {
    wrong(
        r#"
[ledger]
theirs = ""
interval = "0s"
compare = "amount"
their_filter = ["status"]
grace = 15
format = "xml"
max_size = "1B"
"#,
        r#"
semel.toml:2:10: error: `ledger.theirs`: expected a text that is not empty, found ""
 2 | theirs = ""
   |          ^^
semel.toml:3:12: error: `ledger.interval`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found "0s": it must be longer than zero
 3 | interval = "0s"
   |            ^^^^
semel.toml:4:11: error: `ledger.compare`: expected a list, each a text that is not empty, found "amount"
 4 | compare = "amount"
   |           ^^^^^^^^
semel.toml:5:17: error: `ledger.their_filter`: expected a column or member and its value, such as "status=captured", found "status"
 5 | their_filter = ["status"]
   |                 ^^^^^^^^
semel.toml:6:9: error: `ledger.grace`: expected a duration such as "200ms", "30s", "1h30m" or "7d", found 15
 6 | grace = 15
   |         ^^
semel.toml:7:10: error: `ledger.format`: expected "csv", "ndjson" or "json", found "xml"
 7 | format = "xml"
   |          ^^^^^
semel.toml:8:12: error: `ledger.max_size`: expected a size such as "64KiB", "1MiB", "10MB" or 4096, from 1KiB to 1024GiB, found "1B"
 8 | max_size = "1B"
   |            ^^^^
"#,
    );
}
