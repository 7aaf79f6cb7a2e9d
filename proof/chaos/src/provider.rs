//! Provider that the service calls under derived keys. It deduplicates calls of orders only if the call says so, and
//! messages always. It keeps a ledger, and fails at times.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use semel_checker::Event;
use semel_checker::event::{Charged, Declined, Requested};
use semel_testkit::Chance;
use semel_testkit::breaking::{Answered, BrokenOff};
use serde_json::json;

use crate::settings::{CHARGE, CHARGED, LATEST_EFFECT, TIMEOUT};
use semel_chaos::answer::{Entry, answer, saying};
use semel_chaos::reading::{EFFECT, NOT_EXECUTED};
use semel_chaos::scribe::Scribe;

/// Number of the call under one key from which on the provider does not fail.
const PATIENT_CALL: u32 = 4;
/// Percentage of declined keys, and of messages that are refused at first.
const DECLINED: u64 = 8;
const REFUSED: u64 = 20;

/// The provider.
pub(crate) struct Provider {
    scribe: Arc<Scribe>,
    seed: u64,
    calm: AtomicBool,
    next: AtomicU64,
    accounts: Mutex<HashMap<String, Account>>,
}

/// State of the provider under one key.
#[derive(Default)]
struct Account {
    calls: u32,
    entry: Option<Entry>,
}

/// Call of the service.
pub(crate) struct Called {
    pub(crate) key: String,
    pub(crate) operation_id: String,
    pub(crate) part: String,
    pub(crate) deduplicated: bool,
    pub(crate) canary: String,
    pub(crate) reference: Option<String>,
    pub(crate) came: Instant,
}

/// Reaction to one call.
#[derive(Clone, Copy, Debug)]
enum Mood {
    /// Executes the call after this time.
    Well(Duration),
    /// Executes the call, and answers after this time.
    Slow(Duration),
    ServerError {
        effect: bool,
    },
    BreaksOff {
        effect: bool,
    },
    NotExecuted,
    /// Refuses the call for good, by its answer.
    Refuses,
}

impl Provider {
    pub(crate) fn new(scribe: Arc<Scribe>, seed: u64) -> Provider {
        let (calm, next) = (AtomicBool::new(false), AtomicU64::new(1));
        Provider { scribe, seed, calm, next, accounts: Mutex::default() }
    }

    /// Ends all failures of the provider.
    pub(crate) fn calm_down(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    /// Returns the ledger's entry under a derived key.
    pub(crate) fn find(&self, key: &str) -> Option<Entry> {
        self.accounts().get(key).and_then(|account| account.entry.clone())
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<String, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if charges under this key are declined, in every call alike. Mails are never declined.
    pub(crate) fn declines(&self, key: &str, part: &str) -> bool {
        [CHARGED, CHARGE].contains(&part)
            && Chance::of(self.seed, &format!("{key} declined")).percent(DECLINED)
    }

    fn mood(&self, called: &Called, call: u32) -> Mood {
        let mut chance = Chance::of(self.seed, &format!("{} {} {call}", called.canary, called.part));
        if self.calm.load(Ordering::SeqCst) || call >= PATIENT_CALL {
            return Mood::Well(Duration::ZERO);
        }
        if call == 1 && called.part == CHARGE && chance.percent(REFUSED) {
            return Mood::Refuses;
        }
        let timeout = TIMEOUT.as_millis() as u64;
        match chance.below(100) {
            0..58 => Mood::Well(chance.millis(0, 15)),
            58..66 => Mood::Well(chance.millis(50, timeout / 2)),
            66..72 => Mood::Slow(chance.millis(timeout / 2, timeout * 2)),
            72..79 => Mood::ServerError { effect: true },
            79..84 => Mood::ServerError { effect: false },
            84..90 => Mood::BreaksOff { effect: true },
            90..95 => Mood::BreaksOff { effect: false },
            _ => Mood::NotExecuted,
        }
    }

    /// Handles a call.
    pub(crate) async fn take(&self, called: Called) -> Answered {
        let call = {
            let mut accounts = self.accounts();
            let account = accounts.entry(called.key.clone()).or_default();
            account.calls += 1;
            account.calls
        };
        let Called { key, operation_id, part, deduplicated, canary, .. } = &called;
        let requested = Requested {
            at: 0,
            key: key.clone(),
            operation_id: operation_id.clone(),
            part: part.clone(),
            deduplicated: *deduplicated,
            canary: canary.clone(),
        };
        self.scribe.note(|at| Event::Requested(Requested { at, ..requested }));
        match self.mood(&called, call) {
            Mood::Refuses => Ok(answer(422, "{}", None)),
            Mood::NotExecuted => Ok(saying(answer(503, "{}", None), NOT_EXECUTED, "1")),
            Mood::ServerError { effect: false } => Ok(answer(500, "{}", None)),
            Mood::BreaksOff { effect: false } => Err(BrokenOff),
            Mood::Well(time) => {
                tokio::time::sleep(time).await;
                self.decide(&called)
            }
            Mood::Slow(time) => {
                let decided = self.decide(&called);
                tokio::time::sleep(time).await;
                decided
            }
            Mood::ServerError { effect: true } => self.decide(&called).map(|_| answer(500, "{}", None)),
            Mood::BreaksOff { effect: true } => self.decide(&called).and(Err(BrokenOff)),
        }
    }

    /// Adds an entry to the ledger, unless the call is declined. A late call has no effect, as the settings promise.
    fn decide(&self, called: &Called) -> Answered {
        if called.came.elapsed() > LATEST_EFFECT {
            return Err(BrokenOff);
        }
        let Called { key, operation_id, part, canary, reference, .. } = called;
        if self.declines(key, part) {
            let (key, operation_id) = (key.clone(), operation_id.clone());
            self.scribe.note(|at| Event::Declined(Declined { at, key, operation_id }));
            return Ok(answer(402, "{}", None));
        }
        // One lock for both, so that the ledger and the history agree.
        let mut accounts = self.accounts();
        let account = accounts.entry(key.clone()).or_default();
        if let (true, Some(entry)) = (called.deduplicated, &account.entry) {
            return Ok(answer(201, &entry.body, None));
        }
        let effect = format!("{EFFECT}c{:08}", self.next.fetch_add(1, Ordering::SeqCst));
        let body = json!({ "effect": effect, "canary": canary }).to_string();
        let charged = Charged {
            at: 0,
            key: key.clone(),
            operation_id: operation_id.clone(),
            part: part.clone(),
            effect: effect.clone(),
            canary: canary.clone(),
            reference: reference.clone(),
        };
        self.scribe.note(|at| Event::Charged(Charged { at, ..charged }));
        let answered = answer(201, &body, None);
        account.entry.get_or_insert(Entry { effect, body });
        Ok(answered)
    }
}
