//! Help and error output of every command, kept in `snapshots/`, one file each.
//!
//! The commands are found by walking the command line itself, so that a new one is included automatically.

use std::path::{Path, PathBuf};
use std::process::Output;

use clap::Command;
use tempfile::TempDir;

use crate::commands::text;
use crate::gateway::lab::semel;
use crate::snapshot;

/// Operation id that no store has.
const ID: &str = "01a1df32-caa3-786d-a196-45c465f24292";
/// Event id that no store has.
const EVENT: &str = "01a1df32-caa3-786d-a196-45c465f24292:payment.created";
/// Width of the terminal.
const COLUMNS: &str = "100";
/// Database that cannot be reached.
const AWAY: &str = "postgres://semel:secret@127.0.0.1:1/semel";

/// Returns every command with its names, the program itself first, without hidden ones.
fn every_command() -> Vec<(Vec<String>, Command)> {
    fn walk(names: &[String], command: &Command, found: &mut Vec<(Vec<String>, Command)>) {
        found.push((names.to_vec(), command.clone()));
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            walk(&[names, &[below.get_name().to_owned()]].concat(), below, found);
        }
    }
    let mut found = Vec::new();
    walk(&[], &semel_server::cli::command(), &mut found);
    found
}

/// Returns the arguments that a command needs before it opens its store.
fn needed(name: &str) -> &'static [&'static str] {
    match name {
        "serve" => &["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"],
        "doctor" => {
            &["--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:2", "--admin-listen", "127.0.0.1:3"]
        }
        "keys create" => &["--tenant", "acme", "--caller", "shop"],
        "keys revoke" => &["key_3d735fd4ca06"],
        "records show" | "records explain" | "records find" => &[ID],
        "backup" => &["--to", "backup.db"],
        "restore" => &["--fence", "--reason", "asked to"],
        "hold add" | "hold lift" => &["--reconciler", "--reason", "asked to"],
        "records resolve" => &[ID, "--verdict", "not-executed", "--reason", "not in the ledger"],
        "records settle" => &["found.jsonl", "--reason", "asked to"],
        "records request" | "records release" | "records purge" => &[ID, "--reason", "asked to"],
        "reconcile ledger" => &["--ours", "store", "--theirs", "provider.csv", "--reference", "key"],
        "outbox show" => &[EVENT],
        "reconcile" => &["--list"],
        "outbox retry" | "outbox discard" => &[EVENT, "--reason", "asked to"],
        _ => &[],
    }
}

/// Commands that take the settings of a store and do not open it, or name its fault in a file.
const NO_STORE: [&str; 2] = ["config show", "support-bundle"];

/// Stores that cannot be used.
struct Stores {
    folder: TempDir,
    newer: semel_testkit::postgres::Database,
}

impl Stores {
    fn new() -> Stores {
        let folder = TempDir::new().expect("there is room");
        let newer = semel_testkit::postgres::shared().expect("there is a PostgreSQL").create_database();
        let stores = Stores { folder, newer: newer.expect("it can be created") };
        let verdict = format!("{{\"operationId\":\"{ID}\",\"verdict\":\"not-executed\"}}\n");
        std::fs::write(stores.folder.path().join("found.jsonl"), verdict).expect("there is room");
        let make = |store: &str| {
            let made = semel(stores.folder.path())
                .args(["keys", "create", "--tenant", "acme", "--caller", "shop", "--store", store])
                .output()
                .expect("the program runs");
            assert!(made.status.success(), "{made:?}");
        };
        make("sqlite:newer.db");
        let file = rusqlite::Connection::open(stores.folder.path().join("newer.db")).expect("it opens");
        file.execute("UPDATE semel_schema SET version = 99, readable_from = 99", []).expect("it is there");
        make(&stores.newer.url());
        stores.newer.sql("UPDATE semel_schema SET version = 99, readable_from = 99").expect("it is there");
        stores
    }

    /// Returns each store as an argument: missing, unreachable, and written by a newer version.
    fn all(&self) -> [String; 4] {
        ["sqlite:nowhere/semel.db", AWAY, "sqlite:newer.db", &self.newer.url()].map(str::to_owned)
    }

    /// Returns the text with a fixed name for the database, whose real name differs in each run.
    fn named(&self, text: &str) -> String {
        let place = format!("{}/{}", self.newer.server().address(), self.newer.name());
        text.replace(&self.newer.url(), "postgres://db.internal/newer").replace(&place, "db.internal/newer")
    }
}

