//! Encryption at rest: stored data reveal nothing without their key, and a key can be replaced under load.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::canary::{dump, shows};
use super::lab::{Gateway, Send, Site, Upstream, pay, problem};

const CANARY: &str = "canary-5f3a9c1e7b2d4860";

/// Number of commands that a gateway runs at a time.
const PLACES: usize = 16;

/// Returns the configuration with these keys, the first of them the current one.
pub(super) fn keys(site: &Site, ids: &[&str]) -> String {
    let mut text = format!("[encryption]\ncurrent = \"{}\"\n", ids[0]);
    for id in ids {
        let path = site.folder.path().join(format!("{id}.key"));
        let digit = id.as_bytes()[0] % 10;
        std::fs::write(&path, format!("{digit}7").repeat(32)).expect("there is room");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("it is ours");
        text.push_str(&format!("[[encryption.key]]\nid = \"{id}\"\nfile = \"{id}.key\"\n"));
    }
    text
}

fn numbered(number: usize) -> Send {
    pay(&format!("{{\"number\":{number}}}")).set("idempotency-key", format!("a-key-of-its-own-{number:06}"))
}

fn shows_canary(bytes: &[u8]) -> bool {
    shows(bytes, CANARY)
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("it is JSON: {output:?}"))
}

fn run(site: &Site, arguments: &[&str]) -> Output {
    site.semel().args(arguments).output().expect("the program runs")
}

const LATER: &str = "[[operation]]\nname = \"reports.create\"\nmatch = \"POST /reports\"\nmode = \"async\"\nstore_credentials = true\n";

/// Runs a command with a stored response and one with a stored request, both with canaries.
async fn leave_canaries(gateway: &Gateway, upstream: &Upstream) -> String {
    let secret = |request: Send| {
        request.with("x-secret", format!("{CANARY}-header")).with("authorization", format!("Bearer {CANARY}"))
    };
    let done = gateway.send(secret(pay(&format!("{{\"card\":\"{CANARY}\"}}")))).await;
    assert_eq!(done.status, 201);
    assert!(shows_canary(&done.body) && done.header("seen-x-secret").is_some_and(|it| it.contains(CANARY)));
    upstream.begun().await;
    let later = secret(numbered(1).body(CANARY).target("/reports")).doing("gate");
    assert_eq!(gateway.send(later).await.status, 202);
    upstream.begun().await;
    done.operation_id().expect("it is named").to_owned()
}

#[tokio::test]
async fn no_plaintext_of_a_request_or_response_is_in_store_metrics_or_log() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut gateway = site.start_with(upstream.address, &format!("{LATER}{}", keys(&site, &["new"])), &[]);
    let id = leave_canaries(&gateway, &upstream).await;
    let stored = "SELECT CAST(count(*) AS text) FROM";
    assert_eq!(site.column(&format!("{stored} semel_requests WHERE encryption_key_id = 'new'")), ["1"]);
    assert_eq!(site.column(&format!("{stored} semel_records WHERE encryption_key_id = 'new'")), ["1"]);
    assert_eq!(site.column(&format!("{stored} semel_records WHERE resource IS NOT NULL")), ["0"]);
    assert!(!shows_canary(&dump(&site)), "while it is written");
    let metrics = gateway.admin("/metrics").await.body;
    assert!(!shows_canary(&metrics));
    upstream.open_gate();
    while site.column(&format!("{stored} semel_requests")) != ["0"] {
        tokio::task::yield_now().await;
    }
    assert!(gateway.send(pay(&format!("{{\"card\":\"{CANARY}\"}}"))).await.replayed());
    assert!(!shows_canary(&dump(&site)), "when it is done");
    gateway.terminate();
    gateway.ended().await;
    assert!(!shows_canary(&dump(&site)), "when the gateway has ended");
    assert!(!shows_canary(gateway.log().as_bytes()), "{}", gateway.log());

    let show = ["records", "show", &id, "--json"];
    let with_key = run(&site, &show);
    assert_eq!(json(&with_key)["resource"], "/payments/1");
    std::fs::write(site.folder.path().join("without.toml"), "").expect("there is room");
    let without = ["--config", "without.toml"];
    for arguments in [&show[..], &["records", "list", "--json"], &["records", "explain", &id]] {
        let shown = run(&site, &[arguments, &without].concat());
        assert!(shown.status.success(), "{shown:?}");
        assert!(!shows_canary(&shown.stdout) && !shows_canary(&shown.stderr), "{shown:?}");
    }
    let shown = json(&run(&site, &[&show[..], &without].concat()));
    assert_eq!((&shown["status"], &shown["resource"]), (&201.into(), &serde_json::Value::Null));
}

