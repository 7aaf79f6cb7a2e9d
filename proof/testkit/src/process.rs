//! A process that a test starts, stops, limits and kills by its id.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

/// A running process and the addresses it listens on. Dropping it kills it.
pub struct Process {
    child: Child,
    addresses: Vec<SocketAddr>,
    output: Arc<Mutex<String>>,
}

/// Largest part of the output that is kept; the rest is read and dropped.
const KEPT_OUTPUT: usize = 64 * 1024;

impl Process {
    /// Starts the process and reads one address from its output after each of `words`. Its errors are appended to `log`.
    /// Blocks.
    ///
    /// # Errors
    /// Names the text in place of an address, with the end of the process's log.
    pub fn start(mut command: Command, words: &[&str], log: &Path) -> Result<Process, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("it cannot be run: {error}"))?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let mut process = Process { child, addresses: Vec::new(), output: Arc::default() };
        let (Some(output), Some(mut errors)) = (output, errors) else {
            return Err("it has no output".into());
        };
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log);
        let mut file = file.map_err(|error| format!("{}: {error}", log.display()))?;
        // Through a pipe: a limit on the files of the process does not limit its log.
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
                format!("it said {line:?} where {word:?} was expected; its log ends with {}", tail(log))
            })?;
            process.addresses.push(address);
        }
        let kept = process.output.clone();
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while let Ok(1..) = output.read_until(b'\n', &mut line) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() + line.len() <= KEPT_OUTPUT {
                    kept.push_str(&String::from_utf8_lossy(&line));
                }
                line.clear();
            }
        });
        Ok(process)
    }

    /// Returns the addresses it listens on, in the order of their words.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the beginning of what it has printed after its addresses.
    pub fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL. Blocks until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns the exit status of a process that has ended by itself.
    ///
    /// # Errors
    /// The operating system's.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child.try_wait().map_err(|error| error.to_string())
    }

    /// Suspends the process.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes a suspended process.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // It is our child and not yet waited for, so no other process has its id.
            let _ = kill_process(pid, signal);
        }
    }

    /// Limits every file it writes to this length; `None` lifts the limit.
    ///
    /// # Errors
    /// If the limit did not take effect.
    pub fn limit_files(&self, length: Option<u64>) -> Result<(), String> {
        let limit = Rlimit { current: length, maximum: None };
        match self.pid().map(|pid| prlimit(Some(pid), Resource::Fsize, limit)) {
            Some(Ok(_)) => Ok(()),
            _ => Err("its files cannot be limited".to_owned()),
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the last lines of a log.
pub fn tail(log: &Path) -> String {
    // The thread that writes it may be a moment behind.
    std::thread::sleep(Duration::from_millis(100));
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
