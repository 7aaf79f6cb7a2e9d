//! Precedence of the sources, and the origin of every value.

use super::*;
use semel_core::policy::{KeyRequirement, OnExpired, Profile};
use semel_core::{KeySyntax, Policy};

/// The example of the contract, whole.
const CONTRACT: &str = r#"
listen       = "127.0.0.1:8080"
admin_listen = "127.0.0.1:9090"
upstream     = "http://127.0.0.1:3000"
store        = "sqlite:semel.db"

[identity]
source = "none"

[defaults]
mode             = "sync"
key              = "required"
key_syntax       = "lenient"
key_min_length   = 16
key_max_length   = 255
profile          = "ietf"
ttl              = "24h"
lease            = "30s"
timeout          = "25s"
late_answer      = "30s"
wait             = "200ms"
in_progress      = "conflict"
on_lease_expired = "unknown"
on_server_error  = "unknown"
on_expired       = "forget"
tombstone_ttl    = "7d"
quarantine_margin = "5s"
not_executed_statuses = [425, 429]
max_request      = "1MiB"
max_request_age  = "off"
timestamp_header = "Date"
max_stored_response = "1MiB"

[[operation]]
name  = "payments.create"
match = "POST /payments"
ttl   = "7d"
business_reference = "/externalReference"
fingerprint_exclude = ["/clientTimestamp"]
aliases = ["POST /payments"]

[maintenance]
sweep_interval = "5s"
reap_interval  = "60s"
reap_batch     = 1000
"#;

#[test]
fn empty_sources_give_the_default_settings() {
    let Loaded { config, warnings, rows, file } = loaded(&Sources::new());
    assert_eq!(file, None);
    assert_eq!(config, Config::default());
    assert!(warnings.is_empty());
    assert!(rows.iter().all(|row| row.source == "default"));
    let with_default = settings().into_iter().filter(|info| info.default.is_some());
    let in_lists = ["operation", "operation.reconcile", "pass", "webhook"];
    assert_eq!(rows.len(), with_default.filter(|info| !in_lists.contains(&info.table)).count());
}

#[test]
fn the_example_of_the_contract_is_the_defaults_and_one_operation() {
    let mut config = config(CONTRACT);
    let operation = config.operations.pop().expect("there is one");
    assert_eq!(config, Config::default());
    assert_eq!(operation.name.as_str(), "payments.create");
    assert_eq!(operation.route.to_string(), "POST /payments");
    let policy = Policy { ttl: Duration::from_secs(7 * 24 * 60 * 60), ..Config::default().defaults };
    assert_eq!(operation.policy, policy);
    assert_eq!(
        operation.business_reference.map(|pointer| pointer.to_string()).as_deref(),
        Some("/externalReference")
    );
    assert_eq!(operation.exclude.iter().map(ToString::to_string).collect::<Vec<_>>(), ["/clientTimestamp"]);
    assert_eq!(operation.aliases.iter().map(ToString::to_string).collect::<Vec<_>>(), ["POST /payments"]);
}

