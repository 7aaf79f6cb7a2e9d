//! TLS settings that conflict.

use super::*;

#[test]
fn a_certificate_and_its_key_come_together() {
    wrong(
        r#"
upstream = "https://api.internal"
[tls]
certificate = "a.crt"
[admin_tls]
key = "a.key"
[upstream_tls]
key = "a.key"
"#,
        r#"
semel.toml:3:15: error: `tls.certificate`: also needs `key`: the file with its private key
 3 | certificate = "a.crt"
   |               ^^^^^^^
semel.toml:5:7: error: `admin_tls.key`: also needs `certificate`: the file with the certificate that it belongs to
 5 | key = "a.key"
   |       ^^^^^^^
semel.toml:7:7: error: `upstream_tls.key`: also needs `certificate`: the file with the certificate that it belongs to
 7 | key = "a.key"
   |       ^^^^^^^
"#,
    );
}

#[test]
fn clients_are_asked_for_certificates_by_a_listener_that_shows_one() {
    wrong(
        r#"
[tls]
client_ca = "clients.crt"
[admin_tls]
certificate = "a.crt"
key = "a.key"
client_crl = "clients.crl"
"#,
        r#"
semel.toml:2:13: error: `tls.client_ca`: also needs `certificate`: a listener that requires client certificates needs one itself
 2 | client_ca = "clients.crt"
   |             ^^^^^^^^^^^^^
semel.toml:6:14: error: `admin_tls.client_crl`: also needs `client_ca`: the authorities that issued the lists
 6 | client_crl = "clients.crl"
   |              ^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn callers_with_certificates_need_an_authority() {
    wrong(
        r#"
[identity]
source = "client-certificate"
[tls]
certificate = "a.crt"
key = "a.key"
"#,
        r#"
semel.toml:2:10: error: `identity.source`: "client-certificate" needs `client_ca` in `[tls]`, beside `certificate` and `key`: the authorities of client certificates
 2 | source = "client-certificate"
   |          ^^^^^^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn a_tenant_comes_from_one_place() {
    wrong(
        r#"
[identity]
source = "client-certificate"
fixed_tenant = "acme"
tenant_field = "subject.O"
caller_field = "subject.cn"
issuer = "i"
[tls]
certificate = "a.crt"
key = "a.key"
client_ca = "clients.crt"
"#,
        r#"
semel.toml:5:16: error: `identity.caller_field`: expected "subject.CN", "subject.O", "subject.OU", "san.dns", "san.uri" or "san.email", found "subject.cn"; did you mean "subject.CN"?
 5 | caller_field = "subject.cn"
   |                ^^^^^^^^^^^^
semel.toml:6:10: error: `identity.issuer`: goes with `source = "jwt"` only, and `source` is "client-certificate"
 6 | issuer = "i"
   |          ^^^
"#,
    );
    let certificate = "[tls]\ncertificate = \"a\"\nkey = \"a\"\nclient_ca = \"a\"\n";
    let message = |identity: &str| {
        first_message(&format!("[identity]\nsource = \"client-certificate\"\n{identity}\n{certificate}"))
    };
    assert_eq!(
        message("fixed_tenant = \"acme\"\ntenant_field = \"subject.O\""),
        "conflicts with `fixed_tenant`, which also names the tenant: remove one of them"
    );
    let long = message(&format!("fixed_tenant = \"{}\"", "x".repeat(256)));
    assert!(long.starts_with("expected a name"), "{long}");
    assert_eq!(
        first_message("[identity]\nsource = \"api-key\"\nfixed_tenant = \"acme\""),
        "goes with `source = \"client-certificate\"` or `\"introspection\"` only, and `source` is \"api-key\""
    );
}

#[test]
fn upstream_protocol_must_fit_the_address() {
    wrong(
        r#"
upstream_protocol = "h2"
[upstream_tls]
ca = "ca.crt"
"#,
        r#"
semel.toml:1:21: error: `upstream_protocol`: "h2" is HTTP/2 over TLS, and `upstream` begins with http://: use "h2c"
 1 | upstream_protocol = "h2"
   |                     ^^^^
semel.toml:3:6: error: `upstream_tls.ca`: has no effect while `upstream` begins with http://: write https://
 3 | ca = "ca.crt"
   |      ^^^^^^^^
"#,
    );
    wrong(
        r#"
upstream = "https://api.internal"
upstream_protocol = "h2c"
"#,
        r#"
semel.toml:2:21: error: `upstream_protocol`: "h2c" is HTTP/2 without TLS, and `upstream` begins with https://: use "h2"
 2 | upstream_protocol = "h2c"
   |                     ^^^^^
"#,
    );
    wrong(
        r#"
listen = "127.0.0.1:443"
upstream = "https://localhost"
"#,
        r#"
semel.toml:2:12: error: `upstream`: leads back to `listen` (127.0.0.1:443), so every request would loop: set the address of your service
 2 | upstream = "https://localhost"
   |            ^^^^^^^^^^^^^^^^^^^
"#,
    );
}

#[test]
fn misspelled_or_misplaced_tls_settings_are_named() {
    wrong(
        r#"
[tsl]
[tls]
cert = "a.crt"
certficate = "a.crt"
[upstream_tls]
client_ca = "a.crt"
"#,
        r#"
semel.toml:1:2: error: `tsl`: unknown table; did you mean `tls`?
 1 | [tsl]
   |  ^^^
semel.toml:3:1: error: `tls.cert`: unknown setting; `semel config init` prints all there are
 3 | cert = "a.crt"
   | ^^^^
semel.toml:4:1: error: `tls.certficate`: unknown setting; did you mean `certificate`?
 4 | certficate = "a.crt"
   | ^^^^^^^^^^
semel.toml:6:1: error: `upstream_tls.client_ca`: belongs to `[tls]`
 6 | client_ca = "a.crt"
   | ^^^^^^^^^
"#,
    );
}

#[test]
fn the_files_of_a_service_go_with_its_https_address() {
    wrong(
        r#"
[defaults]
authorize_url = "http://a.example"
authorize_ca = "ca.crt"
[ledger]
theirs = "https://a.example/x.csv"
reference = "id"
certificate = "a.crt"
[[operation]]
name = "a"
match = "POST /a"
authorize_url = "https://b.example"
authorize_key = "a.key"
"#,
        r#"
semel.toml:3:16: error: `defaults.authorize_ca`: has no effect unless the address begins with https://: write https://
 3 | authorize_ca = "ca.crt"
   |                ^^^^^^^^
semel.toml:7:15: error: `ledger.certificate`: also needs `key`: the file with its private key
 7 | certificate = "a.crt"
   |               ^^^^^^^
semel.toml:12:17: error: `operation.a.authorize_key`: also needs `authorize_certificate`: the file with the certificate that it belongs to
 12 | authorize_key = "a.key"
    |                 ^^^^^^^
"#,
    );
}

#[test]
fn introspection_has_its_own_settings() {
    wrong(
        r#"
[identity]
source = "introspection"
introspection_request = "forward"
introspection_authorization_env = "A"
tenant_claim = "org"
fixed_tenant = "acme"
introspection_cookie = "a b"
"#,
        r#"
semel.toml:2:10: error: `identity.introspection_url`: missing: the address of the introspection service, such as "https://auth.example/introspect"; `source = "introspection"` needs it
 2 | source = "introspection"
   |          ^^^^^^^^^^^^^^^
semel.toml:4:35: error: `identity.introspection_authorization_env`: goes with `introspection_request = "form"` only: "forward" sends the client's own credential
 4 | introspection_authorization_env = "A"
   |                                   ^^^
semel.toml:5:16: error: `identity.tenant_claim`: conflicts with `fixed_tenant`, which also names the tenant: remove one of them
 5 | tenant_claim = "org"
   |                ^^^^^
semel.toml:7:24: error: `identity.introspection_cookie`: expected the name of a cookie, such as "session", found "a b"
 7 | introspection_cookie = "a b"
   |                        ^^^^^
"#,
    );
}
