//! Warnings of choices that weaken a guarantee, with the reason, at the place of the choice only.

use super::*;

fn warnings(sources: &Sources) -> Vec<String> {
    loaded(sources).warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn every_weak_choice_says_why() {
    let text = r#"admin_listen = "0.0.0.0:9090"
store = "memory:"
identity = { source = "trusted-headers", trusted_proxies = ["::/0"], tenant_header = "T", caller_header = "C" }
[defaults]
ttl = "59m"
lease = "999ms"
on_lease_expired = "rerun"
on_server_error = "retry"
[[operation]]
name = "a"
match = "POST /a"
key = "ignored"
[[operation]]
name = "b"
match = "POST /b"
key = "optional"
[[admin.token]]
name = "alice"
role = "viewer"
env = "ALICE"
"#;
    let shown = warnings(&file(text)).join("\n");
    assert_eq!(
        shown,
        r#"semel.toml:1:16: warning: `admin_listen`: tokens reach this listener unencrypted, and anybody on the network can read them: set `[admin_tls]`
 1 | admin_listen = "0.0.0.0:9090"
   |                ^^^^^^^^^^^^^^
semel.toml:2:9: warning: `store`: records are lost when the process ends: a retry after that runs again
 2 | store = "memory:"
   |         ^^^^^^^^^
semel.toml:3:60: warning: `identity.trusted_proxies`: ::/0 includes every address: any client can claim to be any caller
 3 | identity = { source = "trusted-headers", trusted_proxies = ["::/0"], tenant_header = "T", caller_header = "C" }
   |                                                            ^^^^^^^^
semel.toml:5:7: warning: `defaults.ttl`: clients retry for longer than this after an outage: a retry after the ttl runs again
 5 | ttl = "59m"
   |       ^^^^^
semel.toml:6:9: warning: `defaults.lease`: a short pause of this process or its store lets the lease expire
 6 | lease = "999ms"
   |         ^^^^^^^
semel.toml:7:20: warning: `defaults.on_lease_expired`: an executor that lost its lease may have done the work: the command can run twice
 7 | on_lease_expired = "rerun"
   |                    ^^^^^^^
semel.toml:8:19: warning: `defaults.on_server_error`: a server error can follow the effect: the command can run twice
 8 | on_server_error = "retry"
   |                   ^^^^^^^
semel.toml:12:7: warning: `operation.a.key`: nothing is protected here: every retry runs again
 12 | key = "ignored"
    |       ^^^^^^^^^
semel.toml:16:7: warning: `operation.b.key`: a command without a key passes unprotected: its retry runs again
 16 | key = "optional"
    |       ^^^^^^^^^^"#
    );
}

#[test]
fn storing_credentials_without_encryption_gives_a_warning() {
    let warning = "credentials are stored unencrypted until their command is executed, and anybody who can \
                   read the store can act as the caller: set `[encryption]`";
    let text =
        "[[operation]]\nname = \"a\"\nmatch = \"POST /a\"\nmode = \"async\"\nstore_credentials = true\n";
    assert_eq!(
        warnings(&file(text)),
        [format!(
            "semel.toml:5:21: warning: `operation.a.store_credentials`: {warning}\n \
             5 | store_credentials = true\n   |                     ^^^^"
        )]
    );
    for (word, warned) in [("true", 1), ("false", 0)] {
        let shown = warnings(&Sources::new().variable("SEMEL_STORE_CREDENTIALS", word));
        assert_eq!(shown.len(), warned, "{shown:?}");
    }
    let in_memory = Sources::new().flag("store", "memory:").flag("store-credentials", "true");
    assert_eq!(warnings(&in_memory).len(), 1, "nothing is kept but in this process");
    let encrypted = "[encryption]\ncurrent = \"a\"\n[[encryption.key]]\nid = \"a\"\nenv = \"A\"\n";
    assert_eq!(warnings(&file(&format!("{encrypted}{text}"))), [""; 0]);
}

#[test]
fn keys_that_others_can_change_or_know_are_named() {
    let jwt = |jwks: &str, algorithm: &str| {
        let text = format!(
            "[identity]\nsource = \"jwt\"\nissuer = \"i\"\naudience = \"a\"\njwks = \"{jwks}\"\n\
             algorithms = [\"{algorithm}\"]\n"
        );
        let shown = warnings(&file(&text));
        shown.iter().map(|warning| warning.lines().next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let changed = "semel.toml:5:8: warning: `identity.jwks`: an attacker on the network can replace the \
                   keys, and act as any caller: use https";
    let known = "semel.toml:5:8: warning: `identity.jwks`: keys of HS256 are shared secrets, and anybody \
                 who can fetch that address has them: use a file";
    assert_eq!(jwt("http://issuer.example/", "RS256"), [changed]);
    assert_eq!(jwt("https://issuer.example/", "HS256"), [known]);
    for good in ["keys.json", "https://issuer.example/", "http://127.0.0.1:1/"] {
        assert_eq!(jwt(good, "RS256"), [""; 0], "{good}");
    }
    assert_eq!(jwt("keys.json", "HS256"), [""; 0]);
}

#[test]
fn credentials_that_cross_a_network_in_the_clear_are_named() {
    let jwt = "source = \"jwt\"\nissuer = \"i\"\naudience = \"a\"\njwks = \"keys.json\"";
    for (identity, what) in [("source = \"api-key\"", "API keys"), (jwt, "tokens")] {
        let shown = |listen: &str, more: &str| {
            warnings(&file(&format!("listen = \"{listen}\"\n[identity]\n{identity}\n{more}")))
        };
        let warned = shown("10.0.0.7:8080", "");
        let message = format!(
            "semel.toml:1:10: warning: `listen`: {what} cross the network unencrypted, and anybody who sees \
             one can act as its caller: set `[tls]`, unless a proxy in front terminates TLS and nothing else \
             reaches this address"
        );
        assert!(warned.len() == 1 && warned[0].starts_with(&message), "{warned:?}");
        assert_eq!(shown("127.0.0.1:8080", ""), [""; 0]);
        assert_eq!(shown("10.0.0.7:8080", "[tls]\ncertificate = \"a.crt\"\nkey = \"a.key\""), [""; 0]);
    }
}

#[test]
fn admin_tokens_on_a_reachable_address_without_tls_give_a_warning() {
    let tls = "[admin_tls]\ncertificate = \"a.crt\"\nkey = \"a.key\"\n";
    let token = "[[admin.token]]\nname = \"a\"\nrole = \"viewer\"\nenv = \"A\"\n";
    let shown = |more: &str| warnings(&file(&format!("admin_listen = \"0.0.0.0:9090\"\n{token}{more}")));
    assert_eq!((shown("").len(), shown(tls).len()), (1, 0));
    let sources = file(&format!("admin_listen = \"0.0.0.0:9090\"\n{tls}client_ca = \"operators.crt\""));
    assert!(load(&sources).is_err(), "a certificate opens the connection, and does not say who may what");
}

#[test]
fn single_sign_on_from_every_address_gives_a_warning() {
    let sso = |proxies: &str| {
        let people = "user_header = \"X-User\"\nviewers = [\"*\"]";
        let text =
            format!("admin_listen = \"0.0.0.0:9090\"\n[admin.sso]\ntrusted_proxies = [{proxies}]\n{people}");
        warnings(&file(&text))
    };
    assert!(sso("\"10.0.0.0/8\"").is_empty(), "without tokens, none cross the network");
    let shown = sso("\"10.0.0.1\", \"0.0.0.0/0\"").join("\n");
    assert!(shown.contains("0.0.0.0/0 includes every address: anybody who reaches"), "{shown}");
}

#[test]
fn an_authorize_cache_over_a_minute_gives_a_warning() {
    let shown = warnings(&Sources::new().flag("authorize-cache", "61s"));
    let warning = "a caller whose permission was revoked keeps access, and gets stored responses, for up to \
                   this time";
    assert_eq!(shown, [format!("--authorize-cache: warning: `defaults.authorize_cache`: {warning}")]);
    assert_eq!(warnings(&Sources::new().flag("authorize-cache", "60s")), [""; 0]);
}

#[test]
fn a_route_that_ends_in_a_slash_is_questioned_unless_the_slash_is_meant() {
    let with = |route: &str, more: &str| {
        warnings(&file(&format!("{more}\n[[operation]]\nname = \"a\"\nmatch = \"{route}\"\n")))
    };
    let shown = with("POST /a/", "").join("\n");
    assert!(shown.contains("`operation.a.match`") && shown.contains("did you mean \"POST /a\"?"), "{shown}");
    assert_eq!(with("POST /a/", "[defaults]\ntrailing_slash = \"same\""), [""; 0]);
    assert_eq!(with("POST /a/", "[defaults]\ntrailing_slash = \"refuse\""), [""; 0], "it was thought about");
    assert_eq!(with("POST /", ""), [""; 0]);
    assert_eq!(with("POST /a", ""), [""; 0]);
}

#[test]
fn a_weak_choice_by_flag_names_the_flag() {
    assert_eq!(
        warnings(&Sources::new().flag("store", "memory:")),
        ["--store: warning: `store`: records are lost when the process ends: a retry after that runs again"]
    );
}

#[test]
fn an_unknown_variable_is_a_warning_that_names_the_nearest() {
    for (name, warning) in [
        ("SEMEL_TLT", "no such variable; did you mean SEMEL_TTL?"),
        ("SEMEL_KEY_SINTAX", "no such variable; did you mean SEMEL_KEY_SYNTAX?"),
        ("SEMEL_ttl", "no such variable; did you mean SEMEL_TTL?"),
        ("SEMEL_CONFG", "no such variable; did you mean SEMEL_CONFIG?"),
        ("SEMEL_FROBNICATE", "no such variable"),
        ("SEMEL_", "no such variable"),
        ("SEMEL_SOURCE", "no such variable; `source` is set in `[identity]` of the file only"),
        ("SEMEL_OUTBOX", "reserved: not built yet"),
        ("SEMEL_ISSUER", "no such variable; `issuer` is set in `[identity]` of the file only"),
    ] {
        let shown = warnings(&Sources::new().variable(name, "1"));
        assert_eq!(shown, [format!("{name}: warning: {warning}")]);
    }
}

#[test]
fn environment_variables_that_are_no_settings_give_no_warning() {
    for name in ["SEMEL_CONFIG", "SEMEL_VECTORS", "SEMEL_TEST_POSTGRES", "SEMELTTL", "TTL", "PATH"] {
        let sources = Sources::new().variable(name, "x");
        assert_eq!(warnings(&sources), [""; 0], "{name}");
    }
}

#[test]
fn the_stripe_profile_without_a_key_setting_is_warned_of() {
    let operation = "[[operation]]\nname = \"a\"\nmatch = \"POST /a\"\nprofile = \"stripe\"\n";
    let shown = warnings(&file(operation)).join("\n");
    assert_eq!(
        shown,
        r#"semel.toml:4:11: warning: `operation.a.profile`: commands without a key are refused, but Stripe's API accepts them: write `key = "optional"` to let them pass unprotected, or `key = "required"` to keep refusing them
 4 | profile = "stripe"
   |           ^^^^^^^^"#
    );
    for word in ["required", "optional"] {
        let shown = warnings(&file(&format!("{operation}key = \"{word}\"\n"))).join("\n");
        assert!(!shown.contains("profile"), "{shown}");
        let shown = warnings(&file(&format!("[defaults]\nkey = \"{word}\"\n{operation}"))).join("\n");
        assert!(!shown.contains("profile"), "{shown}");
    }
}

#[test]
fn anonymous_callers_and_trust_in_everybody_are_named() {
    let text = r#"forwarded = "keep"
identity.source = "api-key"
[cors]
preflight = "gateway"
[[operation]]
name = "a"
match = "POST /a"
anonymous = true
"#;
    let shown = warnings(&file(text)).join("\n");
    assert_eq!(
        shown,
        r#"semel.toml:1:13: warning: `forwarded`: no proxy is trusted, so every peer's fields are replaced: name proxies in `forwarded_from`
 1 | forwarded = "keep"
   |             ^^^^^^
semel.toml:4:13: warning: `cors.preflight`: has no effect without `origins`
 4 | preflight = "gateway"
   |             ^^^^^^^^^
semel.toml:8:13: warning: `operation.a.anonymous`: a command of an unknown caller passes unprotected: its retry runs again
 8 | anonymous = true
   |             ^^^^"#
    );
    let shown = warnings(&file("forwarded_from = [\"0.0.0.0/0\"]")).join("\n");
    assert!(
        shown.contains("0.0.0.0/0 includes every address: any client can claim to come from any address"),
        "{shown}"
    );
}

#[test]
fn credentials_for_services_that_cross_a_network_in_the_clear_are_named() {
    let table = |url: &str| {
        format!(
            "[defaults]\nauthorize_url = \"{url}/check\"\n[[operation]]\nname = \"a\"\nmatch = \"POST /a\"\n\
             [operation.reconcile]\nurl = \"{url}/{{operation_id}}\"\nreference = \"/id\"\nauthorization_env = \"A\"\n\
             [ledger]\ntheirs = \"{url}/x.csv\"\nreference = \"id\"\nauthorization_env = \"A\"\n\
             [identity]\nsource = \"introspection\"\nintrospection_url = \"{url}/introspect\"\n"
        )
    };
    for safe in ["https://a.example", "http://127.0.0.1", "http://localhost:1", "http://[::1]:1"] {
        assert!(warnings(&file(&table(safe))).is_empty(), "{safe}");
    }
    let shown = warnings(&file(&table("http://a.example"))).join("\n");
    for path in
        ["defaults.authorize_url", "operation.a.reconcile.url", "ledger.theirs", "identity.introspection_url"]
    {
        assert!(shown.contains(&format!("warning: `{path}`: ")), "{path}: {shown}");
    }
    assert_eq!(shown.matches("unencrypted").count(), 4, "{shown}");
    let without = table("http://a.example").replace("authorization_env = \"A\"\n", "");
    assert_eq!(warnings(&file(&without)).len(), 2, "without a credential, nothing is exposed");
}

#[test]
fn a_long_introspection_cache_is_warned_of() {
    let text = "[identity]\nsource = \"introspection\"\nintrospection_url = \"https://a.example\"\n\
                introspection_cache = \"5m\"\n";
    let shown = warnings(&file(text)).join("\n");
    assert!(
        shown.contains("`identity.introspection_cache`: a caller who logged out keeps access"),
        "{shown}"
    );
}

#[test]
fn a_credential_in_the_query_of_an_address_is_warned_of_and_never_shown() {
    let text = "[[operation]]\nname = \"a\"\nmatch = \"POST /a\"\nauthorize_url = \"https://a.example/check?api_key=planted\"\n\
                [operation.reconcile]\nurl = \"https://a.example/x/{operation_id}?id={operation_id}&token=planted\"\nreference = \"/id\"\n\
                [ledger]\ntheirs = \"https://a.example/x.csv?signature=planted&page=2\"\nreference = \"id\"\n";
    let loaded = loaded(&file(text));
    let warned: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    for (path, parameter) in [
        ("operation.a.authorize_url", "api_key"),
        ("operation.a.reconcile.url", "token"),
        ("ledger.theirs", "signature"),
    ] {
        let begin = format!("`{path}`: `{parameter}` in the query looks like a credential");
        assert_eq!(warned.iter().filter(|warning| warning.contains(&begin)).count(), 1, "{path}: {warned:?}");
    }
    let rows: Vec<String> = loaded.rows.iter().map(ToString::to_string).collect();
    assert!(rows.iter().any(|row| row.contains("?id={operation_id}&token=***")), "{rows:?}");
    assert!(rows.iter().any(|row| row.contains("?signature=***&page=***")), "{rows:?}");
    assert!(warned.iter().chain(&rows).all(|line| !line.contains("planted")), "{warned:?} {rows:?}");
}