#[test]
fn settings_of_tokens_and_authorization_are_loaded() {
    let Loaded { config, rows, .. } = loaded(&file(
        r#"
        defaults.authorize_url = "https://authz.internal/check?a=b"
        defaults.authorize_timeout = "1s"
        [identity]
        source = "jwt"
        jwks = "keys.json"
        issuer = "https://issuer.example"
        audience = "payments"
        algorithms = ["HS256"]
        tenant_claim = "/organization/id"
        caller_claim = "https://issuer.example/caller"
        leeway = "0s"
        jwks_refresh = "1h"
        max_token = "4KiB"
        [[operation]]
        name = "a"
        match = "POST /a"
        authorize_url = "off"
        [[operation]]
        name = "b"
        match = "POST /b"
        authorize_cache = "5s"
        "#,
    ));
    let seconds = Duration::from_secs;
    let jwt = JwtSettings {
        keys: KeySource::File("keys.json".into()),
        issuer: "https://issuer.example".into(),
        audience: "payments".into(),
        algorithms: vec![SigningAlgorithm::Hs256],
        tenant: JwtClaim::new("/organization/id"),
        caller: JwtClaim::new("https://issuer.example/caller"),
        leeway: seconds(0),
        refresh: seconds(3600),
        max_token: 4096,
        tls: ServiceTls::default(),
    };
    assert_eq!(config.identity, PrincipalSource::Jwt(Box::new(jwt)));
    let url = config.authorization.url.clone();
    assert_eq!(url.as_ref().map(ToString::to_string).as_deref(), Some("https://authz.internal/check?a=b"));
    let defaults = Authorization { url, timeout: seconds(1), cache: seconds(0), tls: ServiceTls::default() };
    assert_eq!(config.authorization, defaults);
    assert_eq!(config.operations[0].authorization, Authorization { url: None, ..defaults.clone() });
    assert_eq!(config.operations[1].authorization, Authorization { cache: seconds(5), ..defaults });
    for shown in [
        "identity.jwks = \"keys.json\"  # semel.toml:6",
        "identity.tenant_claim = \"/organization/id\"  # semel.toml:10",
        "defaults.authorize_url = \"https://authz.internal/check?a=***\"  # semel.toml:2",
        "operation.a.authorize_url = \"off\"  # semel.toml:18",
        "operation.b.authorize_cache = \"5s\"  # semel.toml:22",
    ] {
        assert!(rows.iter().any(|row| row.to_string() == shown), "{shown}");
    }
}

#[test]
fn settings_of_tls_are_loaded() {
    let Loaded { config, rows, warnings, .. } = loaded(&file(
        r#"
        upstream = "https://api.internal"
        upstream_protocol = "h2"
        [identity]
        source = "client-certificate"
        fixed_tenant = "acme"
        caller_field = "san.uri"
        [tls]
        certificate = "a.crt"
        key = "a.key"
        client_ca = "clients.crt"
        client_crl = "clients.crl"
        [admin_tls]
        certificate = "b.crt"
        key = "b.key"
        [upstream_tls]
        ca = "ca.crt"
        certificate = "c.crt"
        key = "c.key"
        "#,
    ));
    let own = |name: &str| CertifiedKey {
        certificate: format!("{name}.crt").into(),
        key: format!("{name}.key").into(),
    };
    let (client_ca, client_crl) = (Some("clients.crt".into()), Some("clients.crl".into()));
    assert_eq!(config.tls, Some(ListenerTls { own: own("a"), client_ca, client_crl }));
    assert_eq!(config.admin_tls, Some(ListenerTls { own: own("b"), client_ca: None, client_crl: None }));
    assert_eq!(config.upstream_tls, UpstreamTls { ca: Some("ca.crt".into()), own: Some(own("c")) });
    assert_eq!(config.upstream_protocol, UpstreamProtocol::H2);
    let identity =
        ClientCertificates { tenant: CertificateTenant::Fixed("acme".into()), caller: CertificateField::Uri };
    assert_eq!(config.identity, PrincipalSource::ClientCertificate(identity));
    assert!(warnings.is_empty(), "{warnings:?}");
    let shown = "tls.client_ca = \"clients.crt\"  # semel.toml:11";
    assert!(rows.iter().any(|row| row.to_string() == shown));
}

