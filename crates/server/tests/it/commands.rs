//! The command line as a person meets it.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use crate::gateway::lab::semel;

fn run(folder: &Path, arguments: &[&str]) -> Output {
    semel(folder).args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints text")
}

#[test]
fn wrong_use_exits_with_2_and_says_what_is_right() {
    let folder = TempDir::new().expect("there is room");
    let wrong = run(folder.path(), &["serve", "--ttl", "5x"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("expected a duration such as"), "{wrong:?}");
    let unknown = run(folder.path(), &["serve", "--tll", "5s"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("--ttl"), "{unknown:?}");
    let open = run(folder.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(open.status.code(), Some(2));
    assert!(text(&open.stderr).contains("loopback"), "{open:?}");
    assert_eq!(run(folder.path(), &[]).status.code(), Some(2));
}

#[test]
fn a_store_that_cannot_be_used_is_named() {
    let folder = TempDir::new().expect("there is room");
    let missing =
        run(folder.path(), &["serve", "--store", "sqlite:nowhere/semel.db", "--listen", "127.0.0.1:0"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot open nowhere/semel.db"), "{missing:?}");
    std::fs::write(folder.path().join("semel.db"), "not a database at all, but long enough to look like one")
        .expect("there is room");
    let damaged = run(folder.path(), &["keys", "list"]);
    assert_eq!(damaged.status.code(), Some(2));
    assert!(text(&damaged.stderr).contains("not an intact SQLite database"), "{damaged:?}");
}

#[test]
fn a_configuration_is_checked_and_shown_with_its_sources() {
    let folder = TempDir::new().expect("there is room");
    std::fs::write(
        folder.path().join("semel.toml"),
        "[defaults]\nttl = \"7d\"\non_server_error = \"retry\"\n",
    )
    .expect("there is room");
    let check = run(folder.path(), &["config", "check"]);
    assert_eq!(check.status.code(), Some(0));
    let said = text(&check.stdout);
    assert!(said.contains("warning") && said.contains("on_server_error"), "{said}");
    let show = run(folder.path(), &["config", "show", "--json", "--wait", "1s"]);
    let rows: serde_json::Value = serde_json::from_slice(&show.stdout).expect("it is JSON");
    let source = |name: &str| {
        let rows = rows.as_array().expect("it is a list");
        rows.iter().find(|row| row["name"] == name).expect("it is there")["source"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    assert_eq!(source("defaults.ttl"), "semel.toml:2");
    assert_eq!((source("defaults.wait").as_str(), source("defaults.lease").as_str()), ("--wait", "default"));

    std::fs::write(folder.path().join("semel.toml"), "[defaults]\ntll = \"7d\"\n").expect("there is room");
    let wrong = run(folder.path(), &["config", "check"]);
    assert_eq!(wrong.status.code(), Some(1), "the answer is no");
    assert!(text(&wrong.stderr).contains("semel.toml:2:1: error"), "{wrong:?}");
    assert!(text(&wrong.stderr).contains("did you mean `ttl`?"), "{wrong:?}");
}

#[test]
fn a_new_configuration_can_be_used_as_it_is() {
    let folder = TempDir::new().expect("there is room");
    let init = run(folder.path(), &["config", "init"]);
    assert_eq!(init.status.code(), Some(0));
    std::fs::write(folder.path().join("semel.toml"), init.stdout).expect("there is room");
    assert_eq!(run(folder.path(), &["config", "check"]).status.code(), Some(0));
}

#[test]
fn keys_are_listed_without_the_keys() {
    let folder = TempDir::new().expect("there is room");
    let made = run(folder.path(), &["keys", "create", "--tenant", "acme", "--caller", "alice"]);
    let key = text(&made.stdout);
    assert!(made.status.success() && key.starts_with("semel_"), "{made:?}");
    assert!(text(&made.stderr).contains("It is shown once."));
    let list = text(&run(folder.path(), &["keys", "list"]).stdout);
    assert!(list.contains("alice") && !list.contains(key.trim()), "{list}");
    let missing = run(folder.path(), &["keys", "create", "--tenant", "acme"]);
    assert_eq!(missing.status.code(), Some(2));
}
