//! `semel fingerprint`: explains the differences of two requests.

use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::commands::{run, text};
use crate::gateway::lab::semel;

/// Folder with two bodies, and the commands about them.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new(payment: &str, retry: &str) -> Desk {
        let folder = TempDir::new().expect("there is room");
        for (name, body) in [("payment.json", payment), ("retry.json", retry)] {
            std::fs::write(folder.path().join(name), body).expect("there is room");
        }
        Desk { folder }
    }

    fn ask(&self, more: &[&str]) -> Output {
        let fixed =
            ["fingerprint", "--path", "/payments", "--content-type", "application/json", "payment.json"];
        run(self.folder.path(), &[&fixed[..], more].concat())
    }

    fn compare(&self, more: &[&str]) -> (Option<i32>, String) {
        let output = self.ask(&[&["--against", "retry.json"][..], more].concat());
        (output.status.code(), text(&output.stdout))
    }
}

#[test]
fn every_hashed_field_is_explained() {
    let desk = Desk::new(r#"{ "amount": 1.0, "sentAt": 5 }"#, "");
    let output = desk.ask(&["--explain", "--exclude", "/sentAt", "--exclude", "/sendAt"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for line in [
        "method            POST",
        "path              /payments",
        "query             (none)",
        "content type      application/json",
        "content encoding  (none)",
        "body              canonical JSON, 12 bytes of 30 as sent",
        "                  {\"amount\":1}",
        "excluded          /sentAt: left out",
        "excluded          /sendAt: nothing to leave out: the body has no such member",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\n{said}");
    }
    let fingerprint = text(&desk.ask(&["--exclude", "/sentAt"]).stdout);
    assert!(said.contains(fingerprint.trim()), "it is the fingerprint of the same command: {said}");
    let document: Value =
        serde_json::from_slice(&desk.ask(&["--explain", "--json"]).stdout).expect("it is JSON");
    assert_eq!(
        (&document["body"]["form"], &document["path"]),
        (&"canonical-json".into(), &"/payments".into())
    );
    let raw = text(&desk.ask(&["--explain", "--content-encoding", "gzip"]).stdout);
    assert!(raw.contains("30 bytes as sent, since a content encoding"), "{raw}");
}

#[test]
fn differences_of_two_requests_are_named_by_pointer() {
    let desk = Desk::new(
        r#"{"amount":1,"to":{"name":"a","old":true},"sentAt":1}"#,
        r#"{"sentAt":2,"to":{"name":"b"},"new":[],"amount":1.0}"#,
    );
    let (code, said) = desk.compare(&["--exclude", "/sentAt"]);
    assert_eq!(code, Some(1));
    for difference in ["/new: [] was added", "/to/name: \"a\" became \"b\"", "/to/old: true was removed"] {
        assert!(said.contains(difference), "{difference}\n{said}");
    }
    assert!(!said.contains("/amount") && !said.contains("/sentAt"), "neither of these counts: {said}");
    let output = desk.ask(&["--against", "retry.json", "--against-path", "/payments?dry_run=1", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((output.status.code(), &document["same"]), (Some(1), &false.into()));
    let differences = document["differences"].as_array().expect("it is a list");
    let query = serde_json::json!({ "field": "query", "pointer": null, "old": null, "new": "dry_run=1" });
    let sent = serde_json::json!({ "field": "body", "pointer": "/sentAt", "old": "1", "new": "2" });
    assert!(differences.contains(&query) && differences.contains(&sent), "{differences:?}");
    assert_ne!(document["request"]["fingerprint"], document["against"]["fingerprint"]);
}

#[test]
fn bodies_that_differ_only_in_spelling_are_the_same_command() {
    let desk = Desk::new(
        r#"{"amount":1,"to":"ä","sentAt":1}"#,
        "{ \"to\": \"\\u00e4\",\n\"sentAt\":1, \"amount\": 1.0}",
    );
    let (code, said) = desk.compare(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the same command: v1:") && said.contains("spelled differently"), "{said}");
    let excluded = Desk::new(r#"{"amount":1,"sentAt":1}"#, r#"{"amount":1,"sentAt":2}"#);
    assert_eq!(excluded.compare(&[]).0, Some(1));
    let (code, said) = excluded.compare(&["--exclude", "/sentAt", "--explain"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the bodies differ at /sentAt, which is excluded"), "{said}");
    let other_type = ["--against-content-type", "Application/JSON;charset=utf-8"];
    let (code, said) = desk.compare(&other_type);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the content types were sent as application/json and Application/JSON"), "{said}");
}

#[test]
fn one_body_may_come_from_the_standard_input() {
    use std::io::Write;
    let desk = Desk::new("{}", "{}");
    let both = run(desk.folder.path(), &["fingerprint", "--path", "/", "-", "--against", "-"]);
    assert_eq!(both.status.code(), Some(2));
    assert!(text(&both.stderr).contains("can be read once"), "{both:?}");
    let mut process = semel(desk.folder.path())
        .args(["fingerprint", "--path", "/", "payment.json", "--against", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program runs");
    process.stdin.take().expect("it is piped").write_all(b"{ }").expect("it reads");
    let output = process.wait_with_output().expect("it ends");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "without a content type, every byte counts: {said}");
    assert!(said.contains("differ from byte 2 on") && said.contains("reads as JSON"), "{said}");
}

#[test]
fn flags_of_a_second_request_need_one() {
    let desk = Desk::new("{}", "{}");
    let without = desk.ask(&["--against-path", "/other"]);
    assert_eq!(without.status.code(), Some(2));
    assert!(text(&without.stderr).contains("--against <FILE>"), "{without:?}");
    assert_eq!(desk.ask(&["--canonical", "--explain"]).status.code(), Some(2));
}
