//! Ports of the loopback address for servers that are stopped and started again.

use std::io::{Error, ErrorKind, Result};
use std::net::TcpListener;

/// First port, below those that systems give to outgoing connections, so that a server finds its own free
/// again.
const FIRST: u16 = 15_000;
const COUNT: u16 = 17_000;
const TRIES: usize = 100;

/// Listens on a port that was free.
pub(crate) fn listen() -> Result<TcpListener> {
    for _ in 0..TRIES {
        let [high, low, ..] = semel_core::ids::secret();
        let port = FIRST + u16::from_be_bytes([high, low]) % COUNT;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok(listener);
        }
    }
    Err(Error::new(ErrorKind::AddrInUse, format!("none of {TRIES} ports tried on 127.0.0.1 is free")))
}
