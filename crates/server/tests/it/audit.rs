//! `semel audit`: its findings in third-party documents, and its exit codes.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gateway::lab::semel;
use crate::third_party::python;

const BANK: &str = include_str!("audit/bank.yaml");
const PAGE: &str = include_str!("../../../../docs/src/how-to/audit.md");

/// Audits this document, given as a file.
fn audit(document: impl AsRef<[u8]>, arguments: &[&str]) -> Output {
    let folder = TempDir::new().expect("there is room");
    std::fs::write(folder.path().join("openapi.yaml"), document).expect("there is room");
    run(folder.path(), &[&["audit", "openapi.yaml"], arguments].concat())
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    semel(folder).args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints text")
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Returns each endpoint of a report, with its key, the source of its expiry and the missing parts.
fn rows(report: &Value) -> Vec<String> {
    let endpoints = report["endpoints"].as_array().expect("it is a list").iter();
    let text = |value: &Value| value.as_str().map_or("-".to_owned(), str::to_owned);
    let row = |endpoint: &Value| {
        let missing: Vec<String> =
            endpoint["missing"].as_array().expect("it is a list").iter().map(text).collect();
        let names = ["method", "path", "operationId", "key"].map(|name| text(&endpoint[name]));
        format!("{} {} {}", names.join(" "), text(&endpoint["expiry"]["from"]), missing.join(","))
    };
    endpoints.map(row).map(|row| row.trim_end().to_owned()).collect()
}

#[test]
fn missing_declarations_of_a_bank_are_listed() {
    let output = audit(BANK, &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = report(&output);
    assert_eq!((&report["ok"], &report["openapi"]), (&json!(false), &json!("3.1.0")));
    assert_eq!(
        rows(&report),
        [
            "POST /transfers createTransfer required header",
            "POST /transfers/{id}/cancel cancelTransfer required header",
            "POST /standing-orders createStandingOrder optional description",
            "PATCH /standing-orders/{id} changeStandingOrder missing - key,409,422,expiry",
            "DELETE /standing-orders/{id} endStandingOrder required header 400,409,422",
            "POST /cards/{id}/block blockCard required - 400,409,422,expiry",
            "POST /statements orderStatement missing - key,422,expiry",
            "POST /sessions logIn missing - key,400,409,422,expiry",
            "* /documents - missing - key,400,409,422,expiry",
        ]
    );
    assert_eq!(report["endpoints"][0]["answers"], json!({"400": true, "409": true, "422": true}));
    assert_eq!(report["endpoints"][2]["expiry"]["value"], "7 days");
    let line = BANK.lines().position(|line| line.contains("/cards/")).expect("it is there") + 2;
    assert_eq!(report["endpoints"][5]["line"], line);
    let notes = report["endpoints"][6]["notes"].to_string();
    assert!(notes.contains("cannot tell") && notes.contains("common.yaml"), "{notes}");
}

#[test]
fn people_get_a_table_and_a_sentence_for_each_thing() {
    let output = audit(BANK, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stdout);
    for line in [
        "METHOD  PATH                    LINE  KEY       400  409  422  EXPIRY",
        "POST    /transfers              20    required  yes  yes  yes  in each answer",
        "POST    /standing-orders        44    optional  yes  yes  yes  7 days",
        "POST    /statements             67    missing   yes  yes  -    -",
        "  key     no key was found, in a header or in the body: no client can know that it may retry",
        "  422     the answer to a key that was used with another request is not declared",
        "  note    the key is optional: a client that sends none cannot retry safely",
        "6 of 9 lack something: `semel audit --help` says how to declare it.",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    let alone = said.split("* /documents (line ").nth(1).expect("it is there");
    assert!(!alone.contains("no key was found"), "what cannot be seen is not judged: {alone}");
}

#[test]
fn endpoints_can_be_ignored_and_methods_added() {
    let ignore = |endpoints: &[&'static str]| {
        let flags = endpoints.iter().flat_map(|endpoint| ["--ignore", endpoint]);
        flags.chain(["--json"]).collect::<Vec<_>>()
    };
    let forgotten = [
        "PATCH /standing-orders/{id}",
        "DELETE /standing-orders/{id}",
        "POST /cards/{id}/block",
        "POST /statements",
        "post /sessions",
        "* /documents",
    ];
    let output = audit(BANK, &ignore(&forgotten));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = self::report(&output);
    assert_eq!((&report["ok"], rows(&report).len()), (&json!(true), 3));
    assert_eq!(report["ignored"].as_array().map(Vec::len), Some(6));
    assert_eq!(audit(BANK, &ignore(&forgotten[1..])).status.code(), Some(1));

    let more = audit(BANK, &["--all-methods", "--json"]);
    let rows = rows(&self::report(&more));
    let put = "PUT /standing-orders/{id} replaceStandingOrder missing - key,400,409,422,expiry";
    assert!(rows.len() == 10 && rows.contains(&put.to_owned()), "{rows:#?}");

    let wrong = audit(BANK, &["--ignore", "POST /session"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("the audit lists no such endpoint"), "{wrong:?}");
}

#[test]
fn searches_are_excluded_and_keys_have_other_names() {
    let shop = "swagger: '2.0'\npaths:\n  /orders/search: {post: {}}\n  /orders:\n    post:\n      parameters:\n\
                \x20       - {name: PayPal-Request-Id, in: header, required: true, type: string, description: Kept for 3 days.}\n\
                \x20     responses: {'201': {}, '400': {}, '409': {}, '422': {}}\n";
    let output = audit(shop, &["--exclude", "POST */search"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        text(&output.stdout).lines().last(),
        Some("The one endpoint declares everything. 1 ignored."),
        "{output:?}"
    );
    assert_eq!(audit(shop, &[]).status.code(), Some(1));
    assert_eq!(audit(shop, &["--exclude", "*/find"]).status.code(), Some(2));
}

#[test]
fn the_document_of_a_real_fastapi_service_is_understood() {
    let printed = python("fastapi_document.py").output().expect("Python runs");
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let output = audit(printed.stdout, &["--exclude", "POST */search", "--json"]);
    let report = report(&output);
    let rows = rows(&report);
    assert_eq!(
        rows.iter().map(|row| row.replace("__", "_")).collect::<Vec<_>>(),
        [
            "POST /orders create_order_orders_post missing - key,400,409,422,expiry",
            "POST /payments create_payment_payments_post required description",
            "POST /refunds create_refund_refunds_post required - 400,409,422,expiry",
        ],
        "the 422 that it adds to every operation does not count"
    );
    let places: Vec<&Value> =
        report["endpoints"].as_array().expect("a list").iter().map(|row| &row["keyIn"]).collect();
    assert_eq!(places, [&Value::Null, &json!("header"), &json!("body")]);
    assert_eq!(report["ignored"], json!(["POST /orders/search"]));
}

#[test]
fn the_example_of_the_page_passes() {
    let example = PAGE.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let example = example.expect("there is one");
    let output = audit(example, &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said.ends_with("The one endpoint declares everything.\n"), "{said}");
    // Each of its three sentences about the expiry suffices; without them it is missing.
    let without = |left_out: &[&str]| {
        let kept = example.lines().filter(|line| !left_out.iter().any(|word| line.contains(word)));
        let output = audit(kept.collect::<Vec<_>>().join("\n"), &["--json"]);
        report(&output)["endpoints"][0]["expiry"]["from"].clone()
    };
    assert_eq!(without(&[]), "extension");
    assert_eq!(without(&["x-idempotency-ttl"]), "header");
    assert_eq!(without(&["x-idempotency-ttl", "Idempotency-Expires"]), "description");
    assert_eq!(without(&["x-idempotency-ttl", "Idempotency-Expires", "24 hours"]), Value::Null);
    for status in ["400", "409", "422"] {
        let lacking = example.lines().filter(|line| !line.contains(&format!("'{status}'")));
        let output = audit(lacking.collect::<Vec<_>>().join("\n"), &["--json"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(report(&output)["endpoints"][0]["missing"], json!([status]));
    }
}

#[test]
fn the_table_on_the_audit_page_matches_the_printed_report() {
    let said = text(&audit(BANK, &[]).stdout);
    let shown = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    for line in shown.expect("there is one").lines().filter(|line| !line.is_empty() && *line != "  …") {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
}

#[test]
fn the_example_of_the_help_passes() {
    let folder = TempDir::new().expect("there is room");
    let help = text(&run(folder.path(), &["audit", "--help"]).stdout);
    let example = help.split("declares everything:\n").nth(1).and_then(|rest| rest.split("Examples:").next());
    let lines = example.expect("there is one").lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
    let document = format!("openapi: 3.1.0\n{}", lines.collect::<Vec<_>>().join("\n"));
    let output = audit(document, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn json_comes_through_the_standard_input() {
    let folder = TempDir::new().expect("there is room");
    let mut command = semel(folder.path());
    command.args(["audit", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    let document = json!({"openapi": "3.0.3", "paths": {"/a": {"patch": {"operationId": "\u{1f680}"}}}});
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(document.to_string().as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(rows(&report(&output)), ["PATCH /a \u{1f680} missing - key,400,409,422,expiry"]);
}

#[test]
fn a_document_without_commands_is_fine() {
    let output = audit("openapi: 3.2.0\npaths: {/a: {get: {}, query: {}, put: {}}}", &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "There is no endpoint that changes state.\n");
}

#[test]
fn unreadable_document_exits_with_2_and_names_its_place() {
    let mut large = b"openapi: 3.1.0\npaths: {}\n".to_vec();
    large.resize((16 << 20) + 1, b'#');
    let deep = format!("openapi: 3.1.0\nx: {}", "[".repeat(1 << 20));
    let circle = "openapi: 3.1.0\npaths:\n  /a: {$ref: '#/paths/~1a'}";
    for (document, why) in [
        (&b"swagger: '1.2'\npaths: {}"[..], "openapi.yaml: it is Swagger 1.2: only 2.0"),
        (b"info: {}", "openapi.yaml: it is not a description in OpenAPI: it has no member `openapi`"),
        (b"openapi: 3.1.0\ncomponents: {}", "openapi.yaml: it has no `paths`"),
        (b"openapi: 3.1.0\npaths:\n  - [", "openapi.yaml: line 3, column "),
        (b"openapi: 3.1.0\npaths:\n  /\xff: {}", "openapi.yaml: line 3: it is not UTF-8"),
        (&large, "openapi.yaml is larger than 16 MiB"),
        (deep.as_bytes(), "openapi.yaml: line 2"),
        (circle.as_bytes(), "openapi.yaml: line 3: the reference `#/paths/~1a` does not end"),
    ] {
        let output = audit(document, &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{why}: {said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{why}: {said}");
    }
    let folder = TempDir::new().expect("there is room");
    for arguments in [&["audit"][..], &["audit", "missing.yaml"], &["audit", "."]] {
        assert_eq!(run(folder.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
}
