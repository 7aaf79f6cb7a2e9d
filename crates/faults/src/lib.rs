//! Named places in Semel at which a test may hold a process, and levers that it may pull in one.
//!
//! But for the levers, the process does nothing to itself: it stands still at a [`Point`], and the test kills it, stops it, or breaks what it
//! stands on. Which process may be held says the variable `SEMEL_FAULTS` of its environment, which names a folder. What
//! passes through that folder is in `folder.rs`.
//!
//! Invariant: only builds with the feature `fault-points` contain them. In others every function here is empty, which a test
//! checks in the compiled code.

#[cfg(feature = "fault-points")]
mod folder;
mod point;

pub use point::{Lever, Point};

/// The variable that names the folder.
pub const VARIABLE: &str = "SEMEL_FAULTS";

/// The variable that has a process know the version of the schema that only tests have, so that a store of the last release is an
/// older one to it.
pub const NEXT_SCHEMA: &str = "SEMEL_FAULTS_NEXT_SCHEMA";

/// Returns true in a process that knows the version of the schema that only tests have.
pub fn knows_next_schema() -> bool {
    #[cfg(feature = "fault-points")]
    return std::env::var_os(NEXT_SCHEMA).is_some();
    #[cfg(not(feature = "fault-points"))]
    false
}

/// Whether this build can be held at all.
pub const BUILT_IN: bool = cfg!(feature = "fault-points");

/// A task is here. It goes on at once, unless a test holds it.
pub async fn reached(point: Point) {
    #[cfg(feature = "fault-points")]
    if let Some(held) = folder::take(point) {
        folder::Waiting::new(held).await;
    }
    #[cfg(not(feature = "fault-points"))]
    let _ = point;
}

/// A thread is here. It goes on at once, unless a test holds it.
pub fn reached_by_thread(point: Point) {
    #[cfg(feature = "fault-points")]
    if let Some(held) = folder::take(point) {
        held.wait();
    }
    #[cfg(not(feature = "fault-points"))]
    let _ = point;
}

/// Has `pull` called with each lever that a test pulls in this process, from here on and on a thread of its own. It says
/// whether the lever is one of its own; the test is told once somebody took it.
pub fn levers(pull: impl Fn(Lever) -> bool + Send + 'static) {
    #[cfg(feature = "fault-points")]
    folder::watch(pull);
    #[cfg(not(feature = "fault-points"))]
    let _ = pull;
}
