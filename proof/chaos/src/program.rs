//! One run of the program that operators have.

use std::time::Duration;

use tokio::process::Command;

/// How long the program may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a command of an operator. Returns whether it was done; `None` if nobody knows.
pub(crate) async fn done(mut command: Command, patience: Duration) -> Option<bool> {
    command.kill_on_drop(true).stdin(std::process::Stdio::null());
    let output = tokio::time::timeout(patience, command.output()).await;
    match output.ok().and_then(Result::ok).and_then(|output| output.status.code()) {
        Some(0) => Some(true),
        Some(1) => Some(false),
        _ => None,
    }
}
