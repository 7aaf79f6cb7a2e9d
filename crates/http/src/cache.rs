//! Settled records in memory, so that their replays cost the store nothing.
//!
//! Invariant: only terminal records are kept, under the digest of their full scope, and they are read again from the store after
//! [`CACHE_RECHECK`]. The transition function decides whether one still answers, at the store's time as it must be by now.

use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use semel_core::transition::CACHE_RECHECK;
use semel_core::{Decision, Event, Fingerprint, Record, RecordId, Response, Timestamp, transition};
use tokio::time::Instant;

/// A settled record with its response, decoded once.
pub(crate) struct SettledRecord {
    pub(crate) record: Record,
    pub(crate) response: Response,
    /// The head of its replays, made by the first one.
    pub(crate) head: OnceLock<HeaderMap>,
    now: Timestamp,
    asked: Instant,
}

/// Settled records, bounded by their size in memory.
pub(crate) struct ReplayCache(Cache<RecordId, Arc<SettledRecord>, BySize>);

#[derive(Clone)]
struct BySize;

/// The weight of a record beside its stored response: its names and history, the tables of its headers and of its replay's, and
/// the cache's own book-keeping.
const OVERHEAD: u64 = 3072;

impl Weighter<RecordId, Arc<SettledRecord>> for BySize {
    fn weight(&self, _: &RecordId, settled: &Arc<SettledRecord>) -> u64 {
        // Counted once: the values and the body of the response are parts of the stored bytes.
        let stored = settled.record.result.as_ref().map_or(0, |result| result.response.bytes.len() as u64);
        OVERHEAD + stored
    }
}

impl ReplayCache {
    /// Makes a cache of about this many bytes.
    pub(crate) fn new(bytes: u64) -> ReplayCache {
        let records = usize::try_from(bytes / OVERHEAD).unwrap_or(usize::MAX).max(16);
        ReplayCache(Cache::with_weighter(records, bytes, BySize))
    }

    /// Keeps a settled record that the store reported at its time `now`, when it was asked at `asked`. The response is decoded
    /// from the stored bytes, and is never the handler's own: that is part of the buffer that it was read into, which may be many
    /// times as large and would stay in memory with it.
    pub(crate) fn keep(&self, record: &Record, now: Timestamp, asked: Instant) {
        let stored = record.result.as_ref().and_then(|result| result.response.decode().ok());
        if let (true, Some(response)) = (record.head.state.is_terminal(), stored) {
            let (record, head) = (record.clone(), OnceLock::new());
            self.0.insert(record.id, Arc::new(SettledRecord { record, response, head, now, asked }));
        }
    }

    /// Returns the decision of memory about a request with this fingerprint: a replay or a mismatch. `None`: the store decides.
    pub(crate) fn look(
        &self,
        id: &RecordId,
        fingerprint: Fingerprint,
    ) -> Option<(Decision, Arc<SettledRecord>)> {
        let settled = self.0.get(id)?;
        let age = settled.asked.elapsed();
        if age >= CACHE_RECHECK {
            self.0.remove(id);
            return None;
        }
        let now = settled.now.plus(age);
        let decision = transition(Some(&settled.record.head), &Event::Look { fingerprint }, now).decision;
        matches!(decision, Decision::Replay | Decision::Mismatch).then_some((decision, settled))
    }
}
