//! The one who looks for evidence, and uses what came by itself: `look.rs` and `statements.rs` say how.

use std::sync::Arc;
use std::time::Duration;

use semel_core::reconcile::{Evidence, ReconcileTerms};
use semel_core::{Ids, Store};

use super::bounds::BoundSources;
use super::look_up::LookUp;
use super::settle::Settle;

/// The parts that every look works with.
pub(super) struct Looker {
    pub(super) store: Arc<dyn Store>,
    pub(super) evidence: Arc<dyn Evidence>,
    pub(super) look_up: Arc<dyn LookUp>,
    pub(super) settle: Arc<dyn Settle>,
    pub(super) terms: ReconcileTerms,
    pub(super) timeout: Duration,
    pub(super) bounds: BoundSources,
    /// The source of randomness.
    pub(super) ids: Arc<dyn Ids>,
}

impl Looker {
    /// Returns a random number: attempt tokens are random.
    pub(super) fn chance(&self) -> u32 {
        let [a, b, c, d, ..] = *self.ids.attempt_token().as_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}
