//! State shared by all look-ups; `look.rs` and `statements.rs` implement them.

use std::sync::Arc;
use std::time::Duration;

use semel_core::reconcile::{Evidence, ReconcileTerms};
use semel_core::{Ids, Records, Tracer};

use super::bounds::BoundSources;
use super::look_up::LookUp;
use super::settle::Settle;

/// Parts that every look-up uses.
pub(super) struct Looker {
    pub(super) store: Arc<dyn Records>,
    pub(super) evidence: Arc<dyn Evidence>,
    pub(super) look_up: Arc<dyn LookUp>,
    pub(super) settle: Arc<dyn Settle>,
    pub(super) terms: ReconcileTerms,
    pub(super) timeout: Duration,
    pub(super) bounds: BoundSources,
    /// Source of randomness.
    pub(super) ids: Arc<dyn Ids>,
    /// Takes the spans of look-ups.
    pub(super) tracer: Option<Arc<dyn Tracer>>,
}

impl Looker {
    /// Returns a random number: attempt tokens are random.
    pub(super) fn chance(&self) -> u32 {
        let [a, b, c, d, ..] = *self.ids.attempt_token().as_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}
