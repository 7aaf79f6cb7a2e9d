//! A version of Semel that comes after this one and that only tests have: one more script of the schema, one more version of the
//! fingerprint, one more reason. It proves that two versions can work on one store.
//!
//! Invariant: only a build with the feature `fault-points` can be it, and only if its environment says so.

#[cfg(feature = "fault-points")]
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// Environment variable that makes a process the next version.
pub const NEXT_VERSION: &str = "SEMEL_FAULTS_NEXT_VERSION";

/// True once this process may write the formats of the next version.
#[cfg(feature = "fault-points")]
static WRITES: AtomicBool = AtomicBool::new(false);

/// Returns true if this process is the next version.
pub fn is_next_version() -> bool {
    #[cfg(feature = "fault-points")]
    {
        static IS_NEXT: OnceLock<bool> = OnceLock::new();
        *IS_NEXT.get_or_init(|| std::env::var_os(NEXT_VERSION).is_some())
    }
    #[cfg(not(feature = "fault-points"))]
    false
}

/// Allows this process to write the formats of the next version: its store is read by no older program any more.
pub fn write_next_formats() {
    #[cfg(feature = "fault-points")]
    WRITES.store(is_next_version(), Ordering::SeqCst);
}

/// Returns true if this process may write the formats of the next version.
pub fn writes_next_formats() -> bool {
    #[cfg(feature = "fault-points")]
    return WRITES.load(Ordering::SeqCst);
    #[cfg(not(feature = "fault-points"))]
    false
}
