//! `cargo xtask mutants`: `crates/core` is changed in every way that cargo-mutants knows, one at a time, and its tests must
//! notice. Those that its tests cannot notice are in `docs/mutants.md`, each with the reason; any other is an error.

use std::path::Path;

use crate::databases::target;
use crate::root;
use crate::tools::{Tool, shown};

const MUTANTS: Tool = Tool { name: "mutants", version: "27.1.0" };

/// How many of a hundred must be noticed.
const AT_LEAST: usize = 95;

/// What follows is for cargo-mutants, such as `--file crates/core/src/key.rs`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let folder = target()?.join("mutants");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut mutants = MUTANTS.command()?;
    mutants.args(["--package", "semel-core", "--timeout", "60", "--output"]).arg(&folder);
    mutants.args(arguments).args(["--", "--all-targets"]);
    mutants.env("CARGO_PROFILE_DEV_DEBUG", "false");
    // 2: some were not noticed. 3: some never ended, which is noticed.
    match shown(&mut mutants)? {
        Some(0 | 2 | 3) => judge(&folder.join("mutants.out")),
        _ => Err("mutants: cargo-mutants has failed; see above".to_owned()),
    }
}

fn judge(folder: &Path) -> Result<(), String> {
    let lines = |name: &str| {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(text.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let noticed = lines("caught.txt")?.len() + lines("timeout.txt")?.len();
    let (missed, unviable) = (lines("missed.txt")?, lines("unviable.txt")?.len());
    let all = noticed + missed.len();
    if all == 0 {
        return Err("mutants: nothing was changed".to_owned());
    }
    println!(
        "── mutants: {noticed} of {all} were noticed, {}.{} %; {unviable} more do not compile",
        noticed * 100 / all,
        noticed * 1000 / all % 10
    );
    let known = std::fs::read_to_string(root().join("docs/mutants.md"))
        .map_err(|error| format!("docs/mutants.md: {error}"))?;
    let is_explained = |survivor: &&String| known.contains(&format!("| `{}` |", place_and_change(survivor)));
    let (explained, unexplained): (Vec<_>, Vec<_>) = missed.iter().partition(is_explained);
    for survivor in &explained {
        println!("   survives, as docs/mutants.md explains: {survivor}");
    }
    for survivor in &unexplained {
        println!("   SURVIVES: {survivor}");
    }
    if !unexplained.is_empty() {
        return Err(format!(
            "mutants: {} changes are noticed by no test: write one, or say in docs/mutants.md why nobody can",
            unexplained.len()
        ));
    }
    if noticed * 100 < all * AT_LEAST {
        return Err(format!("mutants: fewer than {AT_LEAST} % were noticed"));
    }
    Ok(())
}

/// `src/key.rs: replace …` of `crates/core/src/key.rs:57:9: replace …`: where lines move, an explanation stays.
fn place_and_change(mutant: &str) -> String {
    let mutant = mutant.trim_start_matches("crates/core/");
    let mut parts = mutant.splitn(4, ':');
    match (parts.next(), parts.nth(2)) {
        (Some(file), Some(change)) => format!("{file}:{change}"),
        _ => mutant.to_owned(),
    }
}
