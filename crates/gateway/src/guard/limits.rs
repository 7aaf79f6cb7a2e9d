//! Limits of a guarded connection.

use std::time::Duration;

/// Limits on the size and the time of a client's bytes. Opaque connections (HTTP/2, and after a 101) have
/// only `write_timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Largest head and largest trailer section in bytes: a larger one gets 431.
    pub max_head: usize,
    /// Timeout from the first byte of a head to its last: a slower one gets 408.
    pub head_timeout: Duration,
    /// Timeout for the next bytes of a body that is being read: the body breaks off.
    pub body_timeout: Duration,
    /// Timeout from the opening of a connection, or the end of a response, to the first byte of the next
    /// head: the connection closes. The time of a response does not count.
    pub idle_timeout: Duration,
    /// Timeout for a write without progress: the connection breaks off.
    pub write_timeout: Duration,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            max_head: 64 * 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
        }
    }
}