#[test]
fn every_setting_of_the_file_arrives() {
    let config = config(
        r#"
        listen = "[::1]:80"
        admin_listen = "127.0.0.1:0"
        upstream = "http://api.internal"
        store = "sqlite:/var/lib/semel/records.db"
        log_format = "json"
        drain = "0s"
        server = { max_connections = 5, head_timeout = "1s", body_timeout = "2s", idle_timeout = "3s", max_head = 8192 }
        maintenance = { sweep_interval = "1s", reap_interval = "2m", reap_batch = 7 }
        defaults.key = "optional"
        defaults.key_syntax = "strict"
        defaults.key_min_length = 0x08
        defaults.key_max_length = "64"
        defaults.profile = "stripe"
        defaults.on_expired = "refuse"
        defaults.not_executed_statuses = ["503", 409]
        defaults.max_request_age = "5m"
        defaults.timestamp_header = "X-Sent-At"
        defaults.max_request = "10MB"
        [identity]
        source = "trusted-headers"
        trusted_proxies = ["127.0.0.1", "10.0.0.0/8"]
        tenant_header = "X-Tenant"
        caller_header = "X-Caller"
        "#,
    );
    assert_eq!(config.listen.to_string(), "[::1]:80");
    assert_eq!(config.admin_listen.port(), 0);
    assert_eq!(config.upstream.authority().map(ToString::to_string).as_deref(), Some("api.internal"));
    assert_eq!(config.store, StoreLocation::Sqlite("/var/lib/semel/records.db".into()));
    assert_eq!((config.log_format, config.drain), (LogFormat::Json, Duration::ZERO));
    let seconds = Duration::from_secs;
    let (head_timeout, body_timeout, idle_timeout) = (seconds(1), seconds(2), seconds(3));
    let tunnels = Server::default().tunnels;
    let server =
        Server { max_connections: 5, head_timeout, body_timeout, idle_timeout, max_head: 8192, tunnels };
    assert_eq!(config.server, server);
    let (sweep_interval, reap_interval) = (seconds(1), seconds(120));
    assert_eq!(config.maintenance, MaintenanceSettings { sweep_interval, reap_interval, reap_batch: 7 });
    let policy = &config.defaults;
    assert_eq!((policy.key, policy.profile), (KeyRequirement::Optional, Profile::Stripe));
    assert_eq!(policy.key_rules.syntax, KeySyntax::Strict);
    assert_eq!((policy.key_rules.min_length, policy.key_rules.max_length), (8, 64));
    assert_eq!((policy.on_expired, policy.max_request), (OnExpired::Refuse, 10_000_000));
    assert_eq!(
        policy.not_executed_statuses,
        [503, 409].map(|code| http::StatusCode::from_u16(code).unwrap())
    );
    assert_eq!(policy.max_request_age, Some(seconds(300)));
    assert_eq!(policy.timestamp_header, "x-sent-at");
    let PrincipalSource::TrustedHeaders { proxies, tenant_header, caller_header } = config.identity else {
        panic!("the identity comes from headers");
    };
    assert!(proxies.iter().any(|range| range.contains([10, 1, 2, 3].into())));
    assert_eq!((tenant_header.as_str(), caller_header.as_str()), ("x-tenant", "x-caller"));
}

#[test]
fn later_sources_win_over_earlier_ones() {
    let seconds = |sources: &Sources| loaded(sources).config.defaults.lease.as_secs();
    let text = "defaults.lease = \"2s\"";
    assert_eq!(seconds(&Sources::new()), 30);
    assert_eq!(seconds(&file(text)), 2);
    assert_eq!(seconds(&file(text).variable("SEMEL_LEASE", "3s")), 3);
    assert_eq!(seconds(&file(text).variable("SEMEL_LEASE", "3s").flag("--lease", "4s")), 4);
    assert_eq!(seconds(&file(text).flag("lease", "4s")), 4);
}

#[test]
fn every_global_setting_has_a_variable_and_a_flag_that_take_its_default() {
    for info in settings().into_iter().filter(SettingInfo::is_global) {
        let default = info.default.clone().expect("a global setting has a default");
        let plain = default.trim_matches(['"', '[', ']']).to_owned();
        let (variable, flag) = (info.variable().expect("it is global"), info.flag().expect("it is global"));
        let sources = Sources::new().variable(&variable, &plain).flag(&flag, &plain);
        let Loaded { config, rows, .. } = loaded(&sources);
        assert_eq!(config, Config::default(), "{variable}={plain}");
        let row = rows.iter().find(|row| row.source != "default").expect("one is set");
        assert_eq!((&row.value, &row.source), (&default, &format!("--{flag}")));
    }
}