#[tokio::test]
async fn without_encryption_all_of_it_would_show() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, LATER, &[]);
    leave_canaries(&gateway, &upstream).await;
    assert!(shows_canary(&dump(&site)), "so that the test above can fail");
}

#[tokio::test]
async fn without_its_key_a_response_is_refused_and_nothing_runs_again() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut gateway = site.start_with(upstream.address, &keys(&site, &["old"]), &[]);
    let first = gateway.send(pay("{}")).await;
    assert_eq!(first.status, 201);
    gateway.kill();

    let mut gateway = site.start_with(upstream.address, &keys(&site, &["new"]), &[]);
    for _ in 0..3 {
        let refused = gateway.send(pay("{}")).await;
        assert_eq!(refused.problem(), problem(500, "IDEMPOTENCY_RESPONSE_UNREADABLE"));
    }
    assert_eq!(upstream.seen(), 1, "it was not run again");
    gateway.logs("a stored response stays sealed").await;
    assert_eq!(gateway.send(numbered(7)).await.status, 201, "others go on");
    gateway.kill();

    let gateway = site.start_with(upstream.address, &keys(&site, &["new", "old"]), &[]);
    let replay = gateway.send(pay("{}")).await;
    assert!(replay.replayed());
    assert_eq!(replay.body, first.body);
    assert_eq!(upstream.seen(), 2);
}

#[tokio::test]
async fn response_stored_before_encryption_is_replayed() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut gateway = site.start(upstream.address, &[]);
    let first = gateway.send(pay("{}")).await;
    gateway.kill();
    let gateway = site.start_with(upstream.address, &keys(&site, &["new"]), &[]);
    let replay = gateway.send(pay("{}")).await;
    assert!(replay.replayed());
    assert_eq!(replay.body, first.body);
}

#[tokio::test]
async fn without_its_key_a_waiting_command_is_left_alone_until_the_key_is_back() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let asynchronous = ["--mode", "async"];
    let mut gateway = site.start_with(upstream.address, &keys(&site, &["old"]), &asynchronous);
    for number in 0..PLACES {
        assert_eq!(gateway.send(numbered(number).doing("gate")).await.status, 202);
        upstream.begun().await;
    }
    let waiting = gateway.send(pay("{}")).await;
    assert_eq!(waiting.status, 202);
    gateway.kill();

    let mut gateway = site.start_with(upstream.address, &keys(&site, &["new"]), &asynchronous);
    gateway.logs("a command is left to its deadline").await;
    assert_eq!(upstream.seen(), PLACES, "it was not started");
    gateway.kill();

    let gateway = site.start_with(upstream.address, &keys(&site, &["new", "old"]), &asynchronous);
    upstream.begun().await;
    let mut last = gateway.send(pay("{}")).await;
    while last.status == 202 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        last = gateway.send(pay("{}")).await;
    }
    assert_eq!(last.status, 201);
    assert_eq!(upstream.seen(), PLACES + 1);
}

/// Returns the configuration with these keys that also refuses plain text.
fn strict(site: &Site, ids: &[&str]) -> String {
    keys(site, ids).replacen("\n[[", "\nplaintext = \"refuse\"\n[[", 1)
}

/// Returns the SQL expression for the content of a column of bytes.
fn bytes_of(site: &Site, column: &str, table: &str) -> String {
    let hex = if site.is_postgres() { format!("encode({column}, 'hex')") } else { format!("hex({column})") };
    let found = site.column(&format!("SELECT {hex} FROM {table}"));
    let [digits] = &found[..] else { panic!("{found:?}") };
    if site.is_postgres() { format!("'\\x{digits}'::bytea") } else { format!("X'{digits}'") }
}

