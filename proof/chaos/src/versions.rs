//! Versions of the members of a run: the present one, and the next one, which only tests have; or another program, such as the last
//! release, and the present one. `upgrade.rs` changes them while the run lasts.
//!
//! Invariant: a member is killed and started by one task at a time, in the version that it has then.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use semel_testkit::Chance;
use tokio::sync::{Mutex, MutexGuard};

/// Suffix of a reason that only the next version writes.
pub(crate) const NEXT_REASON: &str = "_in_next_version";

/// Versions of the members of a run: each gateway's, then the service's.
pub(crate) struct Versions {
    pub(crate) is_mixed: bool,
    /// Program of the old version, if it is not the present one.
    pub(crate) old: Option<PathBuf>,
    pub(crate) members: Vec<MemberVersion>,
    /// True while a member that is killed comes back in either version.
    pub(crate) draws: AtomicBool,
    pub(crate) is_finished: AtomicBool,
}

/// Version of a member.
pub(crate) struct MemberVersion {
    pub(crate) is_next: AtomicBool,
    /// Held while the member is killed and started.
    pub(crate) turn: Mutex<()>,
}

impl Versions {
    /// Returns the versions of a run with this number of gateways. In a mixed run, the first one, which is never killed, is of the
    /// next version.
    pub(crate) fn new(is_mixed: bool, old: Option<PathBuf>, gateways: usize) -> Versions {
        let member = |number| MemberVersion {
            is_next: AtomicBool::new(is_mixed && number == 0),
            turn: Mutex::new(()),
        };
        Versions {
            is_mixed,
            old,
            members: (0..=gateways).map(member).collect(),
            draws: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
        }
    }

    /// Waits until nobody else kills or starts this member, and draws the version in which it comes back, if it is free.
    pub(crate) async fn turn(&self, member: usize, chance: &mut Chance) -> MutexGuard<'_, ()> {
        let turn = self.members[member].turn.lock().await;
        if self.draws.load(Ordering::SeqCst) && member > 0 {
            self.members[member].is_next.store(chance.percent(50), Ordering::SeqCst);
        }
        turn
    }

    /// Returns this gateway's program, of which `present` is the one of the present version.
    pub(crate) fn program<'a>(&'a self, gateway: usize, present: &'a Path) -> &'a Path {
        let is_next = self.members[gateway].is_next.load(Ordering::SeqCst);
        if is_next { present } else { self.old_program(present) }
    }

    /// Returns the program of the old version.
    pub(crate) fn old_program<'a>(&'a self, present: &'a Path) -> &'a Path {
        self.old.as_deref().unwrap_or(present)
    }

    /// Makes the command one of this member's version.
    pub(crate) fn apply(&self, member: usize, command: &mut Command) {
        if self.members[member].is_next.load(Ordering::SeqCst) && self.old.is_none() {
            command.env(semel_faults::NEXT_VERSION, "1");
        }
    }

    /// Makes the command one of an operator, whose program is of the newer version in a mixed run.
    pub(crate) fn apply_to_operator(&self, command: &mut Command) {
        if self.is_mixed && self.old.is_none() {
            command.env(semel_faults::NEXT_VERSION, "1");
        }
    }
}

/// Returns a reason by its name in this version.
pub(crate) fn known_reason(reason: &str) -> &str {
    reason.trim_end_matches(NEXT_REASON)
}
