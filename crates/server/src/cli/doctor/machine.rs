//! Checks of the machine: disk space and open files.

use std::path::Path;

use rustix::fs::statvfs;
use semel_stores::doctor::{Check, in_bytes};

/// Free space in bytes below which a disk is low.
const LOW_DISK_BYTES: u64 = 256 << 20;

/// Checks the disk of a file that exists or will exist; `None` if the system gives no facts.
pub(super) fn disk(file: &Path) -> Option<Check> {
    let name = "disk";
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = if file.exists() { file } else { folder };
    if let Some((kind, is_network)) = kind(place) {
        return Some(if is_network {
            Check::fail(
                name,
                format!(
                    "the file is on a network file system ({kind}), whose locks and flushes SQLite cannot rely on"
                ),
                "move it to a local disk: on this one, two requests can claim the same key",
            )
        } else {
            Check::warn(
                name,
                format!("the file is on {kind}, and lost when this machine restarts"),
                "move it to a disk",
            )
        });
    }
    let room = statvfs(place).ok()?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let found = format!("{} free", in_bytes(free));
    Some(match free {
        0..LOW_DISK_BYTES => {
            Check::warn(name, found, "make room: on a full disk nothing can be claimed, and commands get 503")
        }
        _ => Check::ok(name, found),
    })
}

/// Returns a file system that loses data or breaks locking rules, and true if other machines share it.
#[cfg(target_os = "linux")]
fn kind(place: &Path) -> Option<(&'static str, bool)> {
    /// Numbers of file systems on Linux, from statfs(2).
    const KINDS: [(u32, &str, bool); 8] = [
        (0x6969, "NFS", true),
        (0x517B, "SMB", true),
        (0xFF53_4D42, "CIFS", true),
        (0xFE53_4D42, "SMB2", true),
        (0x5346_414F, "AFS", true),
        (0x00C3_6400, "CephFS", true),
        (0x0102_1994, "tmpfs, in memory", false),
        (0x8584_58F6, "ramfs, in memory", false),
    ];
    let number = rustix::fs::statfs(place).ok()?.f_type;
    // The type of the number differs between architectures: signed, or 64 bits.
    let number = number as u32;
    KINDS.iter().find(|(kind, ..)| *kind == number).map(|(_, name, is_network)| (*name, *is_network))
}

#[cfg(not(target_os = "linux"))]
fn kind(_: &Path) -> Option<(&'static str, bool)> {
    None
}

/// Checks that enough files can be open for the allowed connections. The gateway raises its limit to the
/// maximum.
pub(super) fn open_files(max_connections: usize) -> Check {
    let name = "open files";
    // One to the client, and one to the upstream.
    let needed = 2 * max_connections as u64;
    match rlimit::Resource::NOFILE.get() {
        Err(error) => Check::warn(name, format!("the limit cannot be read: {error}"), "look at `ulimit -Hn`"),
        Ok((_, hard)) if hard < needed => Check::warn(
            name,
            format!("at most {hard}, and {max_connections} connections may need {needed}"),
            "raise the limit (`ulimit -Hn`, LimitNOFILE= of systemd), or lower `server.max_connections`",
        ),
        Ok((_, hard)) => Check::ok(name, format!("at most {hard}, for {max_connections} connections")),
    }
}

#[cfg(test)]
mod tests {
    use semel_stores::doctor::Health;

    use super::*;

    #[test]
    fn a_file_that_is_not_there_will_be_on_the_disk_of_its_folder() {
        let folder = tempfile::tempdir().expect("there is room");
        assert!(disk(&folder.path().join("semel.db")).is_some());
        assert!(disk(Path::new("semel.db")).is_some(), "the folder of a bare name is the current one");
        assert_eq!(disk(&folder.path().join("nowhere/semel.db")), None);
    }

    #[test]
    fn the_doctor_warns_if_connections_exceed_the_open_file_limit() {
        assert!(matches!(open_files(usize::MAX / 4).health, Health::Warn(_)));
        assert_eq!(open_files(1).health, Health::Ok);
    }
}