#[test]
fn no_two_settings_share_a_flag() {
    let mut flags: Vec<_> = settings().iter().filter_map(SettingInfo::flag).collect();
    let count = flags.len();
    flags.sort();
    flags.dedup();
    assert_eq!(flags.len(), count);
    assert!(!flags.contains(&"config".to_owned()), "it names the file");
}

#[test]
fn lists_are_written_with_commas_outside_the_file() {
    let statuses = |text: &str| {
        let sources = Sources::new().variable("SEMEL_NOT_EXECUTED_STATUSES", text);
        let statuses = loaded(&sources).config.defaults.not_executed_statuses;
        statuses.iter().map(http::StatusCode::as_u16).collect::<Vec<_>>()
    };
    assert_eq!(statuses("503, 425"), [503, 425]);
    assert!(statuses("").is_empty());
}

#[test]
fn an_operation_builds_on_the_effective_defaults() {
    let text = "[[operation]]\nname = \"a\"\nmatch = \"POST /a\"\nttl = \"2h\"";
    let sources = file(text).flag("ttl", "3h").flag("lease", "9s");
    let policy = loaded(&sources).config.operations.remove(0).policy;
    assert_eq!(policy.ttl, Duration::from_secs(2 * 60 * 60), "its own setting stays");
    assert_eq!(policy.lease, Duration::from_secs(9), "the flag changed the defaults");
}

#[test]
fn every_value_knows_where_it_came_from() {
    let text =
        "listen = \"127.0.0.1:1\"\n[[operation]]\nname = \"a.b\"\nmatch = \"POST /a\"\nttl = \"120m\"\n";
    let sources = file(text).variable("SEMEL_WAIT", "0s").flag("max-request", "1024");
    let rows = loaded(&sources).rows;
    let set: Vec<_> = rows.iter().filter(|row| row.source != "default").map(ToString::to_string).collect();
    assert_eq!(
        set,
        [
            "listen = \"127.0.0.1:1\"  # semel.toml:1",
            "defaults.wait = \"0s\"  # SEMEL_WAIT",
            "defaults.max_request = \"1KiB\"  # --max-request",
            "operation.a.b.name = \"a.b\"  # semel.toml:3",
            "operation.a.b.match = \"POST /a\"  # semel.toml:4",
            "operation.a.b.ttl = \"2h\"  # semel.toml:5",
        ]
    );
    assert!(rows.contains(&EffectiveSetting {
        name: "defaults.ttl".into(),
        value: "\"24h\"".into(),
        source: "default".into()
    }));
}

