//! Evidence about commands whose outcome is unknown: sought by a [`Reconciler`] through a [`LookUp`], or come by itself as
//! an event of the provider (`Webhooks`, with the feature `http-evidence`).
//!
//! ```text
//! due ─ put off (write-ahead: nobody else looks meanwhile) ─ evidence that came ─ look-up ─┬─ verdict: settled
//!                                                                                          ├─ none: later, longer each time
//!                                                                                          └─ none at last: dead letter
//! ```
//!
//! **A verdict is asked for, not given.** [`semel_core::transition()`] decides whether evidence settles a command; nothing
//! here frees a key beside it. "Not executed" with no better proof than time counts only if the look itself began after
//! the quarantine: what was not there before may have landed since.
//!
//! **Write-ahead.** Before each look the command is put off to the next one, in one compare-and-set. Of several reconcilers
//! one gets it, and one that dies has looked once.
//!
//! **A dead letter** is a command that is not looked for any more by itself. It stays unknown; it is counted and listed; an
//! operator can settle it or ask for another look, and evidence that comes by itself settles it like any other.
//!
//! [`ledger`] compares what others say was done with what we believe, command or not.

mod bounds;
#[cfg(feature = "http-evidence")]
pub mod http;
pub mod ledger;
mod look;
mod look_up;
mod looker;
mod metrics;
mod notes;
#[cfg(feature = "http-evidence")]
mod reading;
mod reconciler;
mod settle;
#[cfg(feature = "http-evidence")]
mod signature;
mod statements;
#[cfg(feature = "http-evidence")]
pub mod webhook;

pub use bounds::SourceBounds;
#[cfg(feature = "http-evidence")]
pub use http::{HttpLookUp, HttpLookUpError};
pub use look::{Look, Outcome};
pub use look_up::{Finding, LookUp, NoLookUp};
pub use notes::RECONCILER;
pub use reconciler::{Reconciler, ReconcilerOptions, Report};
pub use semel_core::reconcile::{CONTRADICTION, Evidence, Found, ReconcileTerms, Statement, is_dead_letter};
pub use semel_core::transition::{Proof, Verdict};
pub use settle::{Settle, ThroughTheStore};
#[cfg(feature = "http-evidence")]
pub use webhook::{Received, Refused, WebhookSource, Webhooks};
