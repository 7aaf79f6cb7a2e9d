//! `cargo xtask chaos`: the test of a PostgreSQL server that is killed all the time, for longer than in `cargo xtask
//! test`, or once more with the same seed.

use crate::{databases, test};

const USAGE: &str = "usage: cargo xtask chaos [--minutes NUMBER] [--seed NUMBER]";

/// How long, if nobody says.
const MINUTES: &str = "10";

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (mut minutes, mut seed) = (MINUTES, None);
    let mut rest = arguments;
    while let [name, value, others @ ..] = rest {
        value.parse::<u64>().map_err(|_| format!("{value:?} is no number; {USAGE}"))?;
        match *name {
            "--minutes" => minutes = value,
            "--seed" => seed = Some(*value),
            other => return Err(format!("`{other}` is unknown; {USAGE}")),
        }
        rest = others;
    }
    if let [lone, ..] = rest {
        return Err(format!("`{lone}` has no value, or is unknown; {USAGE}"));
    }
    let installed = databases::install()?;
    let shared = installed.start()?;
    let mut variables = shared.variables();
    variables.push(("SEMEL_CHAOS_MINUTES", minutes));
    variables.extend(seed.map(|seed| ("SEMEL_CHAOS_SEED", seed)));
    // Not by nextest, which ends what takes so long.
    let words = ["test", "--package", "semel-stores", "--all-features", "--test", "it"];
    let words = [&words[..], &["postgres_chaos", "--", "--nocapture"]].concat();
    test::step("chaos", &words, &variables)
}
