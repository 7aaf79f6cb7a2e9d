//! A process of our own: started, killed, stopped and continued by its id; held at named places.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use semel_faults::{Lever, Point};

use crate::patience;

/// How often a file is looked for.
const PAUSE: Duration = Duration::from_millis(3);

/// A process, and where it listens. Dropping it ends it.
pub(crate) struct Process {
    child: Child,
    addresses: Vec<SocketAddr>,
    faults: PathBuf,
}

impl Process {
    /// Starts it, and waits until it says where it listens, after each of these words. It can be held through the folder
    /// `faults`. Blocks.
    pub(crate) fn start(
        command: Command,
        words: &[&str],
        log: &Path,
        faults: &Path,
    ) -> Result<Process, String> {
        Process::start_armed(command, words, log, faults, &[])
    }

    /// The same, with these points armed before it runs.
    pub(crate) fn start_armed(
        mut command: Command,
        words: &[&str],
        log: &Path,
        faults: &Path,
        armed: &[Point],
    ) -> Result<Process, String> {
        // What an earlier process left there is not about this one.
        let _ = std::fs::remove_dir_all(faults);
        std::fs::create_dir_all(faults).map_err(|error| format!("{}: {error}", faults.display()))?;
        for point in armed {
            write(&faults.join(point.name()), "")?;
        }
        command.env(semel_faults::VARIABLE, faults);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("it cannot be run: {error}"))?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let mut process = Process { child, addresses: Vec::new(), faults: faults.to_owned() };
        let (Some(output), Some(mut errors)) = (output, errors) else {
            return Err("it has no output".into());
        };
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log);
        let mut file = file.map_err(|error| format!("{}: {error}", log.display()))?;
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
                format!("it said {line:?} where {word:?} was expected; its log ends with {}", tail(log))
            })?;
            process.addresses.push(address);
        }
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Ok(process)
    }

    /// Where it takes requests.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Ends it with SIGKILL. Blocks until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended by itself, and gives its exit code.
    pub(crate) async fn ended(&mut self) -> Result<i32, String> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return status.code().ok_or_else(|| "a signal ended it".to_owned());
            }
            if begun.elapsed() > patience::PATIENCE {
                return Err(format!("it has not ended in {} s", patience::PATIENCE.as_secs()));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Stops it where it is, or lets it go on.
    pub(crate) fn stop(&self, stop: bool) {
        if let Some(pid) = self.pid() {
            // It is ours and not yet waited for, so nobody else has its id.
            let _ = kill_process(pid, if stop { Signal::STOP } else { Signal::CONT });
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// From here on it can write no file beyond this length; without one, it can again.
    pub(crate) fn limit_files(&self, length: Option<u64>) -> Result<(), String> {
        let limit = Rlimit { current: length, maximum: None };
        let limited = self.pid().map(|pid| prlimit(Some(pid), Resource::Fsize, limit));
        match limited {
            Some(Ok(_)) => Ok(()),
            _ => Err("its files cannot be limited".to_owned()),
        }
    }

    /// The first who comes to this point from now on is held there.
    pub(crate) fn arm(&self, point: Point) -> Result<(), String> {
        write(&self.faults.join(point.name()), "")
    }

    /// Waits until somebody is held at the point.
    pub(crate) async fn is_held(&self, point: Point) -> Result<(), String> {
        let file = self.reached(point);
        patience::until(&format!("nobody came to {}", point.name()), PAUSE, || file.exists()).await
    }

    /// Waits until the point is armed no more: somebody came there. Others may be held there already.
    pub(crate) async fn is_taken(&self, point: Point) -> Result<(), String> {
        let file = self.faults.join(point.name());
        patience::until(&format!("nobody came to {}", point.name()), PAUSE, || !file.exists()).await
    }

    /// Lets whoever is held at the point go on.
    pub(crate) fn release(&self, point: Point) {
        let _ = std::fs::remove_file(self.faults.join(point.name()));
        let _ = std::fs::remove_file(self.reached(point));
    }

    fn reached(&self, point: Point) -> PathBuf {
        self.faults.join(point.name()).with_extension("reached")
    }

    /// Pulls a lever, and waits until that was done.
    pub(crate) async fn pull(&self, lever: Lever) -> Result<(), String> {
        let (file, draft) = (self.faults.join(lever.name()), self.faults.join("draft"));
        write(&draft, &lever.value())?;
        std::fs::rename(&draft, &file).map_err(|error| error.to_string())?;
        patience::until(&format!("nobody pulled {}", lever.name()), PAUSE, || !file.exists()).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// The end of a log.
pub(crate) fn tail(log: &Path) -> String {
    // The thread that writes it may be a moment behind.
    std::thread::sleep(Duration::from_millis(100));
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