/// Returns a command with its output and its exit code.
fn shown(command: &str, output: &Output) -> String {
    let code = output.status.code().expect("no signal ends it");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    let said: Vec<&str> = said.lines().map(str::trim_end).collect();
    format!("$ {command}\n{}\n[exit code {code}]\n\n", said.join("\n"))
}

fn quoted(words: &[&str]) -> String {
    let quoted =
        words.iter().map(|word| if word.contains(' ') { format!("'{word}'") } else { (*word).to_owned() });
    quoted.collect::<Vec<_>>().join(" ")
}

fn snapshots() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots")
}

/// Returns the whole output of one command.
fn everything(names: &[String], command: &Command, stores: &Stores) -> String {
    let folder = stores.folder.path();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let run = |arguments: &[&str]| {
        let arguments = [&names[..], arguments].concat();
        semel(folder).args(arguments).env("COLUMNS", COLUMNS).output().expect("the program runs")
    };
    let called = |arguments: &[&str]| quoted(&[&["semel"], &names[..], arguments].concat());
    let (short, long) = (run(&["-h"]), run(&["--help"]));
    let mut said = shown(&called(&["--help"]), &long);
    if short.stdout == long.stdout {
        said.push_str(&format!("$ {}\nthe same\n\n", called(&["-h"])));
    } else {
        said.push_str(&shown(&called(&["-h"]), &short));
    }
    said.push_str(&shown(&called(&["--no-such-flag"]), &run(&["--no-such-flag"])));
    let name = names.join(" ");
    if NO_STORE.contains(&name.as_str())
        || !command.get_arguments().any(|argument| argument.get_id() == "store")
    {
        return said;
    }
    let required = command.get_arguments().any(clap::Arg::is_required_set);
    assert!(!required || !needed(&name).is_empty(), "say in `needed` what `semel {name}` must be told");
    for store in stores.all() {
        let arguments = [needed(&name), &["--store", &store]].concat();
        let output = run(&arguments);
        assert!(!format!("{output:?}").contains("secret"), "a password is never shown: {output:?}");
        said.push_str(&stores.named(&shown(&called(&arguments), &output)));
    }
    said
}

#[test]
fn help_and_error_texts_of_every_command_match_their_snapshots() {
    let stores = Stores::new();
    let mut files = Vec::new();
    let mut differences = Vec::new();
    for (names, command) in every_command() {
        let name = [&["semel".to_owned()], &names[..]].concat().join("-");
        let file = snapshots().join(format!("{name}.txt"));
        let said = masked(&everything(&names, &command, &stores));
        differences.extend(snapshot::difference(&file, &said));
        files.push(file);
    }
    for entry in std::fs::read_dir(snapshots()).expect("it is there").flatten() {
        if !files.contains(&entry.path()) {
            differences.push(format!("{} is of no command: delete it", entry.path().display()));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

/// Returns the text without differences between machines and versions.
fn masked(text: &str) -> String {
    let masks = [
        (r"knows versions up to \d+", "knows versions up to N"),
        (r"this program's version \d+", "this program's version N"),
        // These checks of the doctor depend on the machine.
        (r"(?m)^(ok  |warn)  (disk|durability|clock|open files|permissions) .*\n( +-> .*\n)?", ""),
        (r"PostgreSQL \d.*", "PostgreSQL …"),
        (r"newer\.db, .*", "newer.db, …"),
        (r"\d+ ok, \d+ to look at", "… ok, … to look at"),
    ];
    masks.iter().fold(text.to_owned(), |text, (pattern, mask)| {
        regex::Regex::new(pattern).expect("it is a pattern").replace_all(&text, *mask).into_owned()
    })
}

#[test]
fn every_command_explains_itself_and_its_arguments() {
    for (names, command) in every_command() {
        let name = format!("semel {}", names.join(" "));
        assert!(command.get_about().is_some(), "{name} says in a line what it is for");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{name}: {} is explained", argument.get_id());
        }
        if command.has_subcommands() {
            continue;
        }
        assert!(command.get_long_about().is_some(), "{name} says when to use it");
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("Example"), "{name} gives an example: {after}");
        assert!(after.contains(&name), "{name} has itself in its example: {after}");
        assert!(after.contains("Exit codes: 0"), "{name} says what its exit codes mean: {after}");
    }
}
