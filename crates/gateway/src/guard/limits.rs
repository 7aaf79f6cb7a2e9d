//! The bounds a guarded connection keeps.

use std::time::Duration;

/// How much a client may send before it is understood, and how long it may take. Opaque connections (HTTP/2,
/// and after a 101) keep only `write_timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest head and the longest trailer section, in bytes: 431 beyond.
    pub max_head: usize,
    /// From the first byte of a head to its last: 408 beyond.
    pub head_timeout: Duration,
    /// The longest silence inside a body that is being read: the body breaks off beyond.
    pub body_timeout: Duration,
    /// From the opening of a connection, or the end of a response, to the first byte of the next head: the
    /// connection closes beyond. The time a response takes does not count.
    pub idle_timeout: Duration,
    /// The longest that a write may make no progress: the connection breaks off beyond.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_head: 64 * 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
        }
    }
}
