//! Commands of several steps, with recovery points: a process may die anywhere, and another one continues from the last
//! recovery point.
//!
//! ```text
//! claim ─ local phase ─ external phase ─ local phase ─ answer
//!           │             │ begun │ answered
//!           ▼             ▼       ▼
//!         recovery points in the store: a resumed run repeats nothing
//! ```
//!
//! - A *local* phase is one transaction of the service's own database: its writes, its output and the recovery point
//!   commit together, or not at all.
//! - An *external* phase makes at most one call in each attempt, under a key that is the same in every attempt. Its
//!   beginning is committed before the call. After a crash inside it, the run is resumed only if the called service
//!   [deduplicates](Deduplication::ByKey) on that key; otherwise the command ends in `Unknown`.
//! - A resumed run starts from the top. Finished phases do not run again; they return their stored output.
//!
//! Every write of a run is fenced: it applies only until another executor takes over the command. The service's code
//! gets a [`Run`] and calls its phases in sequence; a [`Completer`] resumes interrupted commands. `docs/src/how-to/phases.md`
//! states the guarantees and their limits.

mod attempt;
mod call;
mod completer;
mod input;
mod journal;
mod lease;
mod operations;
pub(crate) mod output;
pub(crate) mod run;
mod start;
pub(crate) mod steps;

pub use call::{Call, CallFailed, Deduplication};
pub use completer::{Completer, CompleterOptions};
pub use journal::Stopped;
pub use operations::{PhaseTerms, Phases};
pub use run::Run;

pub use crate::outbox::{Drained, RetryTerms, StopHandle, Wake};
