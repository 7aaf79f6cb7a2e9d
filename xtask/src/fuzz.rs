//! `cargo xtask fuzz`: builds the targets in `proof/fuzz/targets` for libFuzzer, and runs each for some time.
//!
//! It needs no other toolchain or program: it passes cargo-fuzz's flags to the compiler itself, without
//! sanitizers, which need a nightly toolchain. Corpora grow in `target/fuzz`; seeds come from
//! `proof/fuzz/seeds`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::databases::{output, target};
use crate::root;

const USAGE: &str =
    "usage: cargo xtask fuzz [TARGET] [--seconds NUMBER], or cargo xtask fuzz TARGET --input FILE";

/// All targets, in the order in which they run.
const TARGETS: [&str; 7] = ["key", "fingerprint", "response", "config", "webhook", "front", "http2"];

/// Default duration of each target.
const SECONDS: u64 = 60;

/// Compiler flags that report coverage and comparisons to libFuzzer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Limits of one input: its length, its time in seconds, and the memory of the process in megabytes.
const BOUNDS: [&str; 3] = ["-max_len=4096", "-timeout=30", "-rss_limit_mb=2048"];

/// Packages that only the targets need: all others have the versions of the workspace.
const OWN: [&str; 3] = ["arbitrary", "libfuzzer-sys", "semel-fuzz-targets"];

/// Runs the named targets, or one of them with one input.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (targets, arguments) = match arguments {
        [name, rest @ ..] if !name.starts_with("--") => match TARGETS.iter().find(|target| *target == name) {
            Some(target) => (vec![*target], rest),
            None => return Err(format!("there is no target `{name}`, only {}; {USAGE}", TARGETS.join(", "))),
        },
        rest => (TARGETS.to_vec(), rest),
    };
    let (mut seconds, mut input) = (SECONDS, None);
    match *arguments {
        [] => {}
        ["--seconds", number] => {
            seconds = number.parse().map_err(|_| format!("{number:?} is no number; {USAGE}"))?;
        }
        ["--input", file] if targets.len() == 1 => input = Some(file),
        _ => return Err(format!("`{}` is not understood; {USAGE}", arguments.join(" "))),
    }
    let programs = build()?;
    if let Some(file) = input {
        return repeat(&programs.join(targets[0]), file);
    }
    let mut found = Vec::new();
    println!(
        "{:<12} {:>8} {:>12} {:>9} {:>7}  crashes",
        "target", "seconds", "executions", "coverage", "corpus"
    );
    for target in targets {
        found.extend(fuzz(&programs, target, seconds)?);
    }
    match found.len() {
        0 => Ok(()),
        _ => Err(format!("fuzz: something does not hold\n{}", found.join("\n"))),
    }
}

/// Builds all targets, and returns their folder.
fn build() -> Result<PathBuf, String> {
    follow_versions()?;
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    println!("── fuzz: cargo build --release --manifest-path proof/fuzz/targets/Cargo.toml --target {host}");
    let begun = Instant::now();
    // With an explicit target, build scripts and macros are built without these flags.
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--release",
            "--manifest-path",
            "proof/fuzz/targets/Cargo.toml",
            "--target",
            host,
        ])
        .env("CARGO_TARGET_DIR", target()?)
        .env("RUSTFLAGS", FLAGS)
        .current_dir(root())
        .status()
        .map_err(|error| format!("fuzz: cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err("fuzz: the targets cannot be built; libFuzzer is C++, and needs a compiler for it \
                    (`apt-get install g++`)"
            .into());
    }
    println!("── fuzz: built in {} s", begun.elapsed().as_secs());
    Ok(target()?.join(host).join("release"))
}

/// Updates the lock file of the targets. If the workspace has another version of a package, it starts again
/// from the workspace's, and cargo adds the missing packages.
fn follow_versions() -> Result<(), String> {
    let read = |file: &Path| {
        std::fs::read_to_string(file).map_err(|error| format!("fuzz: {}: {error}", file.display()))
    };
    let (ours, theirs) = (root().join("Cargo.lock"), root().join("proof/fuzz/targets/Cargo.lock"));
    let (text, their_text) = (read(&ours)?, read(&theirs)?);
    let known = packages(&text);
    if packages(&their_text).iter().any(|package| !OWN.contains(&package.0) && !known.contains(package)) {
        std::fs::copy(&ours, &theirs).map_err(|error| format!("fuzz: {}: {error}", theirs.display()))?;
    }
    Ok(())
}