#[tokio::test]
async fn plaintext_put_in_the_place_of_an_encrypted_response_is_not_replayed() {
    let upstream = Upstream::start().await;
    let elsewhere = Site::new();
    let mut clear = elsewhere.start(upstream.address, &[]);
    assert_eq!(clear.send(pay("{\"forged\":true}")).await.status, 201);
    clear.kill();
    let forged = bytes_of(&elsewhere, "response", "semel_records");

    let site = Site::new();
    let mut gateway = site.start_with(upstream.address, &strict(&site, &["new"]), &[]);
    let first = gateway.send(pay("{}")).await;
    assert_eq!(first.status, 201);
    gateway.kill();
    let forge = format!(
        "UPDATE semel_records SET response = {forged}, encryption_key_id = NULL, resource = '/forged' RETURNING state"
    );
    assert_eq!(site.column(&forge), ["succeeded"]);
    let mut gateway = site.start_with(upstream.address, &strict(&site, &["new"]), &[]);
    let refused = gateway.send(pay("{}")).await;
    assert_eq!(refused.problem(), problem(500, "IDEMPOTENCY_RESPONSE_UNREADABLE"));
    assert!(!shows(&refused.body, "forged") && refused.header("location").is_none(), "{refused:?}");
    gateway.logs("it is not sealed, and plaintext is refused here").await;
    assert_eq!(upstream.seen(), 2, "it was not run again");
    gateway.kill();
    for arguments in [&["doctor", "--upstream", "http://127.0.0.1:1"][..], &["config", "check"]] {
        let said = run(&site, arguments).stdout;
        assert!(shows(
            &said,
            "1 of the stored items are not encrypted, and `encryption.plaintext` refuses them"
        ));
    }
    let rotated = run(&site, &["keys", "rotate"]);
    assert_eq!(rotated.status.code(), Some(1), "it would be genuine from then on: {rotated:?}");
    assert!(
        shows(&rotated.stderr, "1 of the stored items are not encrypted, although `encryption.plaintext` is"),
        "{rotated:?}"
    );

    let gateway = site.start_with(upstream.address, &keys(&site, &["new"]), &[]);
    assert!(shows(&gateway.send(pay("{}")).await.body, "forged"), "so that the test can fail");
}

#[tokio::test]
async fn an_encrypted_response_opens_only_for_the_attempt_and_the_status_that_it_was_stored_with() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut gateway = site.start_with(upstream.address, &keys(&site, &["new"]), &[]);
    assert_eq!(gateway.send(pay("{}")).await.status, 201);
    gateway.kill();
    let id = if site.is_postgres() { "gen_random_uuid()" } else { "randomblob(16)" };
    for (change, back) in [
        ("epoch = epoch + 1".to_owned(), "epoch = epoch - 1"),
        ("status = 402".to_owned(), "status = 201"),
        ("settled_by = 'verdict'".to_owned(), "settled_by = 'executor'"),
        (format!("operation_id = {id}"), "state = state"),
    ] {
        assert_eq!(site.column(&format!("UPDATE semel_records SET {change} RETURNING state")), ["succeeded"]);
        let mut gateway = site.start_with(upstream.address, &keys(&site, &["new"]), &[]);
        let refused = gateway.send(pay("{}")).await;
        assert_eq!(refused.problem(), problem(500, "IDEMPOTENCY_RESPONSE_UNREADABLE"), "{change}");
        gateway.kill();
        site.column(&format!("UPDATE semel_records SET {back} RETURNING state"));
    }
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn plaintext_put_in_the_place_of_an_encrypted_request_is_not_sent() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let asynchronous = ["--mode", "async"];
    let mut gateway = site.start_with(upstream.address, &strict(&site, &["new"]), &asynchronous);
    for number in 0..PLACES {
        assert_eq!(gateway.send(numbered(number).doing("gate")).await.status, 202);
        upstream.begun().await;
    }
    let waiting = gateway.send(pay("{}")).await;
    assert_eq!(waiting.status, 202);
    gateway.kill();
    let elsewhere = Site::new();
    let mut clear = elsewhere.start(upstream.address, &asynchronous);
    assert_eq!(clear.send(pay("{}").doing("gate").with("x-forged", "yes")).await.status, 202);
    upstream.begun().await;
    clear.kill();
    let forged = bytes_of(&elsewhere, "request", "semel_requests");
    let forge = format!(
        "UPDATE semel_requests SET request = {forged}, encryption_key_id = NULL WHERE operation_id IN \
         (SELECT operation_id FROM semel_records WHERE state = 'claimed') RETURNING 'forged'"
    );
    assert_eq!(site.column(&forge), ["forged"]);

    let gateway = site.start_with(upstream.address, &strict(&site, &["new"]), &asynchronous);
    gateway.logs("a command is left to its deadline").await;
    assert_eq!(upstream.seen(), PLACES + 1, "it was not started");
}

/// Number of records before the key is replaced.
const RECORDS: usize = 2000;

