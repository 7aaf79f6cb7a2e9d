//! Named points in Semel at which a test may hold a process, and levers that a test may pull inside of one.
//!
//! A process waits at a [`Point`]; the test then kills it, stops it, or breaks its store. Only levers act from inside.
//! The variable `SEMEL_FAULTS` names the folder (`folder.rs`) by which the test controls the process. Invariant: only
//! builds with the feature `fault-points` contain points; `tests/absent.rs` checks the compiled code.

#[cfg(feature = "fault-points")]
mod folder;
mod next_version;
mod point;

pub use next_version::{NEXT_VERSION, is_next_version, write_next_formats, writes_next_formats};
pub use point::{Lever, Point};

/// Environment variable that names the folder.
pub const VARIABLE: &str = "SEMEL_FAULTS";

/// True if this build contains fault points.
pub const BUILT_IN: bool = cfg!(feature = "fault-points");

/// Marks a point that a task has reached. The task goes on at once, unless a test holds it.
pub async fn reached(point: Point) {
    #[cfg(feature = "fault-points")]
    if let Some(held) = folder::take(point) {
        folder::HeldFuture::new(held).await;
    }
    #[cfg(not(feature = "fault-points"))]
    let _ = point;
}

/// Marks a point that a thread has reached. The thread goes on at once, unless a test holds it.
pub fn reached_by_thread(point: Point) {
    #[cfg(feature = "fault-points")]
    if let Some(held) = folder::take(point) {
        held.wait();
    }
    #[cfg(not(feature = "fault-points"))]
    let _ = point;
}

/// Calls `pull`, on a thread of its own, with each lever that a test pulls in this process from now on. `pull` returns
/// true if it handled the lever; the lever's file is then removed, which tells the test.
pub fn levers(pull: impl Fn(Lever) -> bool + Send + 'static) {
    #[cfg(feature = "fault-points")]
    folder::watch(pull);
    #[cfg(not(feature = "fault-points"))]
    let _ = pull;
}
