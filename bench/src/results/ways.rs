//! Ways to the handler that `proxies.rs` and `apart.rs` measure.

use super::served::Proxy;
use crate::load::Keys;

/// Connections of a client.
pub const CONNECTIONS: usize = 64;
/// Number of keys that are replayed, in rotation.
const KEYS: u64 = 256;
/// Index of the way without a process between.
pub const DIRECT: usize = 0;
/// Index of nginx.
pub const NGINX: usize = 1;
/// Index of the gateway in pass-through.
pub const THROUGH: usize = 3;

/// One way to the handler.
pub struct Way {
    /// Name in the report.
    pub name: &'static str,
    /// Process between client and handler.
    pub front: Front,
    /// Keys of a turn's requests.
    pub keys: fn(&str) -> Keys,
}

/// Process between a client and the handler.
#[derive(Clone, Copy, Debug)]
pub enum Front {
    /// No process.
    Nothing,
    /// A plain proxy.
    Proxy(Proxy),
    /// Semel.
    Gateway,
}

/// Returns all ways that are compared.
pub fn ways() -> [Way; 6] {
    let none: fn(&str) -> Keys = |_| Keys::None;
    let again: fn(&str) -> Keys = |_| Keys::Among("again".into(), KEYS);
    let fresh: fn(&str) -> Keys = |turn| Keys::Fresh(format!("new-{turn}"));
    let way = |name, front, keys| Way { name, front, keys };
    [
        way("direct", Front::Nothing, none),
        way("nginx", Front::Proxy(Proxy::Nginx), none),
        way("HAProxy", Front::Proxy(Proxy::Haproxy), none),
        way("semel, without a key", Front::Gateway, none),
        way("semel, replay", Front::Gateway, again),
        way("semel, first call", Front::Gateway, fresh),
    ]
}