/// Returns the names and versions in a lock file.
fn packages(lock: &str) -> Vec<(&str, &str)> {
    let values =
        |name: &'static str| lock.lines().filter_map(move |line| line.strip_prefix(name)?.strip_suffix('"'));
    values("name = \"").zip(values("version = \"")).collect()
}

/// Runs one target for its time. Returns the finding, with the command that repeats it.
fn fuzz(programs: &Path, target: &str, seconds: u64) -> Result<Option<String>, String> {
    let grown = crate::databases::target()?.join("fuzz");
    let (corpus, crashes) = (grown.join("corpus").join(target), grown.join("crashes").join(target));
    for folder in [&corpus, &crashes] {
        std::fs::create_dir_all(folder).map_err(|error| format!("fuzz: {}: {error}", folder.display()))?;
    }
    let log = grown.join(format!("{target}.log"));
    let file = File::create(&log).map_err(|error| format!("fuzz: {}: {error}", log.display()))?;
    let fuzz = root().join("proof/fuzz");
    let dictionary = fuzz.join("dictionaries").join(target);
    let mut program = Command::new(programs.join(target));
    program.arg(&corpus).arg(fuzz.join("seeds").join(target));
    let before = fuzz.join("crashes").join(target);
    program.args(before.is_dir().then_some(before)).args(BOUNDS);
    program.args([format!("-max_total_time={seconds}"), "-print_final_stats=1".to_owned()]);
    program.arg(format!("-artifact_prefix={}/", crashes.display()));
    program.args(dictionary.is_file().then(|| format!("-dict={}", dictionary.display())));
    let begun = Instant::now();
    let status = program.stderr(file).status();
    let status = status.map_err(|error| format!("fuzz: {target} cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    let Figures { executions, coverage, corpus } = Figures::of(&said);
    let crashed = usize::from(!status.success());
    let seconds = begun.elapsed().as_secs();
    println!("{target:<12} {seconds:>8} {executions:>12} {coverage:>9} {corpus:>7}  {crashed}");
    if status.success() {
        return Ok(None);
    }
    let log = log.display();
    Ok(Some(match input(&said) {
        Some(path) => format!(
            "{target}: {path}\n  what it says: {log}\n  again:        cargo xtask fuzz {target} --input {path}"
        ),
        None => format!("{target}: it ended with {status}; {log} says why"),
    }))
}

/// Returns the path of the finding from libFuzzer's output.
fn input(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path)
}

/// Runs one input again, with full output.
fn repeat(program: &Path, file: &str) -> Result<(), String> {
    let status = Command::new(program).arg(file).args(BOUNDS).status();
    match status.map_err(|error| format!("fuzz: {} cannot be run: {error}", program.display()))?.success() {
        true => Ok(()),
        false => Err(format!("fuzz: it does not hold for {file}")),
    }
}

/// Results of a run, as libFuzzer prints them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figures {
    executions: String,
    /// Number of covered edges.
    coverage: String,
    /// Number of inputs in the corpus.
    corpus: String,
}

impl Figures {
    fn of(said: &str) -> Figures {
        let last = said.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: "));
        let after = |name: &str| {
            let mut words = last.unwrap_or_default().split_whitespace().skip_while(|word| *word != name);
            words.nth(1).unwrap_or("?").to_owned()
        };
        let total = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        Figures {
            executions: total.unwrap_or("?").trim().to_owned(),
            coverage: after("cov:"),
            corpus: after("corp:").split('/').next().unwrap_or("?").to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_figures_are_read_from_the_final_summary() {
        let said = "#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                    #900\tDONE   cov: 1234 ft: 2345 corp: 56/7Kb lim: 4096 exec/s: 45 rss: 60Mb\n\
                    stat::number_of_executed_units: 900\n";
        let figures = Figures { executions: "900".into(), coverage: "1234".into(), corpus: "56".into() };
        assert_eq!(Figures::of(said), figures);
    }

    #[test]
    fn found_input_has_a_path() {
        let said = "==7== ERROR: libFuzzer: deadly signal\n\
                    artifact_prefix='/t/key/'; Test unit written to /t/key/crash-ab\nBase64: AA==\n";
        assert_eq!(input(said), Some("/t/key/crash-ab"));
        assert_eq!(input("Done 900 runs in 60 second(s)\n"), None);
    }

    #[test]
    fn packages_are_named_with_their_versions() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\ndependencies = [\n \"b\",\n]\n\n\
                    [[package]]\nname = \"b\"\nversion = \"2.0.0\"\n";
        assert_eq!(packages(lock), [("a", "1.0.0"), ("b", "2.0.0")]);
    }
}
