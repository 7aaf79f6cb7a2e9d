//! A process of the product that can be held at fault points.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use semel_faults::{Lever, Point};
pub(crate) use semel_testkit::process::tail;

use crate::patience;

/// Polling interval for a file.
const PAUSE: Duration = Duration::from_millis(3);

/// A process, and the folder through which it is held. Dropping it kills it.
pub(crate) struct Process {
    process: semel_testkit::process::Process,
    faults: PathBuf,
}

impl Process {
    /// Starts the process and waits for an address after each of these words. Blocks.
    pub(crate) fn start(
        command: Command,
        words: &[&str],
        log: &Path,
        faults: &Path,
    ) -> Result<Process, String> {
        Process::start_armed(command, words, log, faults, &[])
    }

    /// Starts the process with these points armed before it runs. Blocks.
    pub(crate) fn start_armed(
        mut command: Command,
        words: &[&str],
        log: &Path,
        faults: &Path,
        armed: &[Point],
    ) -> Result<Process, String> {
        // Files of an earlier process do not apply to this one.
        let _ = std::fs::remove_dir_all(faults);
        std::fs::create_dir_all(faults).map_err(|error| format!("{}: {error}", faults.display()))?;
        for point in armed {
            write(&faults.join(point.name()), "")?;
        }
        command.env(semel_faults::VARIABLE, faults);
        let process = semel_testkit::process::Process::start(command, words, log)?;
        Ok(Process { process, faults: faults.to_owned() })
    }

    /// Returns the address for requests.
    pub(crate) fn address(&self) -> SocketAddr {
        self.process.addresses()[0]
    }

    /// Kills the process. Blocks until it is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits until the process has ended by itself, and returns its exit code.
    pub(crate) async fn ended(&mut self) -> Result<i32, String> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.exit_status()? {
                return status.code().ok_or_else(|| "a signal ended it".to_owned());
            }
            if begun.elapsed() > patience::PATIENCE {
                return Err(format!("it has not ended in {} s", patience::PATIENCE.as_secs()));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Suspends the process, or resumes it.
    pub(crate) fn stop(&self, stop: bool) {
        if stop { self.process.suspend() } else { self.process.resume() }
    }

    /// Limits every file it writes to this length; `None` lifts the limit.
    pub(crate) fn limit_files(&self, length: Option<u64>) -> Result<(), String> {
        self.process.limit_files(length)
    }

    /// Arms a point: the first task or thread to reach it from now on is held there.
    pub(crate) fn arm(&self, point: Point) -> Result<(), String> {
        write(&self.faults.join(point.name()), "")
    }

    /// Waits until a task or thread is held at the point.
    pub(crate) async fn is_held(&self, point: Point) -> Result<(), String> {
        let file = self.reached(point);
        patience::until(&format!("nobody came to {}", point.name()), PAUSE, || file.exists()).await
    }

    /// Waits until the armed point was taken. Others may be held there already.
    pub(crate) async fn is_taken(&self, point: Point) -> Result<(), String> {
        let file = self.faults.join(point.name());
        patience::until(&format!("nobody came to {}", point.name()), PAUSE, || !file.exists()).await
    }

    /// Releases the task or thread that is held at the point.
    pub(crate) fn release(&self, point: Point) {
        let _ = std::fs::remove_file(self.faults.join(point.name()));
        let _ = std::fs::remove_file(self.reached(point));
    }

    fn reached(&self, point: Point) -> PathBuf {
        self.faults.join(point.name()).with_extension("reached")
    }

    /// Pulls a lever, and waits until the process has handled it.
    pub(crate) async fn pull(&self, lever: Lever) -> Result<(), String> {
        let (file, draft) = (self.faults.join(lever.name()), self.faults.join("draft"));
        write(&draft, &lever.value())?;
        std::fs::rename(&draft, &file).map_err(|error| error.to_string())?;
        patience::until(&format!("nobody pulled {}", lever.name()), PAUSE, || !file.exists()).await
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}
