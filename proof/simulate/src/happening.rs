//! Events in the queue of the world.

use semel_core::{Record, Statement as Said};

use crate::link::{Cut, Peer};
use crate::port::{Brought, Call, Reply, Statement};
use crate::provider::Then;

/// One event in the queue of the world.
pub(crate) enum Happening {
    /// A message arrives at this process of a node.
    AtNode(Origin, Peer, Brought),
    /// A statement arrives at the store, as this question of a process.
    AtStore(Origin, u64, Statement, u32),
    /// A call arrives at the provider.
    AtProvider(Origin, u64, Call),
    /// A lookup arrives at the provider.
    AtLedger(Origin, u64, Box<Record>),
    /// The provider executes a call.
    Acts(Origin, u64, Call, Then),
    /// The provider sends an event to a node.
    Tells(usize, Box<Said>),
    /// A client has its answer.
    AtClient(u64, Box<Reply>),
    /// A client learns that it will get no answer.
    Lost(u64, &'static str),
    /// A client reaches its timeout.
    GivesUp(u64),
    /// A client sends a request.
    Sends(usize),
    /// A fault begins or ends.
    Trouble(Trouble),
    /// The observer reads the store.
    Looks,
    /// Faults stop for the rest of the run.
    Quiet,
}

/// Process of a node, by the numbers of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) node: usize,
    pub(crate) process: u32,
}

/// Fault, or the end of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// The node's process, if any, is killed, and another one starts after this time.
    Crash(usize, u64),
    /// This process is killed, and another one starts at this time.
    Kill(Origin, u64),
    /// A process starts.
    Start(usize),
    /// A node is paused for this long.
    Pause(usize, u64),
    /// A node shuts down gracefully.
    Shutdown(usize),
    /// A link is cut for this long.
    Cut(Cut, u64),
}
