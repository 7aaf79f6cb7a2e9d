//! The ways to the handler that `proxies.rs` and `apart.rs` measure.

use super::served::Proxy;
use crate::load::Keys;

/// Connections of a client.
pub const CONNECTIONS: usize = 64;
/// Keys that are asked for again, in turn.
const KEYS: u64 = 256;
/// The place of the way without anything between.
pub const DIRECT: usize = 0;
/// The place of nginx.
pub const NGINX: usize = 1;
/// The place of the one that passes through.
pub const THROUGH: usize = 3;

/// One way to the handler.
pub struct Way {
    /// Its name in the report.
    pub name: &'static str,
    /// The process between.
    pub front: Front,
    /// The keys of a turn's requests.
    pub keys: fn(&str) -> Keys,
}

/// The process between a client and the handler.
#[derive(Clone, Copy, Debug)]
pub enum Front {
    /// Nothing.
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
