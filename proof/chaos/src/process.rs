//! Processes of our own: started, killed, stopped and continued, each by its id.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tokio::sync::watch;

/// One who takes requests: a gateway, or a service, through all the processes that it has had.
pub(crate) struct Member {
    pub(crate) name: String,
    running: Mutex<Option<Running>>,
    /// Whoever waits for an answer is cut off when this changes.
    pub(crate) cut: watch::Sender<u64>,
}

/// A process, and where it listens.
struct Running {
    process: Child,
    addresses: Vec<SocketAddr>,
}

impl Member {
    pub(crate) fn new(name: impl Into<String>) -> Member {
        Member { name: name.into(), running: Mutex::new(None), cut: watch::Sender::new(0) }
    }

    /// Where it takes requests, if it does now.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.with(|running| running.addresses.first().copied())
    }

    /// Where it tells what it counts.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.with(|running| running.addresses.get(1).copied())
    }

    /// Which process it is now.
    pub(crate) fn process(&self) -> Option<u32> {
        self.with(|running| Some(running.process.id()))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Running) -> Option<T>) -> Option<T> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(look)
    }

    /// Starts its process, and waits until it says where it listens, after each of these words. Blocks.
    pub(crate) fn start(&self, command: Command, words: &[&str], log: &Path) -> Result<(), String> {
        let running = launch(command, words, log).map_err(|why| format!("{}: {why}", self.name))?;
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
        self.with(|running| running.process.try_wait().ok().flatten()).is_some()
    }

    /// Stops its process where it is.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.pid();
        if let Some(pid) = pid {
            // Its process is ours and not yet waited for, so nobody else has its id.
            let _ = kill_process(pid, signal);
        }
    }

    fn pid(&self) -> Option<Pid> {
        self.process().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }

    /// From here on it can write no file beyond this length; without one, it can again. Says whether that took effect.
    pub(crate) fn limit_files(&self, length: Option<u64>) -> bool {
        let limit = Rlimit { current: length, maximum: None };
        self.pid().is_some_and(|pid| prlimit(Some(pid), Resource::Fsize, limit).is_ok())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(mut command: Command, words: &[&str], log: &Path) -> Result<Running, String> {
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("it cannot be run: {error}"))?;
    let (output, errors) = (process.stdout.take(), process.stderr.take());
    let mut running = Running { process, addresses: Vec::new() };
    let (Some(output), Some(mut errors)) = (output, errors) else { return Err("it has no output".into()) };
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_err(|error| format!("{}: {error}", log.display()))?;
    // Through a pipe: what limits the files of the process is not to limit what it says.
    std::thread::spawn(move || {
        let mut chunk = [0; 16 * 1024];
        while let Ok(length @ 1..) = errors.read(&mut chunk) {
            let _ = file.write_all(&chunk[..length]);
        }
    });
    let mut output = BufReader::new(output);
    for word in words {
        let mut line = String::new();
        output.read_line(&mut line).map_err(|error| error.to_string())?;
        let address = line.trim().strip_prefix(word).and_then(|rest| rest.parse().ok());
        let address = address.ok_or_else(|| {
            format!("it said {line:?} where {word:?} was expected; its log is {}", log.display())
        })?;
        running.addresses.push(address);
    }
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    Ok(running)
}
