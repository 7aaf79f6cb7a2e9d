//! `cargo xtask mutants`: changes code in every way that cargo-mutants knows, one change at a time, and runs the tests that must
//! notice. `docs/src/explanation/mutants.md` lists the survivors, each with a reason; any other survivor is an error.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::databases::{self, target};
use crate::root;
use crate::tools::{Tool, is_there, shown};

/// The page with the table of survivors.
const PAGE: &str = "docs/src/explanation/mutants.md";

const MUTANTS: Tool = Tool { name: "mutants", version: "27.1.0" };

/// Number of nights for all mutants: each night has its part of every set, so that a week has them all.
const NIGHTS: u64 = 7;

/// Share of mutants, in percent, that tests must notice.
const AT_LEAST: usize = 95;

/// A part of the product that is mutated, and the tests that must notice.
struct Set {
    name: &'static str,
    package: &'static str,
    /// Files to mutate; if empty, every file of the package.
    files: &'static [&'static str],
    /// Timeout of the tests of one mutant, in seconds: many times their usual duration, since a mutant whose tests
    /// starve on a busy machine would pass for noticed.
    timeout: &'static str,
    /// Arguments for `cargo test`.
    tests: &'static [&'static str],
    needs_postgres: bool,
}

const SETS: [Set; 3] = [
    Set {
        name: "core",
        package: "semel-core",
        files: &[],
        timeout: "120",
        tests: &["--all-targets"],
        needs_postgres: false,
    },
    Set {
        name: "http",
        package: "semel-http",
        files: &[
            "crates/http/src/command.rs",
            "crates/http/src/execute.rs",
            "crates/http/src/persist.rs",
            "crates/http/src/read.rs",
            "crates/http/src/settle.rs",
            "crates/http/src/settlement.rs",
        ],
        timeout: "400",
        tests: &["--all-targets"],
        needs_postgres: false,
    },
    Set {
        name: "stores",
        package: "semel-stores",
        files: &[
            "crates/stores/src/sqlite/change.rs",
            "crates/stores/src/postgres/decide.rs",
            "crates/stores/src/postgres/group.rs",
            "crates/stores/src/postgres/job.rs",
        ],
        timeout: "600",
        tests: &["--all-features", "--lib", "--test", "it", "--", "--skip", "postgres_chaos"],
        needs_postgres: true,
    },
];

/// Runs the set that the first argument names, or all of them. Further arguments go to cargo-mutants, such as `--shard`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    match arguments {
        [name, rest @ ..] if !name.starts_with('-') => run_set(named(name)?, rest),
        _ => run_sets(SETS.iter(), arguments),
    }
}

/// Runs tonight's part of every set, by the date.
#[expect(clippy::disallowed_methods, reason = "the date, for people: nothing expires by it")]
pub(crate) fn tonight() -> Result<(), String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| format!("mutants: {error}"))?;
    let part = format!("{}/{NIGHTS}", since.as_secs() / (24 * 60 * 60) % NIGHTS);
    run_sets(SETS.iter(), &["--shard", &part])
}

fn run_sets<'a>(sets: impl Iterator<Item = &'a Set>, arguments: &[&str]) -> Result<(), String> {
    let failed: Vec<_> = sets.filter_map(|set| run_set(set, arguments).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn named(name: &str) -> Result<&'static Set, String> {
    let known = || SETS.map(|set| set.name).join(", ");
    SETS.iter()
        .find(|set| set.name == name)
        .ok_or_else(|| format!("mutants: `{name}` is none of {}", known()))
}

fn run_set(set: &Set, arguments: &[&str]) -> Result<(), String> {
    let folder = target()?.join("mutants").join(set.name);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let database = if set.needs_postgres { Some(databases::install()?.start()?) } else { None };
    let mut mutants = MUTANTS.command()?;
    mutants.args(["--package", set.package, "--timeout", set.timeout, "--output"]).arg(&folder);
    // Each test is a process of its own there, and the first that fails ends the run.
    if is_there("nextest") {
        mutants.args(["--test-tool", "nextest"]);
    }
    if !arguments.contains(&"--file") {
        mutants.args(set.files.iter().flat_map(|file| ["--file", file]));
    }
    mutants.args(arguments).arg("--").args(set.tests);
    mutants.env("CARGO_PROFILE_DEV_DEBUG", "false");
    if let Some(database) = &database {
        mutants.envs(database.variables());
    }
    // 2: some survived. 3: some timed out, which counts as noticed.
    match shown(&mut mutants)? {
        Some(0 | 2 | 3) => judge(set, &folder.join("mutants.out")),
        _ => Err(format!("mutants: cargo-mutants has failed on {}; see above", set.name)),
    }
}

fn judge(set: &Set, folder: &Path) -> Result<(), String> {
    let lines = |name: &str| {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(text.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let noticed = lines("caught.txt")?.len() + lines("timeout.txt")?.len();
    let (missed, unviable) = (lines("missed.txt")?, lines("unviable.txt")?.len());
    let all = noticed + missed.len();
    let name = set.name;
    if all == 0 {
        return Err(format!("mutants: nothing was changed in {name}"));
    }
    println!(
        "── mutants of {name}: {noticed} of {all} were noticed, {}.{} %; {unviable} more do not compile",
        noticed * 100 / all,
        noticed * 1000 / all % 10
    );
    let known = std::fs::read_to_string(root().join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    // In a table, a bar is written with a backslash.
    let known = known.replace("\\|", "|");
    let is_explained = |survivor: &&String| known.contains(&format!("| `{}` |", place_and_change(survivor)));
    let (explained, unexplained): (Vec<_>, Vec<_>) = missed.iter().partition(is_explained);
    for survivor in &explained {
        println!("   survives, as {PAGE} explains: {survivor}");
    }
    for survivor in &unexplained {
        println!("   SURVIVES: {survivor}");
    }
    if !unexplained.is_empty() {
        return Err(format!(
            "mutants: {} changes of {name} are noticed by no test: write one, or say in {PAGE} why nobody can",
            unexplained.len()
        ));
    }
    if noticed * 100 < all * AT_LEAST {
        return Err(format!("mutants: fewer than {AT_LEAST} % of {name} were noticed"));
    }
    Ok(())
}

/// Returns `core/src/key.rs: replace …` for `crates/core/src/key.rs:57:9: replace …`: an explanation stays
/// valid when lines move.
fn place_and_change(mutant: &str) -> String {
    let mutant = mutant.trim_start_matches("crates/");
    let mut parts = mutant.splitn(4, ':');
    match (parts.next(), parts.nth(2)) {
        (Some(file), Some(change)) => format!("{file}:{change}"),
        _ => mutant.to_owned(),
    }
}
