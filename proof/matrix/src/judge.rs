//! Judge of a gateway's cells: checks that observations satisfy a code of the matrix. Pure.

use crate::seen::{Answer, Seen, Told};
use crate::table::Code;
use crate::violations::Violations;

/// Violation of the first promise.
pub(crate) const TOO_MANY: &str = "more effects than there may be";

/// Returns the violations; none, if the code holds.
pub(crate) fn judge(code: Code, seen: &Seen) -> Vec<String> {
    let mut judge = Judge { seen, violations: Violations::default() };
    judge.always(code);
    judge.of_code(code);
    judge.violations.list()
}

struct Judge<'a> {
    seen: &'a Seen,
    violations: Violations,
}

impl Judge<'_> {
    fn must(&mut self, is_so: bool, otherwise: &str) {
        self.violations.must(is_so, otherwise);
    }

    /// Checks the rules of every cell.
    fn always(&mut self, code: Code) {
        let seen = self.seen;
        let most = if code == Code::Lost { 2 } else { 1 };
        self.must(seen.effects.len() <= most, TOO_MANY);
        let mut done: Vec<&Answer> = Vec::new();
        for told in seen.told() {
            self.is_understood(told);
            done.extend(told.as_answer().filter(|_| told.is_done()));
        }
        for answer in &done {
            let from_ledger = seen.effects.iter().any(|effect| effect.body == answer.body);
            let from_operator = seen.operator.as_ref() == Some(&answer.body);
            self.must(from_ledger || from_operator, "an answer that nobody gave");
        }
        if code != Code::Lost {
            let same = |one: &Answer, other: &Answer| {
                one.body == other.body
                    && one.operation_id == other.operation_id
                    && one.location == other.location
            };
            let all_same = done.iter().all(|answer| same(answer, done[0]));
            self.must(all_same, "two clients got two answers to one command");
        }
        let ran_for_others = seen.during.iter().any(Told::is_done);
        let is_nothing = seen.first.is_unavailable() || seen.first.is_unreachable();
        if is_nothing && !ran_for_others {
            self.must(seen.effects_then == 0, "a client was told that nothing ran, and it had");
        }
        let one_end = seen.last.windows(2).all(|pair| pair[0].is_done() == pair[1].is_done());
        self.must(one_end, "gateways say different things in the end");
    }

    /// Checks that a client can act on the response.
    fn is_understood(&mut self, told: &Told) {
        let Some(answer) = told.as_answer() else { return };
        let refused = (400..500).contains(&answer.status) && answer.code.is_some();
        if told.is_in_progress() {
            self.must(answer.retry_after, "told to wait, and not for how long");
        } else if told.is_unavailable() {
            self.must(answer.retry_after, "told to come back, and not when");
        } else if told.is_unknown() {
            let named = answer.operation_id.is_some() && answer.status_url;
            self.must(named, "told that nobody knows, and not where to ask");
        } else {
            let known = told.is_done()
                || told.is_accepted()
                || told.is_failed_unknown()
                || told.is_not_retained()
                || told.is_unreachable()
                || refused;
            self.must(known, &format!("an answer that the contract does not have: {told}"));
        }
    }

    fn of_code(&mut self, code: Code) {
        let seen = self.seen;
        match code {
            Code::Nothing => {
                self.must(seen.at_fault.0.is_none(), "there was a record already");
                self.must(seen.at_fault.1 == 0, "something had run already");
                self.is_done_once();
            }
            Code::FailClosed => {
                self.must(seen.first.is_unavailable(), "the client was not refused");
                self.must(seen.effects_then == 0, "something ran without a store");
                self.is_done_once();
            }
            Code::Owned => {
                let waits = |told: &Told| told.is_in_progress() || told.is_done();
                self.must(seen.during.iter().all(waits), "somebody was not told to wait");
                let given_up = |told: &Told| waits(told) || told.is_unknown();
                self.must(seen.beyond.iter().all(given_up), "a jump of the clock had it run again");
                self.must(seen.first.is_done(), "the owner has no answer");
                self.is_done_once();
            }
            Code::NeverStarted => {
                self.must(seen.effects_then == 0 || self.ran_for_others(), "it was started");
                self.is_unknown_without_effect_or_done();
            }
            Code::NeverStartedFenced => {
                let own = seen.first.is_done() && !self.ran_for_others();
                self.must(!own, "who was given up ran it all the same");
                self.is_done_once();
            }
            Code::Ambiguous => {
                let decided = seen.first.is_done()
                    || seen.first.is_accepted()
                    || seen.first.is_unavailable()
                    || seen.first.is_failed_unknown();
                self.must(decided, "the client was answered before it was decided");
                self.must(!seen.during.iter().any(Told::is_unknown), "the one who ran it was given up");
                self.is_done_once();
            }
            Code::Unknown => {
                let is_nothing = seen.first.is_unavailable() || seen.first.is_unreachable();
                self.must(!is_nothing, "told that nothing ran, by whom it ran");
                let fresh =
                    |told: &Told| told.as_answer().is_some_and(|answer| !answer.replayed && told.is_done());
                self.must(!seen.during.iter().any(fresh), "it was run again");
                if seen.executor_gone {
                    self.is_unknown();
                    self.must(!seen.first.is_done(), "done, and yet unknown");
                } else {
                    // The executor lives, and repeats its outcome until the store accepts it.
                    self.is_done_once();
                }
            }
            Code::Fenced | Code::UnknownFenced => {
                self.must(seen.during.iter().any(Told::is_unknown), "nobody was told that nobody knows");
                self.must(seen.operator.is_some(), "nobody decided meanwhile");
                let own = seen.first.as_answer().is_some_and(|answer| {
                    seen.first.is_done() && seen.operator.as_ref() != Some(&answer.body)
                });
                self.must(!own, "who was given up told its own result");
                let winner = |told: &Told| {
                    told.as_answer().map(|answer| &answer.body) == seen.operator.as_ref() && told.is_done()
                };
                self.must(seen.last.iter().all(winner), "the record does not say what was decided");
                self.state_is("succeeded");
            }
            Code::Done => self.is_done_once(),
            Code::Lost => {
                let same_key = seen.effects.windows(2).all(|pair| pair[0].key == pair[1].key);
                self.must(same_key, "a provider could not have told that it is the same command");
                self.must(seen.last.iter().all(Told::is_done), "the key does not work");
            }
            Code::NotRetained => {
                self.must(seen.first.is_done(), "the first client did not get it");
                self.must(
                    seen.last.iter().all(Told::is_not_retained),
                    "a retry was not told that it is gone",
                );
                self.must(seen.effects.len() == 1, "it ran again, or never");
                let status = |told: &Told| told.as_answer().is_some_and(|answer| answer.status == 201);
                self.must(seen.last.iter().all(status), "a retry did not get the status");
                self.state_is("succeeded");
            }
            Code::Cached => {
                let right = |told: &Told| told.is_done() || told.is_in_progress() || told.is_unavailable();
                self.must(seen.during.iter().chain(&seen.after).all(right), "memory answered something else");
                self.is_done_once();
            }
            Code::Refused => {
                let refused =
                    |told: &Told| told.as_answer().is_some_and(|answer| (400..500).contains(&answer.status));
                self.must(seen.told().all(refused), "it was not refused");
                self.must(seen.effects.is_empty(), "it ran");
                self.must(seen.record.is_none(), "it has a record");
            }
            Code::Atomic
            | Code::Redelivered
            | Code::RedeliveredFenced
            | Code::Quarantined
            | Code::Swept
            | Code::Versions
            | Code::Keys => self.must(false, "this code is not judged by what a gateway shows"),
        }
    }

    fn ran_for_others(&self) -> bool {
        self.seen.during.iter().any(Told::is_done)
    }

    fn state_is(&mut self, state: &str) {
        let found = self.seen.record.as_ref().map(|record| record.state.as_str());
        self.must(found == Some(state), &format!("the record is {found:?}, not {state}"));
    }

    /// Checks that in the end the command is done, once, and every retry replays it.
    fn is_done_once(&mut self) {
        let seen = self.seen;
        self.must(seen.effects.len() == 1, "not exactly one effect");
        self.must(!seen.last.is_empty() && seen.last.iter().all(Told::is_done), "a retry gets no answer");
        let replayed = seen.last.iter().filter_map(Told::as_answer).all(|answer| answer.replayed);
        self.must(replayed, "a retry is not marked as a replay");
        self.state_is("succeeded");
    }

    /// Checks that in the end the outcome is unknown, and every retry says so.
    fn is_unknown(&mut self) {
        self.must(self.seen.last.iter().all(Told::is_unknown), "a retry is not told that nobody knows");
        self.state_is("unknown");
    }

    fn is_unknown_without_effect_or_done(&mut self) {
        if self.seen.record.as_ref().is_some_and(|record| record.state == "unknown") {
            self.is_unknown();
            self.must(self.seen.effects.is_empty(), "unknown, and something ran");
        } else {
            self.is_done_once();
        }
    }
}

#[cfg(test)]
mod tests;
