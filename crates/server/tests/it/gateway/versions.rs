//! Two versions of the program on one store: forward, back, and the end of an upgrade. The next version, which only tests have,
//! knows one version of the schema and of the fingerprint more, and one more reason.

use std::net::SocketAddr;

use semel_faults::NEXT_VERSION;
use serde_json::Value;

use super::lab::{Gateway, Reply, Send, Site, Upstream, pay, problem};

/// Sweeps often: a running gateway learns by them that the upgrade is finished.
const WATCHFUL: &str = "[maintenance]\nsweep_interval = \"50ms\"\n";
/// Never sweeps while the test runs.
const BLIND: &str = "[maintenance]\nsweep_interval = \"1h\"\n";

const KEYS: [&str; 5] =
    ["first-key-0000001", "second-key-000002", "third-key-0000003", "fourth-key-000004", "fifth-key-0000005"];

/// Programs of two versions on one store.
struct Versions {
    site: Site,
    upstream: SocketAddr,
}

impl Versions {
    fn old(&self, file: &str) -> Gateway {
        self.site.start_with(self.upstream, file, &[])
    }

    fn next(&self, file: &str) -> Gateway {
        self.site.start_in(self.upstream, file, &[], &[(NEXT_VERSION, "1")])
    }

    /// Runs a command of the old program, or of the next one. Returns its exit code and what it prints.
    fn run(&self, is_next: bool, arguments: &[&str]) -> (i32, String) {
        let mut command = self.site.semel();
        if is_next {
            command.env(NEXT_VERSION, "1");
        }
        let output = command.args(arguments).output().expect("the program runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().expect("it ends by itself"), String::from_utf8_lossy(&text).into_owned())
    }

    /// Changes the store behind the programs' backs.
    fn change(&self, sql: &str) {
        match self.site.is_postgres() {
            true => drop(self.site.postgres().sql(sql).expect("the server takes it")),
            false => {
                let file = rusqlite::Connection::open(self.site.database()).expect("the file opens");
                file.execute_batch(sql).expect("it is changed");
            }
        }
    }

    /// Returns the finding of `semel doctor` about the schema.
    fn doctor(&self, is_next: bool) -> (String, String) {
        let (_, text) = self.run(is_next, &["doctor", "--json", "--upstream", "http://127.0.0.1:1"]);
        let checks: Vec<Value> = serde_json::from_str(&text).expect("it is a list");
        let schema = checks.iter().find(|check| check["check"] == "schema").expect("it is one of them");
        let text = |name: &str| schema[name].as_str().expect("it is text").to_owned();
        (text("result"), text("found"))
    }

    /// Returns the formats of all records, the oldest first.
    fn formats(&self) -> Vec<String> {
        let text = "fingerprint_version || ' ' || reason";
        self.site.column(&format!("SELECT {text} FROM semel_records ORDER BY created_at, operation_id"))
    }
}

fn command(key: &str) -> Send {
    pay("{}").set("idempotency-key", key)
}

async fn replayed(gateway: &Gateway, key: &str) {
    let reply = gateway.send(command(key)).await;
    assert!(reply.status == 201 && reply.replayed(), "{key}: {reply:?}");
    let other = gateway.send(pay("[]").set("idempotency-key", key)).await;
    assert_eq!(other.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"), "{key}");
}

fn is_refused(reply: &Reply) -> bool {
    reply.problem() == problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE")
}

const OLD_FORMATS: &str = "1 answered";
const NEXT_FORMATS: &str = "2 answered_in_next_version";

#[tokio::test]
async fn gateways_are_upgraded_one_after_the_other_and_back_until_the_upgrade_is_finished() {
    let upstream = Upstream::start().await;
    let versions = Versions { site: Site::new(), upstream: upstream.address };
    let mut old = versions.old(WATCHFUL);
    assert_eq!(old.send(command(KEYS[0])).await.status, 201);
    assert_eq!(versions.doctor(false), ("ok".to_owned(), "version 1, that of this program".to_owned()));

    // The first gateway is upgraded. Both versions know each other's commands.
    let next = versions.next(WATCHFUL);
    assert_eq!(next.send(command(KEYS[1])).await.status, 201);
    for key in &KEYS[..2] {
        replayed(&old, key).await;
        replayed(&next, key).await;
    }
    // It goes back, and so does a new process of the old version.
    old.kill();
    let old = versions.old(WATCHFUL);
    old.logs("this one can still read it").await;
    assert_eq!(old.send(command(KEYS[2])).await.status, 201);
    for key in &KEYS[..3] {
        replayed(&old, key).await;
        replayed(&next, key).await;
    }
    let found = "version 2, newer than this program's version 1, readable from 1";
    assert_eq!(versions.doctor(false), ("warn".to_owned(), found.to_owned()));
    assert_eq!(versions.doctor(true), ("warn".to_owned(), "version 2, readable from 1".to_owned()));
    assert_eq!(versions.formats(), [OLD_FORMATS; 3]);

    // Only the next version finishes its upgrade; a second time does nothing.
    let (code, said) = versions.run(false, &["migrate", "--finish"]);
    assert!(code == 2 && said.contains("only the version of Semel that migrated it"), "{said}");
    let (code, said) = versions.run(true, &["migrate"]);
    assert!(
        code == 0 && said.contains("is readable from version 1 on: run `semel migrate --finish`"),
        "{said}"
    );
    for _ in 0..2 {
        let (code, said) = versions.run(true, &["migrate", "--finish", "--json"]);
        assert_eq!((code, said.trim()), (0, r#"{"readableFrom":2,"schema":2}"#));
    }
    next.logs("its upgrade was finished").await;
    old.logs("it starts no commands any more").await;
    assert_eq!(next.send(command(KEYS[3])).await.status, 201);
    for key in &KEYS[..4] {
        replayed(&next, key).await;
    }
    assert_eq!(versions.formats(), [OLD_FORMATS, OLD_FORMATS, OLD_FORMATS, NEXT_FORMATS]);
    for key in &KEYS[3..] {
        let reply = old.send(command(key)).await;
        assert!(is_refused(&reply), "{key}: {reply:?}");
    }
    // There is no way back.
    drop(old);
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let serve = [&["serve", "--upstream", "http://127.0.0.1:1"][..], &ports].concat();
    let (code, said) = versions.run(false, &serve);
    assert!(code == 2 && said.contains("schema version 2, readable from version 2 on"), "{said}");
    assert!(said.contains("knows versions up to 1"), "{said}");
    assert_eq!(versions.doctor(false).0, "fail");
    assert_eq!(versions.doctor(true), ("ok".to_owned(), "version 2, that of this program".to_owned()));
    assert_eq!(upstream.effects(), 4, "one for each command");
}

#[tokio::test]
async fn a_gateway_that_missed_the_end_of_an_upgrade_decides_nothing_on_newer_formats() {
    let upstream = Upstream::start().await;
    let versions = Versions { site: Site::new(), upstream: upstream.address };
    let old = versions.old(BLIND);
    let late = versions.next(BLIND);
    assert_eq!(versions.run(true, &["migrate", "--finish"]).0, 0);
    let next = versions.next(BLIND);
    assert_eq!(next.send(command(KEYS[0])).await.status, 201);
    for body in ["{}", "[]"] {
        let reply = old.send(pay(body).set("idempotency-key", KEYS[0])).await;
        assert!(is_refused(&reply), "{reply:?}");
    }
    // One of the next version that does not know yet reads them all, and writes what everybody can read.
    replayed(&late, KEYS[0]).await;
    assert_eq!(late.send(command(KEYS[1])).await.status, 201);
    assert_eq!(old.send(command(KEYS[2])).await.status, 201);
    for key in &KEYS[..3] {
        replayed(&next, key).await;
        replayed(&late, key).await;
    }
    replayed(&old, KEYS[1]).await;
    assert_eq!(versions.formats(), [NEXT_FORMATS, OLD_FORMATS, OLD_FORMATS]);
    assert_eq!(upstream.effects(), 3, "one for each command");
}

#[tokio::test]
async fn an_upgrade_is_not_finished_before_the_store_is_migrated() {
    let versions = Versions { site: Site::new(), upstream: ([127, 0, 0, 1], 1).into() };
    let folder = &["migrate"][..];
    let (code, said) = versions.run(true, &["migrate", "--finish"]);
    assert!(code == 2 && said.contains("there is no store"), "{said}");
    if versions.site.is_postgres() {
        assert_eq!(versions.run(false, folder).0, 0);
    } else {
        assert_eq!(versions.run(false, &["keys", "create", "--tenant", "t", "--caller", "c"]).0, 0);
    }
    let (code, said) = versions.run(true, &["migrate", "--finish"]);
    assert!(code == 2 && said.contains("schema version 1") && said.contains("run `semel migrate`"), "{said}");
    assert_eq!(versions.doctor(false).0, "ok", "nothing was changed");
    // Two programs of the next version migrate at once.
    let migrated = std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| versions.run(true, folder)));
        both.map(|one| one.join().expect("it does not panic"))
    });
    for (code, said) in migrated {
        assert!(code == 0 && said.contains("schema version 2, and is readable from version 1"), "{said}");
    }
    assert_eq!(versions.run(true, &["migrate", "--finish"]).0, 0);
    assert_eq!(versions.run(true, folder), (0, "the store has schema version 2\n".to_owned()));
}

#[tokio::test]
async fn a_schema_that_running_programs_could_not_read_is_not_made() {
    let upstream = Upstream::start().await;
    let versions = Versions { site: Site::new(), upstream: upstream.address };
    drop(versions.old(BLIND));
    // As if programs before version 1 could still open it, which the next version's script leaves behind.
    versions.change("UPDATE semel_schema SET readable_from = 0");
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let serve = [&["serve", "--upstream", "http://127.0.0.1:1"][..], &ports].concat();
    for refused in [&["migrate"][..], &serve] {
        let (code, said) = versions.run(true, refused);
        assert!(code == 2 && said.contains("readable from version 1 on. Nothing was changed"), "{said}");
    }
    // The version in between finishes its own upgrade first.
    assert_eq!(versions.run(false, &["migrate", "--finish"]).0, 0);
    let (code, said) = versions.run(true, &["migrate"]);
    assert!(code == 0 && said.contains("schema version 2"), "{said}");
}
