//! Signals of `semel serve`: SIGTERM and SIGINT stop it, SIGHUP makes it reload files. Once these handlers
//! are installed, none of the three ends the process by itself.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Time after the first stop signal in which further ones count as repetitions: terminals and supervisors
/// often send two.
const REPEATED: Duration = Duration::from_secs(5);

/// Request by a signal.
pub(super) enum SignalRequest {
    /// SIGHUP: reload files.
    Reload,
    /// SIGTERM or SIGINT, by name.
    Stop(&'static str),
}

/// Signals that this process handles.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers.
    pub(super) fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalRequest::Stop("SIGINT"),
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }

    /// Waits for a stop signal, before any file can be reloaded.
    pub(super) async fn stop(&mut self) -> &'static str {
        loop {
            if let SignalRequest::Stop(signal) = self.next().await {
                return signal;
            }
        }
    }

    /// Waits after the first stop signal for one that is no repetition of it.
    pub(super) async fn give_up(mut self) {
        let first = Instant::now();
        loop {
            match self.next().await {
                SignalRequest::Reload => {
                    tracing::info!(signal = "SIGHUP", "stopping: no files are read again");
                }
                SignalRequest::Stop(signal) if first.elapsed() < REPEATED => {
                    let seconds = REPEATED.as_secs();
                    tracing::info!(
                        signal,
                        "stopping already: a signal changes nothing within {seconds} s of the first; a later one ends the wait"
                    );
                }
                SignalRequest::Stop(signal) => {
                    tracing::warn!(signal, "the wait is over: commands that still run become unknown");
                    return;
                }
            }
        }
    }
}
