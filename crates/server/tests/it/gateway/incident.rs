//! Tools for an incident: export, settlement of many records, the log level, and the support bundle.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use super::admin::refusal;
use super::encryption::keys;
use super::lab::{Gateway, Send, Site, Upstream, pay, problem};
use super::reconciling::json_of;

/// Id of a command that no store has.
const ABSENT: &str = "01a1df32-caa3-786d-a196-45c465f24292";
const REASON: [&str; 2] = ["--reason", "incident 42"];

fn numbered(number: usize) -> Send {
    pay("{}").set("idempotency-key", format!("a-key-of-its-own-{number:06}"))
}

/// Makes unknown records, and returns their ids.
async fn unknowns(gateway: &Gateway, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let reply = gateway.send(numbered(number).doing("status-200 outcome-unknown")).await;
        let id = reply.operation_id().unwrap_or_else(|| panic!("{reply:?}"));
        ids.push(id.to_owned());
    }
    ids
}

async fn lab_with(site: Site, count: usize) -> (Site, Arc<Upstream>, Gateway, Vec<String>) {
    let upstream = Upstream::start().await;
    let gateway = site.start(upstream.address, &[]);
    let ids = unknowns(&gateway, count).await;
    (site, upstream, gateway, ids)
}

fn run(site: &Site, arguments: &[&str]) -> Output {
    site.semel().args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns every record and every note in the store.
fn everything(site: &Site) -> (String, Vec<String>) {
    let export = run(site, &["records", "export"]);
    assert_eq!(export.status.code(), Some(0), "{export:?}");
    (text(&export.stdout), noted(site))
}

fn noted(site: &Site) -> Vec<String> {
    site.column("SELECT action || '|' || why FROM semel_audit ORDER BY at, id")
}

fn write(site: &Site, name: &str, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(site.folder.path().join(name), text).expect("there is room");
}

fn executed(id: &str) -> Value {
    json!({ "operationId": id, "verdict": "executed", "status": 201, "body": "{\"found\":1}", "reason": "charge 7" })
}

fn not_executed(id: &str) -> Value {
    json!({ "operationId": id, "verdict": "not-executed" })
}

fn settle(site: &Site, more: &[&str]) -> Output {
    run(site, &[&["records", "settle", "found.jsonl"][..], &REASON, more].concat())
}

#[tokio::test]
async fn a_file_with_a_bad_line_settles_nothing_and_the_line_is_named() {
    let (site, _upstream, _gateway, ids) = lab_with(Site::new(), 2).await;
    let before = everything(&site);
    let mut no_status = executed(ABSENT);
    no_status["status"] = Value::Null;
    write(&site, "found.jsonl", &[executed(&ids[0]), no_status, executed(&ids[1]), executed(&ids[0])]);
    for more in [&[][..], &["--dry-run"], &["--json"]] {
        let settled = settle(&site, more);
        let said = text(&settled.stderr);
        assert_eq!(settled.status.code(), Some(2), "{said}");
        assert!(said.contains("line 2: The verdict \"executed\" needs the `status`"), "{said}");
        assert!(said.contains(&format!("line 4: {} has a verdict already, at line 1", ids[0])), "{said}");
        assert!(said.contains("nothing was settled") && !said.contains("line 1:"), "{said}");
        assert!(settled.stdout.is_empty(), "{settled:?}");
    }
    assert_eq!(everything(&site), before);
}

#[tokio::test]
async fn a_dry_run_says_what_each_verdict_comes_to_and_changes_nothing() {
    let (site, _upstream, gateway, ids) = lab_with(Site::new(), 2).await;
    let before = everything(&site);
    let mut other = executed(&ids[0]);
    other["attempt"] = 2.into();
    write(&site, "other.jsonl", &[other]);
    write(&site, "found.jsonl", &[executed(&ids[0]), not_executed(&ids[1]), not_executed(ABSENT)]);
    let results = |dry: bool| {
        let mut arguments = [&["records", "settle", "found.jsonl"][..], &REASON].concat();
        arguments.extend(dry.then_some("--dry-run"));
        let (report, code) = json_of(&site, &arguments);
        assert_eq!(
            (code, &report["dryRun"], &report["settled"], &report["others"]),
            (1, &dry.into(), &1.into(), &2.into())
        );
        let words = report["results"].as_array().into_iter().flatten();
        let words: Vec<_> =
            words.map(|result| result["result"].as_str().unwrap_or_default().to_owned()).collect();
        let why = report["results"][1]["why"].as_str().unwrap_or_default().to_owned();
        assert!(why.contains("could still be in flight until"), "{report}");
        assert_eq!(report["results"][0]["state"], "succeeded", "{report}");
        words
    };
    assert_eq!(results(true), ["would_settle", "refused", "absent"]);
    let attempt = run(&site, &[&["records", "settle", "other.jsonl", "--dry-run"][..], &REASON].concat());
    assert!(text(&attempt.stdout).contains("is at attempt 1"), "{attempt:?}");
    assert_eq!(everything(&site), before, "a dry run changes nothing");

    assert_eq!(results(false), ["settled", "refused", "absent"]);
    let replay = gateway.send(numbered(0)).await;
    assert!(replay.replayed() && &replay.body[..] == b"{\"found\":1}", "{replay:?}");
    assert_eq!(noted(&site), ["resolve executed|incident 42: charge 7"]);
    assert_eq!(results_of_another_run(&site), ["already_settled", "refused", "absent"]);
    assert_eq!(noted(&site).len(), 1, "it is not settled twice");
}

/// Returns the results of one more run of the file, of which the first verdict was given before.
fn results_of_another_run(site: &Site) -> Vec<String> {
    let (report, code) = json_of(site, &[&["records", "settle", "found.jsonl"][..], &REASON].concat());
    let counts = (&report["settled"], &report["alreadySettled"], &report["others"]);
    assert_eq!((code, counts), (1, (&0.into(), &1.into(), &2.into())), "{report}");
    let words = report["results"].as_array().into_iter().flatten();
    words.map(|result| result["result"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn run_the_same_file_again(site: Site) {
    let (site, _upstream, gateway, ids) = lab_with(site, 4).await;
    let mut declined = executed(&ids[3]);
    declined["status"] = 402.into();
    // Its quarantine is over.
    site.column("UPDATE semel_records SET quarantine_until = 1000 RETURNING state");
    write(&site, "found.jsonl", &[executed(&ids[0]), executed(&ids[1]), not_executed(&ids[2]), declined]);
    let first = settle(&site, &[]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    assert!(text(&first.stderr).contains("4 of 4 settled, 0 already settled so, 0 not"), "{first:?}");
    let before = everything(&site);
    for (more, told) in [
        (&[][..], "0 of 4 settled, 4 already settled so, 0 not"),
        (&["--dry-run"], "0 of 4 would be settled, 4 already settled so, 0 not; nothing was changed"),
    ] {
        let again = settle(&site, more);
        assert_eq!(again.status.code(), Some(0), "what is settled so is no failure: {again:?}");
        assert!(text(&again.stderr).contains(told), "{again:?}");
        let lines = text(&again.stdout);
        assert_eq!(lines.matches("already settled").count(), 4, "{lines}");
        assert!(lines.contains("succeeded, by the same verdict"), "{lines}");
        assert!(lines.contains("failed_retryable, by the same verdict"), "{lines}");
        assert!(lines.contains("failed_final, by the same verdict"), "{lines}");
    }
    let verdicts = json!([executed(&ids[0]), not_executed(&ids[2])]);
    for is_dry in [true, false] {
        let members = json!({ "reason": "incident 42", "verdicts": verdicts, "dryRun": is_dry });
        let ask = gateway.ask("POST", "/admin/v1/records/settle").body(members.to_string());
        let report = ask.to(gateway.admin).await.json();
        assert_eq!((&report["alreadySettled"], &report["others"]), (&2.into(), &0.into()), "{report}");
        assert_eq!(report["results"][0]["result"], "already_settled", "{report}");
    }
    gateway.logs("\"result\":\"done\"").await;

    // Another verdict: the other word, another response, another attempt.
    let mut response = executed(&ids[1]);
    response["body"] = "{\"found\":2}".into();
    let mut attempt = not_executed(&ids[2]);
    attempt["attempt"] = 2.into();
    write(&site, "found.jsonl", &[not_executed(&ids[0]), response, attempt]);
    for more in [&["--json"][..], &["--json", "--dry-run"]] {
        let other = settle(&site, more);
        let report: Value = serde_json::from_slice(&other.stdout).unwrap_or_else(|_| panic!("{other:?}"));
        assert_eq!((other.status.code(), &report["others"]), (Some(1), &3.into()), "{report}");
        let results = report["results"].as_array().into_iter().flatten();
        let words: Vec<&str> = results.filter_map(|result| result["result"].as_str()).collect();
        assert_eq!(words, ["refused"; 3], "{report}");
    }
    assert_eq!(everything(&site), before);
    // A retry runs the freed command: the verdict about its first attempt is not that of the second.
    assert_eq!(gateway.send(numbered(2)).await.status, 201);
    write(&site, "found.jsonl", &[not_executed(&ids[2])]);
    assert_eq!(settle(&site, &[]).status.code(), Some(1));
}

#[tokio::test]
async fn a_record_that_the_same_verdict_settled_before_is_no_failure() {
    run_the_same_file_again(Site::new()).await;
}

#[tokio::test]
async fn a_record_that_the_same_verdict_settled_before_is_no_failure_on_postgresql() {
    run_the_same_file_again(Site::on_postgres()).await;
}

#[tokio::test]
async fn a_verdict_from_the_standard_input_may_lose_its_body_and_says_so() {
    use std::io::Write;
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, "[defaults]\nstore_response = \"headers\"\n", &[]);
    let ids = unknowns(&gateway, 1).await;
    let mut settling = site
        .semel()
        .args(["records", "settle", "-", "--reason", "incident 42"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut input = settling.stdin.take().expect("it is piped");
    input.write_all(executed(&ids[0]).to_string().as_bytes()).expect("it reads");
    drop(input);
    let settled = settling.wait_with_output().expect("it ends");
    assert_eq!(settled.status.code(), Some(0), "{settled:?}");
    assert!(text(&settled.stdout).contains("succeeded, without its body"), "{settled:?}");
}

async fn settle_twice_at_once(site: Site) {
    const RECORDS: usize = 20;
    let (site, _upstream, _gateway, ids) = lab_with(site, RECORDS).await;
    write(&site, "found.jsonl", &ids.iter().map(|id| executed(id)).collect::<Vec<_>>());
    let start = || {
        site.semel()
            .args(["records", "settle", "found.jsonl", "--json", "--reason", "incident 42"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs")
    };
    let both = [start(), start()];
    let mut settled = Vec::new();
    for one in both {
        let output = one.wait_with_output().expect("it ends");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        for result in report["results"].as_array().into_iter().flatten() {
            match result["result"].as_str() {
                Some("settled") => {
                    settled.push(result["operationId"].as_str().unwrap_or_default().to_owned());
                }
                word => assert_eq!(word, Some("already_settled"), "{result}"),
            }
        }
    }
    settled.sort();
    let mut expected = ids.clone();
    expected.sort();
    assert_eq!(settled, expected, "each record once");
    assert_eq!(noted(&site), vec!["resolve executed|incident 42: charge 7"; RECORDS]);
    assert_eq!(site.states(), vec!["succeeded"; RECORDS]);
}

#[tokio::test]
async fn two_operators_settle_the_same_file_at_once_and_each_record_once() {
    settle_twice_at_once(Site::new()).await;
}

#[tokio::test]
async fn two_operators_settle_the_same_file_at_once_on_postgresql() {
    settle_twice_at_once(Site::on_postgres()).await;
}

#[tokio::test]
async fn the_admin_api_settles_many_records_and_reports_each() {
    let (site, _upstream, gateway, ids) = lab_with(Site::new(), 3).await;
    let post = async |members: Value| {
        let body = members.to_string();
        gateway.ask("POST", "/admin/v1/records/settle").body(body).to(gateway.admin).await
    };
    let before = everything(&site);
    let verdicts = json!([executed(&ids[0]), not_executed(&ids[1]), executed(ABSENT), executed(&ids[2])]);
    let bad = json!([executed(&ids[0]), { "operationId": ids[1], "verdict": "executed" }]);
    let reply = post(json!({ "reason": "incident 42", "verdicts": bad })).await;
    assert_eq!(refusal(&reply), problem(400, "MALFORMED_REQUEST"));
    assert!(reply.json()["detail"].as_str().is_some_and(|said| said.contains("2: The verdict")), "{reply:?}");
    let twice = format!(
        r#"{{"reason":"incident 42","verdicts":[{{"operationId":"{}","verdict":"executed","status":201,"status":500}}]}}"#,
        ids[0]
    );
    let twice = gateway.ask("POST", "/admin/v1/records/settle").body(twice).to(gateway.admin).await;
    assert_eq!(refusal(&twice), problem(400, "MALFORMED_REQUEST"));
    assert!(text(&twice.body).contains("an object has two members of the same name"), "{twice:?}");
    for wrong in [
        json!({ "verdicts": verdicts }),
        json!({ "reason": "incident 42", "verdicts": [] }),
        json!({ "reason": "incident 42", "verdicts": vec![executed(ABSENT); 1001] }),
        json!({ "reason": "incident 42", "verdicts": verdicts, "dryRun": "yes" }),
    ] {
        assert_eq!(refusal(&post(wrong).await), problem(400, "MALFORMED_REQUEST"));
    }
    let words = |report: &Value| -> Vec<String> {
        let results = report["results"].as_array().into_iter().flatten();
        results.map(|result| result["result"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let dry = post(json!({ "reason": "incident 42", "verdicts": verdicts, "dryRun": true })).await.json();
    assert_eq!(words(&dry), ["would_settle", "refused", "absent", "would_settle"], "{dry}");
    assert_eq!(everything(&site), before, "a dry run changes nothing");
    let done = post(json!({ "reason": "incident 42", "verdicts": verdicts })).await.json();
    assert_eq!(words(&done), ["settled", "refused", "absent", "settled"], "{done}");
    assert_eq!((&done["settled"], &done["others"]), (&2.into(), &2.into()));
    assert_eq!(noted(&site), ["resolve executed|incident 42: charge 7"; 2]);
    gateway.logs("\"result\":\"done in part\"").await;
}

#[tokio::test]
async fn an_export_has_a_record_on_each_line_and_never_overwrites_a_file() {
    let (site, _upstream, gateway, mut ids) = lab_with(Site::new(), 3).await;
    gateway.send(numbered(100)).await;
    ids.sort();
    let export = ["records", "export", "--state", "unknown", "--output", "unknown.jsonl"];
    let exported = run(&site, &export);
    assert_eq!(
        (exported.status.code(), text(&exported.stderr).trim()),
        (Some(0), "3 records"),
        "{exported:?}"
    );
    let path = site.folder.path().join("unknown.jsonl");
    let lines = std::fs::read_to_string(&path).expect("it was written");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let records: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let found: Vec<_> =
        records.iter().map(|record| record["operationId"].as_str().unwrap_or_default()).collect();
    assert_eq!(found, ids);
    for record in &records {
        assert_eq!(record["lookFor"]["semelOperationId"], record["operationId"]);
        assert!(record["unknownSince"].is_string() && record["quarantineUntil"].is_string(), "{record}");
        assert_eq!(record["history"].as_array().map(Vec::len), Some(2), "{record}");
    }
    let again = run(&site, &export);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), lines);

    let reply = gateway.admin("/admin/v1/records/export?state=unknown").await;
    assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, Some("application/jsonl")));
    assert_eq!(text(&reply.body), lines, "the admin API exports the same");
    gateway.logs("\"what\":\"export\"").await;
    let rest = gateway.admin(&format!("/admin/v1/records/export?state=unknown&after={}", ids[1])).await;
    assert_eq!(text(&rest.body).lines().count(), 1);
}

#[tokio::test]
async fn an_export_of_several_pages_has_each_record_once() {
    // More than a page of the store.
    const RECORDS: usize = 510;
    let (site, _upstream, gateway, _) = lab_with(Site::new(), 0).await;
    let mut ids = Vec::new();
    for number in 0..RECORDS {
        let reply = gateway.send(numbered(number)).await;
        ids.push(reply.operation_id().expect("it is named").to_owned());
    }
    ids.sort();
    let exported = run(&site, &["records", "export"]).stdout;
    let streamed = gateway.admin("/admin/v1/records/export").await.body;
    for lines in [text(&exported), text(&streamed)] {
        let found = lines.lines().map(|line| {
            let record: Value = serde_json::from_str(line).expect("each line is JSON");
            record["operationId"].as_str().unwrap_or_default().to_owned()
        });
        assert_eq!(found.collect::<Vec<_>>(), ids);
    }
}

fn log_level(gateway: &Gateway, site: &Site, arguments: &[&str]) -> Output {
    let admin = format!("http://{}", gateway.admin);
    run(site, &[&["log-level"][..], arguments, &["--admin", &admin]].concat())
}

#[tokio::test]
async fn the_log_level_of_a_running_gateway_changes_and_goes_back_by_itself() {
    let (site, _upstream, gateway, _) = lab_with(Site::new(), 0).await;
    let shown = log_level(&gateway, &site, &["show"]);
    assert_eq!(text(&shown.stdout).trim(), "info", "{shown:?}");
    let refused = log_level(&gateway, &site, &["set", "h2=trace", "--reason", "incident 42"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("Only modules of this program"), "{refused:?}");

    let quiet = ["set", "warn", "--for", "24h", "--reason", "incident 42"];
    let set = log_level(&gateway, &site, &quiet);
    assert!(set.status.success() && text(&set.stdout).starts_with("warn until "), "{set:?}");
    gateway.logs("\"event\":\"log_level_changed\"").await;
    gateway.send(numbered(1)).await;
    // A later change replaces the first one, and its end is the end of both.
    let short = ["set", "warn", "--for", "1s", "--reason", "incident 42"];
    assert!(log_level(&gateway, &site, &short).status.success());
    gateway.logs("\"event\":\"log_level_reset\"").await;
    gateway.send(numbered(2)).await;
    gateway.logs("\"event\":\"idempotency_settled\"").await;
    let log = gateway.log();
    assert_eq!(log.matches("\"event\":\"idempotency_claim\"").count(), 1, "{log}");
    assert_eq!(log.matches("\"what\":\"log level\"").count(), 3, "each is logged, also under `warn`: {log}");
    assert!(log.contains("\"why\":\"incident 42\""), "{log}");
    let shown = log_level(&gateway, &site, &["show"]);
    assert_eq!(text(&shown.stdout).trim(), "info", "{shown:?}");
    assert!(log_level(&gateway, &site, &quiet).status.success());
    let reset = log_level(&gateway, &site, &["reset", "--reason", "incident 42"]);
    assert_eq!(text(&reset.stdout).trim(), "info", "{reset:?}");
    assert_eq!(gateway.log().matches("\"filter\":\"usual\"").count(), 1, "the action has its filter");
}

#[tokio::test]
async fn no_key_body_or_header_value_is_logged_at_any_level() {
    let (site, _upstream, gateway, _) = lab_with(Site::new(), 0).await;
    let set = log_level(&gateway, &site, &["set", "trace", "--reason", "incident 42"]);
    assert!(set.status.success(), "{set:?}");
    let canary = "canary-5f3a9c1e7b2d4860";
    for what in ["", "status-200 outcome-unknown", "status-503"] {
        let request = pay(&format!("{{\"card\":\"{canary}\"}}"))
            .set("idempotency-key", format!("{canary}-{}", what.len()));
        let request = request.with("authorization", format!("Bearer {canary}")).with("x-secret", canary);
        gateway.send(request.doing(what)).await;
    }
    gateway.send(numbered(1)).await;
    gateway.logs("\"event\":\"idempotency_settled\"").await;
    assert!(!gateway.log().contains("canary"), "{}", gateway.log());
}

/// Returns every file below a folder with its text, after a check that only its owner may read it.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700);
    let entries = std::fs::read_dir(folder).expect("it is there").flatten();
    entries
        .map(|entry| {
            assert_eq!(mode(&entry.path()), 0o600, "{entry:?}");
            let bytes = std::fs::read(entry.path()).expect("it can be read");
            (entry.file_name().to_string_lossy().into_owned(), text(&bytes))
        })
        .collect()
}

#[tokio::test]
async fn a_support_bundle_has_no_secret() {
    const TOKEN: &str = "planted-token-0123456789abcdef0123456789";
    let (mut site, upstream) = (Site::new(), Upstream::start().await);
    site.variables = vec![("PLANTED_TOKEN", TOKEN)];
    let file = format!(
        "[defaults]\nkeep_request = \"while-unknown\"\n[identity]\nsource = \"api-key\"\n\
         [[admin.token]]\nname = \"otto\"\nrole = \"operator\"\nenv = \"PLANTED_TOKEN\"\n\
         [[admin.token]]\nname = \"vera\"\nrole = \"viewer\"\ncommand = [\"echo\", \"planted-argument-0123456789abcdef0123\"]\n{}",
        keys(&site, &["1"])
    );
    std::fs::write(site.folder.path().join("semel.toml"), &file).expect("there is room");
    let made = run(&site, &["keys", "create", "--tenant", "acme", "--caller", "alice"]);
    let api_key = text(&made.stdout).trim().to_owned();
    assert!(api_key.starts_with("semel_"), "{made:?}");
    let gateway = site.start_with(upstream.address, &file, &[]);
    let command = |what: &str| {
        let request = pay("{\"card\":\"planted-body\"}").with("x-secret", "planted-header");
        request
            .set("authorization", format!("Bearer {api_key}"))
            .set("idempotency-key", format!("planted-key-0123456789-{}", what.len()))
            .doing(what)
    };
    let lost = gateway.send(command("status-200 outcome-unknown")).await;
    let id = lost.operation_id().unwrap_or_else(|| panic!("{lost:?}")).to_owned();
    assert_eq!(gateway.send(command("")).await.status, 201);
    let why = ["--reason", "asked to"];
    assert!(run(&site, &[&["records", "request", &id][..], &why].concat()).status.success());
    std::fs::write(site.folder.path().join("otto.token"), TOKEN).expect("there is room");
    let admin = format!("http://{}", gateway.admin);
    let bundle = |folder: &str, more: &[&str]| {
        let made = run(&site, &[&["support-bundle", "--output", folder][..], more].concat());
        (made.status.code(), files(&site.folder.path().join(folder)), made)
    };
    let (code, whole, made) = bundle("whole", &["--admin", &admin, "--token-file", "otto.token"]);
    assert_eq!(code, Some(0), "{made:?}");
    let listen = gateway.admin.to_string();
    let (code, configured, made) =
        bundle("configured", &["--admin-listen", &listen, "--token-file", "otto.token"]);
    assert_eq!(
        (code, configured.len()),
        (Some(0), whole.len()),
        "without --admin, the configured one: {made:?}"
    );
    let away =
        ["--store", "postgres://semel:planted-password@127.0.0.1:1/semel", "--admin-listen", "127.0.0.1:1"];
    let (code, partial, made) = bundle("partial", &away);
    assert_eq!(code, Some(1), "{made:?}");
    let part = |files: &[(String, String)], name: &str| {
        let found = files.iter().find(|(file, _)| file == name).map(|(_, text)| text.clone());
        found.unwrap_or_else(|| panic!("{name} is there: {files:?}"))
    };
    for name in
        ["config.json", "doctor.json", "status.json", "holds.json", "log-level.json", "gateway-status.json"]
    {
        let json: Result<Value, _> = serde_json::from_str(&part(&whole, name));
        assert!(json.is_ok(), "{name} is JSON");
    }
    assert!(part(&whole, "unknown.jsonl").contains(&id));
    assert!(part(&whole, "audit.jsonl").contains("asked to"));
    assert!(part(&whole, "metrics.txt").contains("idempotency_claims_total"));
    assert!(part(&whole, "readyz.txt").contains("ready"));
    let list: Value = serde_json::from_str(&part(&partial, "bundle.json")).expect("it is JSON");
    let parts = list["parts"].as_array().cloned().unwrap_or_default();
    let missing: Vec<_> = parts.iter().filter(|part| part["missing"].is_string()).collect();
    for (file, why) in [
        ("status.json", "the store cannot be read"),
        ("unknown.jsonl", "the store cannot be read"),
        ("holds.json", "the store cannot be read"),
        ("audit.jsonl", "the store cannot be read"),
        ("readyz.txt", "no gateway answers at http://127.0.0.1:1: "),
        ("gateway-status.json", "no gateway answers"),
        ("log-level.json", "no gateway answers"),
        ("metrics.txt", "no gateway answers"),
    ] {
        let part = missing.iter().find(|part| part["file"] == file);
        let told = part.and_then(|part| part["missing"].as_str()).unwrap_or_default();
        assert!(told.starts_with(why), "{file}: {told:?}");
        assert!(text(&made.stderr).contains(&format!("{file} is missing: ")), "{made:?}");
    }
    assert_eq!(missing.len(), 8, "{list}");
    let secret = site.folder.path().join("1.key");
    let secret = std::fs::read_to_string(secret).expect("it is there");
    for (name, text) in whole.iter().chain(&partial) {
        for planted in ["planted-", api_key.as_str(), secret.trim(), TOKEN] {
            assert!(!text.contains(planted), "{name} has {planted}: {text}");
        }
    }
    let again = run(&site, &["support-bundle", "--output", "whole"]);
    assert_eq!(again.status.code(), Some(2), "a folder is never overwritten: {again:?}");
}
