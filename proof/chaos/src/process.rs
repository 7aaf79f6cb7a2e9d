//! Processes of our own: started, killed, stopped and continued, each by its id.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use semel_testkit::process::Process;
use tokio::sync::watch;

/// One who takes requests: a gateway, or a service, through all the processes that it has had.
pub(crate) struct Member {
    pub(crate) name: String,
    running: Mutex<Option<Process>>,
    /// Whoever waits for an answer is cut off when this changes.
    pub(crate) cut: watch::Sender<u64>,
}

impl Member {
    pub(crate) fn new(name: impl Into<String>) -> Member {
        Member { name: name.into(), running: Mutex::new(None), cut: watch::Sender::new(0) }
    }

    /// Where it takes requests, if it does now.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.with(|running| running.addresses().first().copied())
    }

    /// Where it tells what it counts.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.with(|running| running.addresses().get(1).copied())
    }

    /// Which process it is now.
    pub(crate) fn process(&self) -> Option<u32> {
        self.with(|running| Some(running.id()))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Process) -> Option<T>) -> Option<T> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(look)
    }

    /// Starts its process, and waits until it says where it listens, after each of these words. Blocks.
    pub(crate) fn start(&self, command: Command, words: &[&str], log: &Path) -> Result<(), String> {
        let running = Process::start(command, words, log).map_err(|why| format!("{}: {why}", self.name))?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// Ends its process with SIGKILL. Blocks until it is gone.
    pub(crate) fn kill(&self) {
        // Taken first: nobody is to send it anything any more.
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(running);
    }

    /// Whether its process has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.with(|running| running.exit_status().ok().flatten()).is_some()
    }

    /// Stops its process where it is.
    pub(crate) fn stop(&self) {
        self.with(|running| {
            running.suspend();
            Some(())
        });
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.with(|running| {
            running.resume();
            Some(())
        });
    }

    /// From here on it can write no file beyond this length; without one, it can again. Says whether that took effect.
    pub(crate) fn limit_files(&self, length: Option<u64>) -> bool {
        self.with(|running| running.limit_files(length).ok()).is_some()
    }
}
