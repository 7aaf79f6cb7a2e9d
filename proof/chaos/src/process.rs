//! Processes of this run: started, killed, stopped and continued, each by its id.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use semel_testkit::process::Process;
use tokio::sync::watch;

/// Receiver of requests, a gateway or a service, through all of its processes.
pub struct Member {
    /// Name in the history.
    pub name: String,
    running: Mutex<Option<Process>>,
    /// Number of cuts: a change disconnects all clients that wait for an answer.
    pub cut: watch::Sender<u64>,
}

impl Member {
    /// Returns a member that does not run yet.
    pub fn new(name: impl Into<String>) -> Member {
        Member { name: name.into(), running: Mutex::new(None), cut: watch::Sender::new(0) }
    }

    /// Returns the address for requests, if the process runs.
    pub fn address(&self) -> Option<SocketAddr> {
        self.with(|running| running.addresses().first().copied())
    }

    /// Returns the address for metrics.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.with(|running| running.addresses().get(1).copied())
    }

    /// Returns the id of the current process.
    pub fn process(&self) -> Option<u32> {
        self.with(|running| Some(running.id()))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Process) -> Option<T>) -> Option<T> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(look)
    }

    /// Starts the process, and waits until it has printed an address after each of these words. Blocks.
    pub fn start(&self, command: Command, words: &[&str], log: &Path) -> Result<(), String> {
        let running = Process::start(command, words, log).map_err(|why| format!("{}: {why}", self.name))?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// Returns the beginning of what the process has printed after its addresses.
    pub fn output(&self) -> String {
        self.with(|running| Some(running.output())).unwrap_or_default()
    }

    /// Kills the process with SIGKILL. Blocks until it is gone.
    pub fn kill(&self) {
        // Taken first, so that no client sends to it any more.
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(running);
    }

    /// Returns true if the process has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.with(|running| running.exit_status().ok().flatten()).is_some()
    }

    /// Suspends the process.
    pub fn stop(&self) {
        self.with(|running| {
            running.suspend();
            Some(())
        });
    }

    /// Resumes the process.
    pub fn go_on(&self) {
        self.with(|running| {
            running.resume();
            Some(())
        });
    }

    /// Limits the length of files that the process writes; `None` lifts the limit. Returns true on success.
    pub fn limit_files(&self, length: Option<u64>) -> bool {
        self.with(|running| running.limit_files(length).ok()).is_some()
    }
}
