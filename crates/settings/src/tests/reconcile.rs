//! Look-ups of unknown commands, and webhooks that send events about them.

use super::*;
use semel_core::reading::{NotFound, Scheme};

const PAGE: &str = include_str!("../../../../docs/src/how-to/reconcile.md");

/// Returns the whole example of the page.
fn example() -> &'static str {
    let (_, rest) = PAGE.split_once("```toml\n").expect("the page has an example");
    rest.split_once("```").expect("the example has an end").0
}

#[test]
fn the_example_of_the_page_is_read_as_it_says() {
    let loaded = loaded(&file(example()));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let config = &loaded.config;
    let asked = config.operations[0].reconcile.as_ref().expect("it asks");
    assert_eq!(asked.url.as_str(), "https://provider.internal/charges?reference={operation_id}");
    assert_eq!(asked.reading.not_found, NotFound::NotExecuted);
    assert!(asked.reading.deduplicates);
    assert_eq!(asked.reading.max_response, config.defaults.max_stored_response);
    let webhook = &config.webhooks[0];
    assert_eq!((webhook.name.as_str(), &webhook.scheme), ("provider", &Scheme::Semel));
    assert_eq!(webhook.secret_env[0].as_str(), "PROVIDER_WEBHOOK_SECRET");
    assert_eq!(config.reconcile, Config::default().reconcile, "the page shows the defaults");
    let shown: Vec<String> = loaded.rows.iter().map(ToString::to_string).collect();
    for row in [
        "operation.payments.create.reconcile.deduplicates = true  # semel.toml:17",
        "operation.payments.create.reconcile.executed = [\"captured\"]  # semel.toml:13",
        "operation.payments.create.reconcile.timeout = \"5s\"  # semel.toml:20",
        "webhook.provider.secret_env = \"PROVIDER_WEBHOOK_SECRET\"  # semel.toml:24",
        "webhook.provider.unknown_operation = \"refuse\"  # default",
        "reconcile.retention = \"30d\"  # semel.toml:42",
        "reconcile.concurrency = 8  # default",
    ] {
        assert!(shown.iter().any(|shown| shown == row), "{row} is not in {shown:#?}");
    }
}

