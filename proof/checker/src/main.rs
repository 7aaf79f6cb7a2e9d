//! `semel-checker FILE`: judges a history and prints its violations.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

const USAGE: &str = "\
usage: semel-checker FILE

Judges the history in FILE (JSON lines; the format is in the documentation of this crate).
Exit codes: 0 nothing is violated; 1 something is, and the stories say what; 2 this is no whole history.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file] = &arguments[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match judge(file) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("semel-checker: {file}: {why}");
            ExitCode::from(2)
        }
    }
}

fn judge(file: &str) -> Result<bool, String> {
    let opened = File::open(file).map_err(|error| error.to_string())?;
    let events = semel_checker::read(BufReader::new(opened)).map_err(|error| error.to_string())?;
    let report = semel_checker::check(&events).map_err(|error| error.to_string())?;
    println!("{}\n{report}", semel_checker::Tally::of(&events));
    Ok(report.violations.is_empty())
}
