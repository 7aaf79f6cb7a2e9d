//! Commands of several steps, with recovery points: a process may die anywhere, and another one goes on where it was.
//!
//! ```text
//! claim ─ local phase ─ external phase ─ local phase ─ answer
//!           │             │ begun │ answered
//!           ▼             ▼       ▼
//!         what is written down, so that whoever resumes the run does nothing twice
//! ```
//!
//! - A *local* phase is one transaction of the service's own database: its writes, its output and the recovery point commit
//!   together, or nothing of it happened.
//! - An *external* phase makes at most one call in each attempt, under a key that is the same in every attempt. That it
//!   is begun is committed before anything is sent. A crash inside it is resumed only if the one who is called
//!   [deduplicates](Deduplication::ByKey) on that key; otherwise the command ends in `Unknown`.
//! - A resumed run begins at the top. Phases that are done are not run again, and give the output that they gave then.
//!
//! Everything that a run writes is fenced: it counts only while nobody else has taken the command up. The service gets a
//! [`Run`] and writes straight down; a [`Completer`] resumes what others left. `docs/phases.md` says what is promised, and
//! what cannot be prevented.

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

pub use crate::outbox::{Drained, RetryTerms, Stop, Wake};
