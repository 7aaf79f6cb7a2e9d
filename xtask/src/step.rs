//! One step of a command: a run of cargo.

use std::process::Command;
use std::time::Instant;

use crate::root;

/// Runs cargo with these arguments, and prints the time that it took.
pub(crate) fn step(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    println!("── {name}: cargo {}", arguments.join(" "));
    let begun = Instant::now();
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root())
        .status()
        .map_err(|error| format!("{name}: cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err(format!("{name} failed"));
    }
    println!("── {name}: done in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Returns a built program of this workspace: it is beside this one.
pub(crate) fn program(name: &str, arguments: &[&str]) -> Result<Command, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own.with_file_name(name));
    command.args(arguments).current_dir(root());
    Ok(command)
}
