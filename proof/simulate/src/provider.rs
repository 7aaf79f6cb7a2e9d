//! Provider behind the nodes: it executes commands, keeps the ledger, and fails at times. It deduplicates on the
//! operation id for some operations only.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use semel_core::transition::Proof;
use semel_core::{LookUpAnswer, OperationId, Record, Response, Statement, StoredResult};
use serde_json::json;

use crate::broken::Broken;
use crate::port::{Call, Reply};
use crate::reading::{EFFECT, NOT_EXECUTED};
use crate::settings::{Kind, LATEST_EFFECT, TIMEOUT};
use semel_testkit::Chance;

/// Attempt from which on the provider no longer fails.
const PATIENT_ATTEMPT: u32 = 5;

/// Note beside a verdict that came by an event.
pub(crate) const EVENT: &str = "an event of the provider";

/// Entry of the ledger.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) effect: String,
    reply: Reply,
}

impl Entry {
    /// Returns the provider's event about this entry.
    pub(crate) fn event(&self, operation_id: OperationId) -> Option<Statement> {
        let (found, seen) = (LookUpAnswer::Executed(stored(&self.reply)), EVENT.to_owned());
        Statement::new("provider".to_owned(), self.effect.clone(), operation_id, found, seen)
    }
}

/// The provider.
pub(crate) struct Provider {
    chance: Chance,
    broken: Option<Broken>,
    next: u64,
    effects: BTreeMap<String, Entry>,
    refusals: BTreeMap<String, (u64, Reply)>,
    /// Number of unfinished calls by operation id.
    pending: BTreeMap<String, u32>,
    /// Attempts that had an effect.
    attempts: BTreeSet<(String, u32)>,
}

/// Reaction to a call.
pub(crate) enum Deed {
    /// Answers at once.
    Answers(Reply),
    /// Breaks the connection.
    Breaks,
    /// Has the effect after this time, and then reports.
    Acts(u64, Then),
}

/// Report after an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Reports the result after this time.
    Tells(u64),
    /// Reports an error.
    Errs,
    /// Breaks the connection.
    Breaks,
}

impl Provider {
    pub(crate) fn new(seed: u64, broken: Option<Broken>) -> Provider {
        Provider {
            chance: Chance::of(seed, "provider"),
            broken,
            next: 0,
            effects: BTreeMap::new(),
            refusals: BTreeMap::new(),
            pending: BTreeMap::new(),
            attempts: BTreeSet::new(),
        }
    }

    /// Returns true if this attempt had an effect.
    pub(crate) fn has_acted(&self, operation_id: &str, attempt: u32) -> bool {
        self.attempts.contains(&(operation_id.to_owned(), attempt))
    }

    /// Handles a call; `moods` percent of the calls fail. The flag is true if deduplication answers it.
    pub(crate) fn called(&mut self, now: u64, call: &Call, moods: u64) -> (Deed, bool) {
        let deduplicates = Kind::named(&call.command.operation).is_some_and(|kind| kind.deduplicates);
        if deduplicates {
            let done = self.effects.get(&call.operation_id).map(|entry| &entry.reply);
            let refused = self.refusals.get(&call.operation_id).map(|(_, reply)| reply);
            if let Some(reply) = done.or(refused) {
                return (Deed::Answers(reply.clone()), true);
            }
            if self.pending.contains_key(&call.operation_id) {
                return (Deed::Answers(not_executed(call, false)), true);
            }
        }
        let deed = self.deed(now, call, moods);
        if let Deed::Acts(..) = deed {
            *self.pending.entry(call.operation_id.clone()).or_default() += 1;
        }
        (deed, false)
    }

    fn deed(&mut self, now: u64, call: &Call, moods: u64) -> Deed {
        let chance = &mut self.chance;
        if call.attempt >= PATIENT_ATTEMPT || !chance.percent(moods) {
            return Deed::Acts(chance.below(60), Then::Tells(0));
        }
        match chance.below(100) {
            0..15 => Deed::Acts(chance.between(50, TIMEOUT / 2), Then::Tells(0)),
            15..30 => Deed::Acts(chance.between(TIMEOUT, LATEST_EFFECT), Then::Tells(0)),
            30..42 => Deed::Acts(0, Then::Tells(chance.between(TIMEOUT / 2, 2 * TIMEOUT))),
            42..52 => {
                let refusal = reply(StatusCode::PAYMENT_REQUIRED, &nothing(call), None);
                self.refusals.entry(call.operation_id.clone()).or_insert((now, refusal.clone()));
                Deed::Answers(refusal)
            }
            52..58 => Deed::Acts(0, Then::Errs),
            58..64 => Deed::Answers(reply(StatusCode::INTERNAL_SERVER_ERROR, &nothing(call), None)),
            64..74 => Deed::Acts(0, Then::Breaks),
            74..84 => Deed::Breaks,
            84..92 => Deed::Answers(not_executed(call, true)),
            _ => Deed::Answers(not_executed(call, false)),
        }
    }

