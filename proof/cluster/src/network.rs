//! Network of a run: a bridge, and one namespace for each node and gateway with a link to it.
//!
//! All names begin with the id of this process, so that a later run finds what a killed one left. Dropping it removes
//! exactly those.

use std::net::Ipv4Addr;
use std::process::Command;

/// Namespaces on one bridge.
pub(crate) struct Network {
    owner: u32,
    subnet: u8,
}

/// Place in the network: its name, and its last number in the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) name: &'static str,
    pub(crate) number: u8,
}

/// Seats of the nodes and of the gateways. This process has the number 1, at the bridge itself.
pub(crate) const NODES: [Seat; 3] =
    [Seat { name: "n1", number: 11 }, Seat { name: "n2", number: 12 }, Seat { name: "n3", number: 13 }];
pub(crate) const GATEWAYS: [Seat; 3] =
    [Seat { name: "g1", number: 21 }, Seat { name: "g2", number: 22 }, Seat { name: "g3", number: 23 }];

/// Number of subnets that are tried: 10.9.0.0/24 and those behind it.
const SUBNETS: u8 = 32;

impl Network {
    /// Makes the bridge, the namespaces and their links.
    pub(crate) fn make() -> Result<Network, String> {
        let owner = std::process::id();
        let taken = ip(&["-4", "-oneline", "address"])?;
        let is_free = |subnet: &u8| !taken.contains(&format!(" 10.9.{subnet}."));
        let subnet = (0..SUBNETS).find(is_free).ok_or("every network from 10.9.0.0/24 on is taken")?;
        // From here on, whatever was made is removed when it is dropped.
        let network = Network { owner, subnet };
        let bridge = network.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{}/24", network.own()), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for seat in NODES.iter().chain(&GATEWAYS) {
            network.add(*seat)?;
        }
        Ok(network)
    }

    fn add(&self, seat: Seat) -> Result<(), String> {
        let (space, link) = (self.space(seat), self.link(seat));
        ip(&["netns", "add", &space])?;
        ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
        ip(&["link", "set", &link, "master", &self.bridge(), "up"])?;
        let address = format!("{}/24", self.address(seat));
        ip(&["-n", &space, "address", "add", &address, "dev", "eth0"])?;
        ip(&["-n", &space, "link", "set", "eth0", "up"])?;
        ip(&["-n", &space, "link", "set", "lo", "up"]).map(drop)
    }

    /// Returns this process's address.
    pub(crate) fn own(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, self.subnet, 1)
    }

    pub(crate) fn address(&self, seat: Seat) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, self.subnet, seat.number)
    }

    /// Returns the network in the notation of `pg_hba.conf`.
    pub(crate) fn range(&self) -> String {
        format!("10.9.{}.0/24", self.subnet)
    }

    /// Returns the words that run a program in the namespace of this seat.
    pub(crate) fn enter(&self, seat: Seat) -> Vec<String> {
        ["ip", "netns", "exec", &self.space(seat)].map(str::to_owned).to_vec()
    }

    /// Takes the link of this seat off the bridge.
    pub(crate) fn cut(&self, seat: Seat) -> Result<(), String> {
        ip(&["link", "set", &self.link(seat), "nomaster"]).map(drop)
    }

    /// Puts the link of this seat back.
    pub(crate) fn heal(&self, seat: Seat) -> Result<(), String> {
        ip(&["link", "set", &self.link(seat), "master", &self.bridge()]).map(drop)
    }

    /// Drops all packets between two seats, in both directions.
    pub(crate) fn separate(&self, one: Seat, other: Seat) -> Result<(), String> {
        self.route("add", one, other)?;
        self.route("add", other, one)
    }

    /// Ends a separation.
    pub(crate) fn join(&self, one: Seat, other: Seat) -> Result<(), String> {
        self.route("delete", one, other)?;
        self.route("delete", other, one)
    }

    fn route(&self, action: &str, from: Seat, to: Seat) -> Result<(), String> {
        let to = format!("{}/32", self.address(to));
        ip(&["-n", &self.space(from), "route", action, "blackhole", &to]).map(drop)
    }

    fn bridge(&self) -> String {
        format!("{}br", links(self.owner))
    }

    fn link(&self, seat: Seat) -> String {
        format!("{}{}", links(self.owner), seat.name)
    }

    fn space(&self, seat: Seat) -> String {
        format!("{}{}", spaces(self.owner), seat.name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        remove(self.owner);
    }
}

/// Checks that this process may make links and namespaces.
pub(crate) fn check() -> Result<(), String> {
    let trial = format!("{}x", links(std::process::id()));
    let tried = ip(&["link", "add", &trial, "type", "bridge"]).and_then(|_| ip(&["link", "delete", &trial]));
    let refused = |why| {
        format!("this process may not make network namespaces: run it as root, or with --loopback ({why})")
    };
    tried.map(drop).map_err(refused)
}

/// Beginning of the names of links, which have at most 15 characters, and of namespaces.
fn links(owner: u32) -> String {
    format!("sml{owner}")
}

fn spaces(owner: u32) -> String {
    format!("semel-{owner}-")
}

/// Removes everything that the process of this id has made, as far as it is there.
pub(crate) fn remove(owner: u32) {
    let spaces_there = ip(&["netns", "list"]).unwrap_or_default();
    for space in spaces_there.lines().filter_map(|line| line.split_whitespace().next()) {
        if space.starts_with(&spaces(owner)) {
            let _ = ip(&["netns", "delete", space]);
        }
    }
    let seats = NODES.iter().chain(&GATEWAYS).map(|seat| seat.name).chain(["br"]);
    for name in seats.map(|name| format!("{}{name}", links(owner))) {
        // A link is also gone with the namespace at its other end.
        let _ = ip(&["link", "delete", &name]);
    }
}

fn ip(words: &[&str]) -> Result<String, String> {
    let output =
        Command::new("ip").args(words).output().map_err(|error| format!("`ip` cannot be run: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`ip {}`: {}", words.join(" "), why.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_links_are_short_enough_for_the_largest_process() {
        let network = std::mem::ManuallyDrop::new(Network { owner: 4_194_304, subnet: 0 });
        assert!(network.link(NODES[0]).len() <= 15 && network.bridge().len() <= 15);
    }
}
