//! Evidence about commands whose outcome is unknown: a [`Reconciler`] asks for it through a [`LookUp`], or the provider
//! sends it as an event (`Webhooks`, with the feature `http-evidence`).
//!
//! ```text
//! due ─ postpone (write-ahead, excludes other reconcilers) ─ received evidence ─ look-up ─┬─ verdict: settled
//!                                                                                         ├─ none: retry with backoff
//!                                                                                         └─ last try: dead letter
//! ```
//!
//! **`transition` decides.** [`semel_core::transition()`] decides whether evidence settles a command; nothing else here
//! releases a key. "Not executed" without a better proof than elapsed time counts only if the look-up itself began
//! after the quarantine: a call may have taken effect since an earlier look-up.
//!
//! **Write-ahead.** Before each look-up, one compare-and-set postpones the command to its next look-up. Of several
//! reconcilers one gets the command, and a reconciler that dies has used up one look-up.
//!
//! **Dead letter.** A dead letter is a command that is no longer looked up automatically. It stays unknown, is counted
//! and listed; an operator can settle it or ask for another look-up, and evidence that arrives settles it like any
//! other.
//!
//! [`ledger`] compares the provider's ledger with the service's own, independent of commands.

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
mod span;
mod statements;
#[cfg(feature = "http-evidence")]
pub mod webhook;

pub use bounds::SourceBounds;
#[cfg(feature = "http-evidence")]
pub use http::{HttpLookUp, HttpLookUpError};
pub use look::{LookUpOutcome, LookUpResult};
pub use look_up::{Finding, LookUp, NoLookUp};
pub use metrics::begin_metrics;
pub use notes::RECONCILER;
pub use reconciler::{ReconcileReport, Reconciler, ReconcilerOptions};
pub use semel_core::reconcile::{
    CONTRADICTION, Evidence, LookUpAnswer, ReconcileTerms, Statement, is_dead_letter,
};
pub use semel_core::transition::{Proof, Verdict};
pub use settle::{Settle, ThroughTheStore};
#[cfg(feature = "http-evidence")]
pub use webhook::{Received, Refused, WebhookSource, Webhooks};