    /// Executes a call. The flag is true for the first effect of the command.
    pub(crate) fn act(&mut self, now: u64, call: &Call) -> (Entry, bool) {
        if let Some(pending) = self.pending.get_mut(&call.operation_id) {
            *pending -= 1;
            if *pending == 0 {
                self.pending.remove(&call.operation_id);
            }
        }
        self.next += 1;
        let effect = format!("{EFFECT}{:08}", self.next);
        let body = json!({ "effect": effect, "canary": call.canary, "attempt": call.attempt }).to_string();
        let reply = reply(StatusCode::CREATED, &body, Some(&effect));
        let entry = Entry { at: now, effect, reply };
        self.attempts.insert((call.operation_id.clone(), call.attempt));
        let is_first = !self.effects.contains_key(&call.operation_id);
        self.effects.entry(call.operation_id.clone()).or_insert_with(|| entry.clone());
        (entry, is_first)
    }

    /// Returns the answer after an effect; `None` if the connection breaks.
    pub(crate) fn tells(entry: &Entry, call: &Call, then: Then) -> Option<Reply> {
        match then {
            Then::Tells(_) => Some(entry.reply.clone()),
            Then::Errs => Some(reply(StatusCode::INTERNAL_SERVER_ERROR, &nothing(call), None)),
            Then::Breaks => None,
        }
    }

    /// Returns the ledger's finding about a command, with the name of the effect if there is one.
    pub(crate) fn look_up(
        &mut self,
        now: u64,
        record: &Record,
        lag: u64,
        tells_pending: bool,
        moods: u64,
    ) -> (LookUpAnswer, Option<String>) {
        let id = record.operation_id.to_string();
        let deduplicates = Kind::named(record.operation.as_str()).is_some_and(|kind| kind.deduplicates);
        if self.chance.percent(moods / 4) {
            return (LookUpAnswer::no_answer("it has other things to do"), None);
        }
        if let Some(entry) = self.effects.get(&id).filter(|entry| entry.at + lag <= now) {
            return (LookUpAnswer::Executed(stored(&entry.reply)), Some(entry.effect.clone()));
        }
        if let Some((_, reply)) = self.refusals.get(&id).filter(|(at, _)| at + lag <= now) {
            return (LookUpAnswer::Failed(stored(reply)), None);
        }
        if tells_pending && self.pending.contains_key(&id) && self.broken != Some(Broken::HastyVerdict) {
            return (LookUpAnswer::Pending, None);
        }
        let known = deduplicates || self.broken == Some(Broken::HastyVerdict);
        let proof = if known { Proof::ProviderDeduplicates } else { Proof::Quarantine };
        (LookUpAnswer::NotExecuted(proof), None)
    }
}

fn stored(reply: &Reply) -> StoredResult {
    StoredResult::of(&Response::retain(reply.status, &reply.headers, reply.body.clone(), &HeaderMap::new()))
}

fn not_executed(call: &Call, word: bool) -> Reply {
    let status = if word { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::TOO_MANY_REQUESTS };
    let mut told = reply(status, &nothing(call), None);
    say(&mut told.headers, NOT_EXECUTED, &call.attempt.to_string());
    if word {
        say(&mut told.headers, "semel-outcome", "not-executed");
    }
    told
}

fn nothing(call: &Call) -> String {
    json!({ "effect": null, "canary": call.canary, "attempt": call.attempt }).to_string()
}

fn reply(status: StatusCode, body: &str, effect: Option<&str>) -> Reply {
    let mut headers = HeaderMap::new();
    say(&mut headers, "content-type", "application/json");
    if let Some(effect) = effect {
        say(&mut headers, "location", &format!("/effects/{effect}"));
    }
    Reply { status, headers, body: Bytes::copy_from_slice(body.as_bytes()) }
}

fn say(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
