//! Processes of a test that it did not start itself, found by their working folder: the servers that a manager starts.
//!
//! Callers own the folder, so a process that works in it is theirs.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::postgres::user_for_servers;

/// Longest time for killed processes to end.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// Returns the living processes whose working folder is this one, or is below it.
pub fn within(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |process: &u32| std::fs::read_link(format!("/proc/{process}/cwd"));
    numbers.filter(|process| of(process).is_ok_and(|cwd| cwd.starts_with(folder))).collect()
}

/// Kills them all with SIGKILL. Blocks until they are gone.
///
/// # Errors
/// If some are still there after a time.
pub fn kill_within(folder: &Path) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let processes = within(folder);
        if processes.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("processes {processes:?} in {} cannot be killed", folder.display()));
        }
        signal(&processes, Signal::KILL);
        std::thread::sleep(POLL);
    }
}

/// Suspends them all, those that start meanwhile included.
pub fn suspend_within(folder: &Path) {
    let mut known = Vec::new();
    loop {
        let processes = within(folder);
        if processes.iter().all(|process| known.contains(process)) {
            return;
        }
        signal(&processes, Signal::STOP);
        known = processes;
    }
}

/// Resumes them all.
pub fn resume_within(folder: &Path) {
    signal(&within(folder), Signal::CONT);
}

/// Limits every file that they write to this length, as on a full disk; `None` removes the limit. Those that start later
/// inherit it.
///
/// # Errors
/// If a living process cannot be limited.
pub fn limit_files_within(folder: &Path, length: Option<u64>) -> Result<(), String> {
    let limit = format!("--fsize={}:", length.map_or("unlimited".to_owned(), |length| length.to_string()));
    // Only the processes' own user may.
    let user = user_for_servers().map_err(|error| error.to_string())?;
    let is_limited = |process: &u32| {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &process.to_string(), &limit]).stderr(Stdio::null());
        if let Some((user, group)) = user {
            command.uid(user).gid(group);
        }
        command.status().is_ok_and(|status| status.success())
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let failed: Vec<u32> = within(folder).into_iter().filter(|process| !is_limited(process)).collect();
        // A process that was just ending is gone by the next round.
        if failed.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("the files of processes {failed:?} cannot be limited by `prlimit`"));
        }
        std::thread::sleep(POLL);
    }
}

/// Asks one process to end.
pub fn terminate(process: u32) {
    signal(&[process], Signal::TERM);
}

fn signal(processes: &[u32], signal: Signal) {
    for process in processes {
        if let Some(pid) = pid(*process) {
            // One that has ended meanwhile needs no signal.
            let _ = kill_process(pid, signal);
        }
    }
}

fn pid(process: u32) -> Option<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_the_folder_are_found_and_killed() {
        let (own, other) =
            (tempfile::tempdir().expect("there is room"), tempfile::tempdir().expect("there is room"));
        let inner = own.path().join("inner");
        std::fs::create_dir(&inner).expect("there is room");
        let start =
            |folder: &Path| Command::new("sleep").arg("60").current_dir(folder).spawn().expect("it runs");
        let (mut one, mut two) = (start(&inner), start(other.path()));
        let found = within(own.path());
        assert_eq!(found, [one.id()]);
        suspend_within(own.path());
        kill_within(own.path()).expect("it can be killed");
        assert!(!one.wait().expect("it has ended").success());
        assert_eq!(two.try_wait().expect("it can be asked"), None);
        two.kill().expect("it is ours");
        two.wait().expect("it ends");
    }
}