/// Sends these requests, several at a time, and returns the answers in their order.
async fn all(gateway: &Gateway, numbers: std::ops::Range<usize>) -> Vec<super::lab::Reply> {
    let address = gateway.address;
    let mut sending = Vec::new();
    for lane in 0..16 {
        let numbers: Vec<usize> = numbers.clone().skip(lane).step_by(16).collect();
        sending.push(tokio::spawn(async move {
            let mut replies = Vec::new();
            for number in numbers {
                replies.push((number, numbered(number).to(address).await));
            }
            replies
        }));
    }
    let mut replies = Vec::new();
    for lane in sending {
        replies.extend(lane.await.expect("every request is answered"));
    }
    replies.sort_by_key(|(number, _)| *number);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_rotation_under_load_breaks_no_replay_and_reruns_no_command() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut gateway = site.start_with(upstream.address, &keys(&site, &["old"]), &[]);
    let first = all(&gateway, 0..RECORDS).await;
    assert!(first.iter().all(|reply| reply.status == 201));
    gateway.kill();

    // A new gateway has an empty cache: every replay is read from the store.
    let mut gateway = site.start_with(upstream.address, &keys(&site, &["new", "old"]), &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let (address, expected) = (gateway.address, Arc::new(first));
    let load: Vec<_> = (0..4)
        .map(|lane| {
            let (stop, expected) = (stop.clone(), expected.clone());
            tokio::spawn(async move {
                let mut round = 0;
                while !stop.load(Ordering::SeqCst) {
                    let number = (round * 4 + lane) % RECORDS;
                    let replay = numbered(number).to(address).await;
                    assert!(replay.replayed(), "{replay:?}");
                    assert_eq!(
                        (replay.status, &replay.body),
                        (expected[number].status, &expected[number].body)
                    );
                    let written = numbered(RECORDS + round * 4 + lane).to(address).await;
                    assert_eq!(written.status, 201);
                    round += 1;
                }
                round
            })
        })
        .collect();
    let mut command = site.semel();
    command.args(["keys", "rotate", "--batch", "20", "--pause", "20ms", "--json"]);
    let rotated = tokio::task::spawn_blocking(move || command.output().expect("the program runs"));
    let rotated = rotated.await.expect("it runs");
    stop.store(true, Ordering::SeqCst);
    let mut written = 0;
    for lane in load {
        written += lane.await.expect("every replay was right");
    }
    assert!(written > 0, "others wrote meanwhile");
    assert_eq!(rotated.status.code(), Some(0), "{rotated:?}");
    let shown = json(&rotated);
    assert_eq!((&shown["resealed"], &shown["left"]), (&RECORDS.into(), &0.into()), "{shown}");
    gateway.kill();

    let gateway = site.start_with(upstream.address, &keys(&site, &["new"]), &[]);
    let uses = json(&run(&site, &["keys", "encryption", "--json"]));
    let [only] = &uses.as_array().expect("it is a list")[..] else { panic!("{uses}") };
    assert_eq!((&only["keyId"], &only["state"]), (&"new".into(), &"current".into()));
    assert_eq!(only["responses"], RECORDS + written);
    for (reply, first) in all(&gateway, 0..RECORDS).await.iter().zip(expected.iter()) {
        assert!(reply.replayed());
        assert_eq!(reply.body, first.body);
    }
    assert_eq!(upstream.effects(), RECORDS + written, "nothing ran twice");
    let again = run(&site, &["keys", "rotate", "--json"]);
    assert_eq!((again.status.code(), &json(&again)["resealed"]), (Some(0), &0.into()));
    let told = String::from_utf8_lossy(&run(&site, &["keys", "rotate"]).stdout).into_owned();
    assert!(told.contains("no unencrypted data is left: set `encryption.plaintext` to \"refuse\""), "{told}");
}

#[tokio::test]
async fn a_rotation_says_which_key_is_missing() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut gateway = site.start_with(upstream.address, &keys(&site, &["lost"]), &[]);
    gateway.send(pay("{}")).await;
    gateway.kill();
    drop(site.start(upstream.address, &[]));
    let none = run(&site, &["keys", "rotate"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("no `[encryption]` is configured"), "{none:?}");

    drop(site.start_with(upstream.address, &keys(&site, &["new"]), &[]));
    let listed = run(&site, &["keys", "encryption"]);
    assert_eq!(listed.status.code(), Some(1));
    let said = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(said.contains("lost") && said.contains("not configured"), "{said}");
    let rotated = run(&site, &["keys", "rotate"]);
    assert_eq!(rotated.status.code(), Some(1));
    let said = String::from_utf8_lossy(&rotated.stderr).into_owned();
    assert!(
        said.contains("1 of the stored items cannot be decrypted: they are under the key \"lost\""),
        "{said}"
    );
    let shown = json(&run(&site, &["keys", "rotate", "--json"]));
    assert_eq!((&shown["missingKeys"]["lost"], &shown["left"]), (&1.into(), &1.into()));
    for arguments in [&["doctor", "--upstream", "http://127.0.0.1:1"][..], &["config", "check"]] {
        let said = run(&site, arguments).stdout;
        assert!(shows(
            &said,
            "1 of the stored items are under the encryption key \"lost\", which is not configured"
        ));
    }
}

#[tokio::test]
async fn a_rotation_says_which_rows_cannot_be_read_and_does_the_rest() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut gateway = site.start_with(upstream.address, &keys(&site, &["old"]), &[]);
    let replies = all(&gateway, 0..5).await;
    gateway.kill();
    drop(site.start_with(upstream.address, &keys(&site, &["new", "old"]), &[]));
    let damaged = replies[2].operation_id().expect("it is named").to_owned();
    let id =
        if site.is_postgres() { format!("'{damaged}'") } else { format!("X'{}'", damaged.replace('-', "")) };
    let damage =
        format!("UPDATE semel_records SET response_format = 999 WHERE operation_id = {id} RETURNING state");
    assert!(!site.column(&damage).is_empty(), "it is there");

    let rotated = run(&site, &["keys", "rotate", "--batch", "2"]);
    assert_eq!(rotated.status.code(), Some(1), "{rotated:?}");
    let said = String::from_utf8_lossy(&rotated.stderr).into_owned();
    assert!(said.contains(&format!("the response of {damaged} cannot be read: ")), "{said}");
    assert!(said.contains("1 of the stored items cannot be read, and stay unchanged"), "{said}");
    let told = String::from_utf8_lossy(&rotated.stdout).into_owned();
    assert_eq!(told.trim(), "4 encrypted anew under new; 1 left");
    let shown = json(&run(&site, &["keys", "rotate", "--json"]));
    assert_eq!((&shown["resealed"], &shown["unreadable"]), (&0.into(), &1.into()), "{shown}");
    assert_eq!(shown["unreadableRows"][0]["name"], damaged, "{shown}");
}

