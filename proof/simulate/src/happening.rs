//! The events in the queue of the world.

use semel_core::{Record, Statement as Said};

use crate::link::{Cut, Peer};
use crate::port::{Brought, Call, Reply, Statement};
use crate::provider::Then;

/// One event in the queue of the world.
pub(crate) enum Happening {
    /// Something arrives at this process of a node.
    AtNode(Origin, Peer, Brought),
    /// A statement arrives at the store, as the answer to this question of a process.
    AtStore(Origin, u64, Statement, u32),
    /// A call arrives at the provider.
    AtProvider(Origin, u64, Call),
    /// A question arrives at the provider.
    AtLedger(Origin, u64, Box<Record>),
    /// The provider does what it was asked for.
    Acts(Origin, u64, Call, Then),
    /// The provider sends an event to a node.
    Tells(usize, Box<Said>),
    /// A client has its answer.
    AtClient(u64, Box<Reply>),
    /// A client hears that it will not have one.
    Lost(u64, &'static str),
    /// A client has lost its patience.
    GivesUp(u64),
    /// A client sends a request.
    Sends(usize),
    /// Something breaks, or is mended.
    Trouble(Trouble),
    /// The store is read.
    Looks,
    /// Nothing breaks from here on.
    Quiet,
}

/// A process of a node, by the numbers of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) node: usize,
    pub(crate) process: u32,
}

/// A fault, or the end of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// Whatever process this node has is killed, and another one begins after this time.
    Crash(usize, u64),
    /// This process is killed, and another one begins at this time.
    Kill(Origin, u64),
    /// A process begins.
    Start(usize),
    /// A node stands still for this long.
    Pause(usize, u64),
    /// A node is told to end in good order.
    Shutdown(usize),
    /// A link is cut, for this long.
    Cut(Cut, u64),
}
