#![doc = include_str!("../README.md")]

// Invariant of the crate: one command has one key, drawn and kept before the first send. `decide` takes every decision.

#[cfg(any(feature = "reqwest", feature = "tower"))]
mod body;
mod budget;
mod builder;
mod call;
mod cancellation;
mod classify;
mod client;
mod clock;
mod command;
mod decide;
mod error;
#[cfg(any(feature = "reqwest", feature = "tower"))]
mod fault;
mod hook;
mod journal;
mod key;
#[cfg(feature = "tower")]
mod layer;
mod options;
mod origin;
mod outcome;
mod parts;
mod problem;
mod random;
#[cfg(feature = "reqwest")]
mod reqwest_transport;
mod response;
#[cfg(feature = "tower")]
mod tower_transport;
mod transport;

pub use builder::{CommandClientBuilder, InvalidClientError};
pub use cancellation::Cancellation;
pub use client::CommandClient;
pub use clock::{ClientClock, MachineClock};
pub use command::ClientCommand;
pub use error::{CallError, RefusedAnswer};
pub use hook::AttemptEvent;
#[cfg(feature = "sqlite")]
pub use journal::SqliteJournal;
pub use journal::{FileJournal, IntentJournal, JournalEntry, JournalError, MemoryJournal};
pub use key::CommandKey;
#[cfg(feature = "tower")]
pub use layer::CommandLayer;
pub use options::{CLOCK_TOLERANCE, ClientOptions, ClientProfile, MAX_POLLS, MAX_TIME, OnAccepted};
pub use outcome::{AttemptReason, CommandOutcome, LastAttempt, StopReason};
pub use problem::OperationHandle;
pub use random::{RandomSource, SystemRandom};
#[cfg(feature = "reqwest")]
pub use reqwest_transport::ReqwestTransport;
pub use response::CommandResponse;
#[cfg(feature = "tower")]
pub use tower_transport::TowerTransport;
pub use transport::{AttemptFault, AttemptRequest, ClientFuture, Transport};
