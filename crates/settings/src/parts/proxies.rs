//! Proxies in front of the gateway: `forwarded`, and the ranges of their addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::engine::kind::{ValueKind, ValueRefusal, Words, quoted};

/// Treatment of forwarding fields in a request from a trusted proxy. For any other peer they are always
/// replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedMode {
    /// The gateway replaces the fields of the proxy.
    Set,
    /// The proxy's address is appended to `X-Forwarded-For`; its protocol and its host stay.
    #[default]
    Append,
    /// The fields pass unchanged.
    Keep,
}

impl Words for ForwardedMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("set", ForwardedMode::Set), ("append", ForwardedMode::Append), ("keep", ForwardedMode::Keep)];
}

/// Address, or all addresses that share its first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyRange {
    address: IpAddr,
    prefix: u8,
}

impl ProxyRange {
    /// Makes the range of all addresses that share the first `prefix` bits of this one.
    pub fn new(address: IpAddr, prefix: u8) -> ProxyRange {
        ProxyRange { address: network(address, prefix), prefix }
    }

    /// Returns true if a peer is in the range. An IPv4 peer of an IPv6 socket is an IPv4 peer.
    pub fn contains(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        peer.is_ipv4() == self.address.is_ipv4() && network(peer, self.prefix) == self.address
    }

    /// Returns true if every address is in the range.
    pub fn is_everybody(&self) -> bool {
        self.prefix == 0
    }
}

impl fmt::Display for ProxyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.prefix == bits(self.address) { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

/// Returns the address reduced to its first bits.
fn network(address: IpAddr, prefix: u8) -> IpAddr {
    let beyond = u32::from(bits(address).saturating_sub(prefix));
    match address {
        IpAddr::V4(v4) => {
            Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(beyond).unwrap_or(0)).into()
        }
        IpAddr::V6(v6) => {
            Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(beyond).unwrap_or(0)).into()
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl ValueKind for ProxyRange {
    type Value = ProxyRange;

    fn expected() -> String {
        "an IP address or a range such as \"10.0.0.0/8\"".to_owned()
    }

    fn parse(text: &str) -> Result<ProxyRange, ValueRefusal> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ValueRefusal::Unexpected)?;
        if address != address.to_canonical() {
            return Err(ValueRefusal::Because("an IPv4 peer is written as IPv4".to_owned()));
        }
        let prefix = match prefix {
            Some(digits) => digits.parse().ok().filter(|prefix| *prefix <= bits(address)),
            None => Some(bits(address)),
        };
        let prefix = prefix.ok_or(ValueRefusal::Unexpected)?;
        let range = ProxyRange::new(address, prefix);
        // Bits beyond the prefix are more likely a mistake in the prefix than decoration.
        if range.address == address { Ok(range) } else { Err(ValueRefusal::DidYouMean(range.to_string())) }
    }

    fn show(value: &ProxyRange) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> ProxyRange {
        ProxyRange::parse(text).ok().expect("it is a range")
    }

    #[test]
    fn an_address_range_contains_the_addresses_with_its_prefix() {
        for (text, inside, outside) in [
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.168.7.128/25", "192.168.7.255", "192.168.7.127"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
            ("::1", "::1", "::2"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("::/0", "2001:db8::1", "1.2.3.4"),
        ] {
            let range = range(text);
            assert!(range.contains(inside.parse().expect("an address")), "{text} holds {inside}");
            assert!(!range.contains(outside.parse().expect("an address")), "{text} does not hold {outside}");
            assert_eq!(range.to_string(), text);
        }
    }

    #[test]
    fn malformed_ranges_are_refused() {
        for text in [
            "",
            "proxy",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.1/8",
            "/8",
            "::ffff:1.2.3.4",
        ] {
            assert!(ProxyRange::parse(text).is_err(), "{text}");
        }
    }
}