#[test]
fn every_default_of_the_page_is_the_default() {
    let infos = settings();
    let default = |table: &str, name: &str| {
        let info = infos.iter().find(|info| info.table == table && info.name == name);
        info.expect("there is such a setting").default.clone()
    };
    for (name, value) in [
        ("not_found", "\"unknown\""),
        ("gone", "\"no-answer\""),
        ("deduplicates", "false"),
        ("response_status", "200"),
        ("failed_status", "422"),
        ("timeout", "\"5s\""),
    ] {
        assert_eq!(default("operation.reconcile", name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn several_secrets_and_other_schemes_are_read() {
    let text = example()
        .replace("\"PROVIDER_WEBHOOK_SECRET\"", "[\"NEW_SECRET\", \"OLD_SECRET\"]")
        .replace("scheme = \"semel\"", "scheme = \"body\"\nsignature_header = \"X-Signature\"")
        .replace("failed = [\"charge.declined\"]", "not_executed = [\"gone\"]\nproof = \"tombstone\"");
    let loaded = loaded(&file(&text));
    let webhook = &loaded.config.webhooks[0];
    assert_eq!(webhook.secret_env.len(), 2);
    assert!(matches!(&webhook.scheme, Scheme::Body(header) if header == "x-signature"));
    assert!(webhook.reading.not_executed.is_some());
    let shown: Vec<String> = loaded.rows.iter().map(|row| format!("{} = {}", row.name, row.value)).collect();
    for row in [
        "webhook.provider.secret_env = [\"NEW_SECRET\", \"OLD_SECRET\"]",
        "webhook.provider.signature_header = \"X-Signature\"",
        "webhook.provider.proof = \"tombstone\"",
    ] {
        assert!(shown.iter().any(|shown| shown == row), "{row} is not in {shown:#?}");
    }
}

#[test]
fn provider_response_is_kept_only_where_bodies_are_kept() {
    let named = "name = \"payments.create\"\n";
    assert!(example().contains(named));
    for stored in ["headers", "reference"] {
        let text = example().replacen(named, &format!("{named}store_response = \"{stored}\"\n"), 1);
        let loaded = loaded(&file(&text));
        let asked = loaded.config.operations[0].reconcile.as_ref().expect("it asks");
        assert_eq!(asked.reading.max_response, 0, "{stored}");
    }
}

/// Returns the first message about the example with one change.
fn said(from: &str, to: &str) -> String {
    assert!(example().contains(from), "{from}");
    refused(&file(&example().replacen(from, to, 1))).lines().next().expect("it says something").to_owned()
}

#[test]
fn invalid_reconcile_settings_are_refused_with_their_place() {
    for (from, to, message) in [
        ("https://provider", "ftp://provider", "it does not begin with http:// or https://"),
        (
            "authorization_env =",
            "key = \"a.key\"\nauthorization_env =",
            "also needs `certificate`: the file with the certificate that it belongs to",
        ),
        ("{operation_id}", "{id}", "only {operation_id}, {tenant} and {caller} can stand in it"),
        ("?reference={operation_id}", "", "{operation_id} is missing"),
        (
            "\"PROVIDER_TOKEN\"",
            "\"Bearer s3cr3t\"",
            "write the name of the variable, never the secret itself",
        ),
        ("deduplicates = true", "deduplicates = \"yes\"", "expected true or false, found \"yes\""),
        ("status = \"/status\"", "", "goes with `status` only, the JSON Pointer to the status in the answer"),
        (
            "reference = \"/reference\"           # JSON Pointer to the operation id in that object",
            "gone = \"tombstone\"",
            "needs `reference`: a tombstone names its command",
        ),
        ("not_found =", "gone = \"tombston\"\nnot_found =", "did you mean \"tombstone\"?"),
        ("executed = [\"captured\"]", "", "needs `executed`: the status words"),
        (
            "[\"processing\"]",
            "[\"declined\"]",
            "\"declined\" is listed twice, also in `failed`: a word has one meaning, so list it once",
        ),
        (
            "response_status = 201",
            "response_status = 404",
            "expected an HTTP status from 200 to 399, found 404",
        ),
        ("failed_status = 402", "failed_status = 200", "expected an HTTP status from 400 to 599, found 200"),
        ("\"not-executed\"", "\"not-execute\"", "did you mean \"not-executed\"?"),
        (
            "url = \"https://provider.internal/charges?reference={operation_id}\"",
            "",
            "missing: the address of the provider's look-up",
        ),
        ("[operation.reconcile]", "[operation.reconsile]", "unknown table; did you mean `reconcile`?"),
        ("name = \"provider\"", "name = \"a/b\"", "expected a name of 1 to 64 letters"),
        ("secret_env = \"PROVIDER_WEBHOOK_SECRET\"", "", "missing: every webhook needs it"),
        ("secret_env = \"PROVIDER_WEBHOOK_SECRET\"", "secret_env = []", "every event would be refused"),
        (
            "operations = [\"payments.create\"]",
            "operations = [\"payments\"]",
            "there is no `[[operation]]` of the name `payments`",
        ),
        ("scheme = \"semel\"", "scheme = \"stipe\"", "did you mean \"stripe\"?"),
        ("tolerance = \"5m\"", "signature_header = \"X-S\"", "goes with `scheme = \"body\"` only"),
        (
            "tolerance = \"5m\"",
            "not_executed = [\"gone\"]",
            "set `proof`, the reason why no call can take effect any more",
        ),
        ("tolerance = \"5m\"", "proof = \"tombstone\"", "goes with `not_executed` only"),
        (
            "[\"charge.declined\"]",
            "[\"charge.captured\"]",
            "is listed twice, also in `executed`: a word has one meaning",
        ),
        ("[[webhook]]", "[webhook]", "expected a list of tables: write `[[webhook]]`, in double brackets"),
        ("max_attempts = 20", "max_attempts = 0", "expected an integer from 1 to 10000, found 0"),
    ] {
        let said = said(from, to);
        assert!(said.contains(message), "{to}: {said}");
        assert!(said.starts_with("semel.toml:"), "{said}");
        assert!(!said.contains("s3cr3t") || to.contains("s3cr3t"), "{said}");
    }
    let stripe = example().replace("\"semel\"", "\"stripe\"").replace("event_id = \"/id\"", "");
    assert!(refused(&file(&stripe)).contains("without it, a repeated event cannot be recognised"));
    let webhook = &example()[example().find("[[webhook]]").expect("it has one")..];
    let webhook = &webhook[..webhook.find("[reconcile]").expect("it has an end")];
    let twice = format!("{}{webhook}", example());
    assert!(refused(&file(&twice)).contains("another webhook has this name already"));
    // Two secrets are bound to one operation: the commands of each must be configured.
    let other = webhook.replace("\"provider\"", "\"other\"");
    let said = refused(&file(&format!("{}{other}", example())));
    assert!(said.contains("name the tenants whose commands each webhook may settle"), "{said}");
    let bound =
        |text: &str, tenant: &str| text.replace("scheme =", &format!("tenants = [\"{tenant}\"]\nscheme ="));
    let both = loaded(&file(&format!("{}{}", bound(example(), "acme"), bound(&other, "umbrella"))));
    let tenants: Vec<_> = both.config.webhooks.iter().map(|webhook| webhook.tenants.clone()).collect();
    assert_eq!(tenants, [Some(vec!["acme".to_owned()]), Some(vec!["umbrella".to_owned()])]);
}

#[test]
fn weaker_reconcile_settings_are_warned_of() {
    let warned = |text: &str| {
        let warnings: Vec<String> = loaded(&file(text)).warnings.iter().map(ToString::to_string).collect();
        warnings.join("\n")
    };
    let late = warned(&example().replace("deduplicates = true", ""));
    assert!(
        late.contains("a provider that shows commands late, or a wrong address, gives the same answer"),
        "{late}"
    );
    let blind = warned(&example().replace("reference = \"/reference\"", ""));
    assert!(blind.contains("set `reference`, the JSON Pointer to the operation id"), "{blind}");
    let by_path = example()
        .replace("reference = \"/reference\"", "")
        .replace("?reference={operation_id}", "/{operation_id}");
    assert_eq!(warned(&by_path), "");
    let untimed = warned(&example().replace("\"semel\"", "\"body\""));
    assert!(untimed.contains("its signatures carry no time"), "{untimed}");
}

#[test]
fn an_operation_that_is_called_like_the_look_up_of_another_is_not_taken_for_it() {
    let text = "[[operation]]\nname = \"a\"\nmatch = \"POST /a\"\n\
        [operation.reconcile]\nurl = \"http://127.0.0.1:1/{operation_id}\"\nreference = \"/reference\"\n\
        status = \"/status\"\nexecuted = [\"done\"]\ntimeout = \"7s\"\n\
        [[operation]]\nname = \"a.reconcile\"\nmatch = \"POST /b\"\nttl = \"2h\"\n\
        [[operation]]\nname = \"POST /c \\\"d\\\"\"\nmatch = \"POST /c\"\nttl = \"3h\"\n";
    let rows = loaded(&file(text)).rows;
    let shown: Vec<String> = rows.iter().map(ToString::to_string).collect();
    for row in [
        "operation.a.reconcile.timeout = \"7s\"  # semel.toml:9",
        "operation.\"a.reconcile\".match = \"POST /b\"  # semel.toml:12",
        "operation.\"a.reconcile\".ttl = \"2h\"  # semel.toml:13",
        "operation.\"POST /c \\\"d\\\"\".ttl = \"3h\"  # semel.toml:17",
    ] {
        assert!(shown.iter().any(|shown| shown == row), "{row} is not in {shown:#?}");
    }
    let own = |row: &&String| row.contains("a.reconcile") && row.contains("timeout");
    let timeouts: Vec<_> = shown.iter().filter(own).collect();
    assert_eq!(timeouts.len(), 1, "the other operation has set none: {timeouts:?}");
}
