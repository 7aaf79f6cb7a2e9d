//! `semel reconcile ledger`: what others say was done, against what we believe was done.

mod ledger;

use anyhow::Context;
use clap::{ArgMatches, Command};

use super::Done;

pub(super) fn command() -> Command {
    Command::new("reconcile")
        .about("Compare what was done with what others say was done")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(ledger::command())
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let (_, matches) = matches.subcommand().context("a subcommand is required")?;
    ledger::run(matches)
}
