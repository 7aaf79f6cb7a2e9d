//! Peer of a client's connection.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use semel_http::ShareHolder;

/// Peer of a client's connection. The listener puts it into each request.
#[derive(Clone, Debug)]
pub struct Peer {
    address: IpAddr,
    node: Arc<str>,
    connection: u64,
}

impl Peer {
    /// Makes the peer at this address, on a new connection.
    pub fn new(address: IpAddr) -> Peer {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        Peer { address, node: node(address).into(), connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns its address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns its node name of RFC 7239.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the unique number of its connection.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Returns its holder of shared places: by address, and within an address by connection.
    pub fn holder(&self) -> ShareHolder {
        ShareHolder::new(&network(self.address), &self.connection)
    }
}

/// Returns the node name of an address in RFC 7239: an IPv6 address needs quotes.
pub(crate) fn node(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    }
}

/// Returns the network of one client: an IPv4 address, or the first half of an IPv6 address.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// Marks a request that came over TLS. The listener puts it into each such request.
#[derive(Clone, Copy, Debug)]
pub struct OverTls;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_is_one_address_however_many_it_has_of_ipv6() {
        let network = |text: &str| network(text.parse().expect("it is an address"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        let address = [192, 0, 2, 1].into();
        assert_ne!(Peer::new(address).holder(), Peer::new(address).holder(), "two connections");
    }
}
