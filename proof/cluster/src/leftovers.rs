//! Cleaning up after a run: at its end, and by a later run after one that was killed.
//!
//! Only what such a run made is touched: processes that work in its folder, names with its process id, its folder.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use semel_testkit::processes;
use tempfile::TempDir;

use crate::network::{self, NODES};
use crate::programs::SHIFTED;

/// Beginning of the names of folders.
pub(crate) const PREFIX: &str = "semel-cluster-";
/// File with the owner of a folder: its process id, and the time at which that process started.
const OWNER: &str = "owner";

/// Makes a folder that a later run recognises as that of this process, and lets the user of servers reach it.
pub(crate) fn make_folder() -> Result<TempDir, String> {
    let process = std::process::id();
    let started = started(process).ok_or("/proc is needed to recognise this run later")?;
    let make = || {
        let open = std::fs::Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(open).tempdir()?;
        std::fs::write(folder.path().join(OWNER), format!("{process} {started}"))?;
        Ok(folder)
    };
    make().map_err(|error: std::io::Error| error.to_string())
}

/// Removes everything that this process has made and that still exists: processes, namespaces, links, shared memory.
pub(crate) fn clean(folder: &Path) {
    if let Err(why) = clean_up(folder, std::process::id()) {
        eprintln!("semel-cluster: {why}");
    }
}

fn clean_up(folder: &Path, owner: u32) -> Result<(), String> {
    processes::kill_within(folder)?;
    network::remove(owner);
    forget_shared_memory(folder);
    Ok(())
}

/// Removes everything but the history and the logs, which stay for a reader.
pub(crate) fn leave_history(folder: &Path) {
    for seat in NODES {
        let _ = std::fs::remove_dir_all(folder.join(seat.name));
    }
    let _ = std::fs::remove_file(folder.join(OWNER));
}

/// Removes what runs that no longer exist have left. Returns their folders.
pub(crate) fn remove() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let mut removed = Vec::new();
    for folder in folders.map(|entry| entry.path()).filter(|folder| is_ours(folder)) {
        let text = std::fs::read_to_string(folder.join(OWNER)).unwrap_or_default();
        let Some((Ok(owner), began)) = text.split_once(' ').map(|(owner, began)| (owner.parse(), began))
        else {
            continue;
        };
        let is_alive = started(owner).as_deref() == Some(began);
        if !is_alive && clean_up(&folder, owner).is_ok() && std::fs::remove_dir_all(&folder).is_ok() {
            removed.push(folder);
        }
    }
    removed
}

/// Returns true for a folder that this user has made.
fn is_ours(folder: &Path) -> bool {
    let own = Path::new("/proc/self").metadata().map(|own| own.uid()).ok();
    folder.symlink_metadata().is_ok_and(|there| there.is_dir() && Some(there.uid()) == own)
}

/// Removes the shared memory that killed servers and libfaketime have left.
pub(crate) fn forget_shared_memory(folder: &Path) {
    for seat in NODES {
        let file = folder.join(seat.name).join("database/data/postmaster.pid");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        // The id is the second word of the seventh line.
        if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm").args(["-m", id]).output();
        }
        let shifted = folder.join(seat.name).join("database").join(SHIFTED);
        let shifted = std::fs::read_to_string(shifted).unwrap_or_default();
        for process in shifted.lines().filter_map(|line| line.parse::<u32>().ok()) {
            let _ = std::fs::remove_file(format!("/dev/shm/faketime_shm_{process}"));
            let _ = std::fs::remove_file(format!("/dev/shm/sem.faketime_sem_{process}"));
        }
    }
}

/// Returns the time at which a process started, in ticks since the machine did.
fn started(process: u32) -> Option<String> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it is in parentheses and may have any character.
    let (_, rest) = line.rsplit_once(") ")?;
    rest.split(' ').nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_a_run_that_has_ended_is_removed_with_its_processes_and_one_that_lives_stays() {
        let (alive, dead) = (make_folder().expect("there is room"), make_folder().expect("there is room"));
        // No process has this number.
        std::fs::write(dead.path().join(OWNER), "4194305 1").expect("there is room");
        let start =
            |folder: &Path| Command::new("sleep").arg("60").current_dir(folder).spawn().expect("it runs");
        let (mut stays, mut ends) = (start(alive.path()), start(dead.path()));
        let removed = remove();
        assert!(removed.contains(&dead.path().to_owned()) && !removed.contains(&alive.path().to_owned()));
        assert!(!ends.wait().expect("it has ended").success());
        assert_eq!(stays.try_wait().expect("it can be asked"), None);
        clean(alive.path());
        assert!(!stays.wait().expect("it has ended").success());
    }

    #[test]
    fn a_living_process_has_its_own_start() {
        let own = std::process::id();
        assert!(started(own).is_some_and(|ticks| ticks.parse::<u64>().is_ok()));
        assert_eq!(started(own), started(own));
        assert_eq!(started(4_194_305), None);
    }
}
