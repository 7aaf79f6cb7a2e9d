//! Run of the program of operators.

use std::time::Duration;

use tokio::process::Command;

/// Timeout of the program.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a command of an operator. Returns true if it was done, `None` if that is unknown.
pub async fn done(mut command: Command, patience: Duration) -> Option<bool> {
    command.kill_on_drop(true).stdin(std::process::Stdio::null());
    let output = tokio::time::timeout(patience, command.output()).await;
    match output.ok().and_then(Result::ok).and_then(|output| output.status.code()) {
        Some(0) => Some(true),
        Some(1) => Some(false),
        _ => None,
    }
}