#[tokio::test]
async fn keys_are_named_and_never_shown() {
    let site = Site::new();
    let file = keys(&site, &["new", "old"])
        + "[[encryption.key]]\nid = \"var\"\nenv = \"SEMEL_STORE_KEY\"\n\
           [[encryption.key]]\nid = \"run\"\ncommand = [\"echo\", \"0b7e51d8-secret\"]\n";
    std::fs::write(site.folder.path().join("semel.toml"), file).expect("there is room");
    let secret = "5b".repeat(32);
    let run = |arguments: &[&str]| {
        let output = site.semel().args(arguments).env("SEMEL_STORE_KEY", &secret).output();
        let output = output.expect("the program runs");
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        for hidden in [&*secret, "0b7e51d8", &"07".repeat(32), &"17".repeat(32)] {
            assert!(!said.contains(hidden), "{said}");
        }
        (output.status.code(), said)
    };
    let (code, said) = run(&["config", "show"]);
    assert_eq!(code, Some(0));
    for part in ["encryption.current", "\"new.key\"", "\"SEMEL_STORE_KEY\"", "[\"echo\", \"…\"]"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said) = run(&["config", "check"]);
    assert_eq!(code, Some(0), "what a program prints is not asked for: {said}");
    assert!(!said.contains("warning"), "the variable is a key's: {said}");
    let (code, said) = run(&["doctor", "--upstream", "http://127.0.0.1:1"]);
    assert_eq!(code, Some(1), "there is no upstream");
    assert!(
        said.contains("under key new, one of 4") && said.contains("not checked: 1 of 4 keys from programs"),
        "{said}"
    );
    let (code, said) = run(&["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("`encryption.key.run.command`: it is neither hexadecimal nor base64"), "{said}");

    let path = site.folder.path().join("old.key");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let (code, said) = run(&["config", "check"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("`encryption.key.old.file`: other users of this machine can read the key"),
        "{said}"
    );
    std::fs::remove_file(&path).expect("it is there");
    let (code, said) = run(&["config", "check"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("`encryption.key.old.file`: cannot read old.key"), "{said}");
}