#[test]
fn encryption_keys_are_named_by_id_and_source_without_their_secret() {
    let text = r#"
[encryption]
current = "2026-11"

[[encryption.key]]
id = "2026-11"
file = "/etc/semel/2026-11.key"

[[encryption.key]]
id = "2026-05"
env = "SEMEL_STORE_KEY"

[[encryption.key]]
id = "2025"
command = ["pass", "show", "semel/2025"]
"#;
    let sources = file(text).variable("SEMEL_STORE_KEY", "secret");
    let loaded = loaded(&sources);
    let encryption = loaded.config.encryption.as_ref().expect("it is configured");
    assert_eq!(encryption.current, "2026-11");
    let settings: Vec<String> = encryption.keys.iter().map(EncryptionKey::setting).collect();
    assert_eq!(
        settings,
        ["encryption.key.2026-11.file", "encryption.key.2026-05.env", "encryption.key.2025.command"]
    );
    assert!(loaded.warnings.is_empty(), "the variable is a key's, and none of ours: {:?}", loaded.warnings);
    let shown: Vec<String> = loaded.rows.iter().map(ToString::to_string).collect();
    assert!(shown.contains(&r#"encryption.key.2025.command = ["pass", "…"]  # semel.toml:15"#.to_owned()));
    assert!(!shown.join("\n").contains("secret"));
    assert_eq!(config("[encryption]\n").encryption, None);
}

#[test]
fn a_ledger_is_compared_if_another_is_named() {
    use semel_core::ledger::{Condition, Format};

    assert_eq!(config("[ledger]\ninterval = \"1h\"\ngrace = \"1h\"").ledger, None);
    let text = r#"
[ledger]
theirs = "http://provider.internal/charges?day=today"
their_reference = "/meta/key"
their_filter = ["status=captured", "live=true"]
strip_suffix = ":"
operation = "payments.create"
max_age = "20h"
authorization_env = "PROVIDER"
"#;
    let Loaded { config, rows, .. } = loaded(&file(text));
    let watch = config.ledger.expect("there is one");
    assert_eq!((watch.interval, watch.first_after), (Duration::from_secs(86_400), Duration::from_secs(60)));
    let comparison = watch.comparison;
    assert_eq!(comparison.ours.source, LedgerSource::Store { operation: Some("payments.create".to_owned()) });
    assert_eq!(
        (comparison.grace, comparison.max_age),
        (Duration::from_secs(900), Some(Duration::from_secs(72_000)))
    );
    let condition = |name: &str, value: &str| Condition { name: name.to_owned(), value: value.to_owned() };
    assert_eq!(
        comparison.theirs.columns.filter,
        [condition("status", "captured"), condition("live", "true")]
    );
    let LedgerSource::Url(url) = comparison.theirs.source else { panic!("it is an address") };
    assert_eq!((url.format, url.max_size), (None::<Format>, 256 << 20));
    let row = rows.iter().find(|row| row.name == "ledger.their_filter").expect("it is shown");
    assert_eq!(row.to_string(), "ledger.their_filter = [\"status=captured\", \"live=true\"]  # semel.toml:5");
}

#[test]
fn a_profile_brings_its_shortest_key_unless_a_setting_says_otherwise() {
    let lengths = |text: &str| {
        let config = config(text);
        let of = |policy: &Policy| policy.key_rules.min_length;
        (
            of(&config.defaults),
            config.operations.iter().map(|operation| of(&operation.policy)).collect::<Vec<_>>(),
        )
    };
    let operation = |name: &str, settings: &str| {
        format!("[[operation]]\nname = \"{name}\"\nmatch = \"POST /{name}\"\n{settings}\n")
    };
    let (stripe, ietf) = ("profile = \"stripe\"", "profile = \"ietf\"");
    let both = operation("a", stripe) + &operation("b", ietf) + &operation("c", "");
    assert_eq!(lengths(&both), (16, vec![1, 16, 16]));
    assert_eq!(lengths(&format!("[defaults]\n{stripe}\n{both}")), (1, vec![1, 16, 1]));
    let set = format!("[defaults]\n{stripe}\nkey_min_length = 20\n{both}");
    assert_eq!(lengths(&set), (20, vec![20, 20, 20]), "what was written stands");
    let own = operation("a", &format!("{stripe}\nkey_min_length = 8"));
    assert_eq!(lengths(&own), (16, vec![8]));
}

#[test]
fn single_sign_on_arrives_with_its_people_and_is_shown() {
    let text = r#"
[admin.sso]
trusted_proxies = ["10.0.0.1"]
user_header = "X-Forwarded-User"
groups_header = "X-Forwarded-Groups"
operators = ["alice@example.com", "group:oncall"]
viewers = ["*"]
"#;
    let Loaded { config, rows, .. } = loaded(&file(text));
    let sso = config.admin_sso.expect("it is configured");
    assert_eq!((sso.user_header.as_str(), sso.proxies.len()), ("x-forwarded-user", 1));
    let (user, group) = ("alice@example.com".to_owned(), "oncall".to_owned());
    assert_eq!(sso.operators, [SsoMember::User(user), SsoMember::Group(group)]);
    assert_eq!(sso.viewers, [SsoMember::Everybody]);
    let shown: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let row = "admin.sso.operators = [\"alice@example.com\", \"group:oncall\"]  # semel.toml:6";
    assert!(shown.iter().any(|shown| shown == row), "{shown:#?}");
    assert_eq!(Config::default().admin_sso, None);
}
