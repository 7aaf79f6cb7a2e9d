//! Judge of a service's own transactions and of their messages: checks that observations satisfy a code of the matrix.
//! Pure.

#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::judge::TOO_MANY;
use crate::kept::{Kept, Message};
use crate::receiver::{Delivery, reference};
use crate::seen::{Answer, Told};
use crate::table::Code;
use crate::violations::Violations;

/// All observations of one command and of its message.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// True if the fault struck the message, after the command was done.
    pub(crate) about_message: bool,
    /// Content of the database when the fault had struck, before anything else happened.
    pub(crate) at_fault: Kept,
    /// Number of messages received by then.
    pub(crate) received: usize,
    /// True if the transaction was committed by then; `None` where that is not known.
    pub(crate) committed: Option<bool>,
    /// True if the COMMIT was sent after that, so that it was in doubt for a while.
    pub(crate) committing: bool,
    /// Final result of the first client.
    pub(crate) first: Told,
    /// Results of duplicates while the fault lasted.
    pub(crate) during: Vec<Told>,
    /// Content of the database when the fault was over and the first client had its response, before any retry.
    pub(crate) then: Kept,
    /// Results of later retries, until the command was done.
    pub(crate) after: Vec<Told>,
    /// Final result at every process.
    pub(crate) last: Vec<Told>,
    /// Final content of the database.
    pub(crate) end: Kept,
    /// Messages that came to the receiver.
    pub(crate) deliveries: Vec<Delivery>,
    /// True if the message must come again after the fault, false if it must not.
    pub(crate) sent_again: Option<bool>,
    /// The message as another worker left it while the first one was suspended.
    pub(crate) won: Option<Message>,
    /// Refused message and accepted message of a poison cell.
    pub(crate) poison: Option<Poison>,
}

/// A command whose message the receiver refuses, beside one whose message it accepts.
#[derive(Clone, Debug)]
pub(crate) struct Poison {
    pub(crate) key: String,
    /// Number of delivery attempts before the message is dead.
    pub(crate) tries: u32,
    /// Result of the other command's client.
    pub(crate) other: Told,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            about_message: false,
            at_fault: Kept::default(),
            received: 0,
            committed: None,
            committing: false,
            first: Told::Left,
            during: Vec::new(),
            then: Kept::default(),
            after: Vec::new(),
            last: Vec::new(),
            end: Kept::default(),
            deliveries: Vec::new(),
            sent_again: None,
            won: None,
            poison: None,
        }
    }
}

impl Seen {
    /// Returns the results of all clients of the first command.
    fn told(&self) -> impl Iterator<Item = &Told> {
        [&self.first].into_iter().chain(&self.during).chain(&self.after).chain(&self.last)
    }

    /// Describes the observations in one line.
    pub(crate) fn tell(&self) -> String {
        let list = |told: &[Told]| told.iter().map(Told::to_string).collect::<Vec<_>>().join(", ");
        format!(
            "at the fault {} and {} deliveries; first: {}; during: [{}]; then {}; after: [{}]; last: [{}]; in the end {} and {} \
             deliveries",
            self.at_fault.tell(),
            self.received,
            self.first,
            list(&self.during),
            self.then.tell(),
            list(&self.after),
            list(&self.last),
            self.end.tell(),
            self.deliveries.len()
        )
    }
}

/// Results of a cell's scenes.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Observations of each scene.
    pub(crate) seen: Vec<String>,
    /// Violations, by scene.
    pub(crate) violated: Vec<String>,
}

impl Found {
    /// Judges a scene and adds its result.
    pub(crate) fn judge(&mut self, scene: &str, code: Code, seen: &Seen) {
        let violated = judge(code, seen);
        self.seen.push(format!("{scene}: {}", seen.tell()));
        if !violated.is_empty() {
            self.violated.push(format!("{scene}: {}", violated.join("; ")));
        }
    }
}

/// Returns the violations; none, if the code holds.
fn judge(code: Code, seen: &Seen) -> Vec<String> {
    let mut judge = Judge { seen, violations: Violations::default() };
    judge.always(code);
    if seen.about_message {
        judge.of_message(code);
    } else {
        judge.of_transaction(code);
    }
    judge.violations.list()
}

struct Judge<'a> {
    seen: &'a Seen,
    violations: Violations,
}

/// Returns true if the client was told that nothing happened.
fn is_nothing(told: &Told) -> bool {
    told.is_unavailable() || is_rolled_back(told)
}

fn is_rolled_back(told: &Told) -> bool {
    let code = told.as_answer().and_then(|answer| answer.code.as_deref());
    code == Some("COMMAND_ROLLED_BACK")
}

/// Returns the effect that a body names.
fn effect(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body["effect"].as_str().map(str::to_owned)
}

/// Returns the client's key of the command that sent this message.
fn key(delivery: &Delivery) -> Option<String> {
    let body: Value = serde_json::from_slice(&delivery.body).ok()?;
    body["key"].as_str().map(str::to_owned)
}

impl Judge<'_> {
    fn must(&mut self, is_so: bool, otherwise: &str) {
        self.violations.must(is_so, otherwise);
    }

    /// Checks the rules of every cell.
    fn always(&mut self, code: Code) {
        let seen = self.seen;
        let commands = if seen.poison.is_some() { 2 } else { 1 };
        for (when, kept) in
            [("at the fault", &seen.at_fault), ("then", &seen.then), ("in the end", &seen.end)]
        {
            self.must(
                kept.whole().is_some(),
                &format!("{when} there is a part of a command without the rest"),
            );
            self.must(kept.rows.len() <= commands, TOO_MANY);
        }
        self.must(seen.end.whole() == Some(commands), "in the end it is not done, once");
        for told in seen.told() {
            self.is_understood(told);
        }
        self.must(!seen.last.is_empty() && seen.last.iter().all(Told::is_done), "a retry gets no answer");
        let replayed = seen.last.iter().filter_map(Told::as_answer).all(|answer| answer.replayed);
        self.must(replayed, "a retry is not marked as a replay");
        let done: Vec<&Answer> =
            seen.told().filter(|told| told.is_done()).filter_map(Told::as_answer).collect();
        if code == Code::Lost {
            return self.is_lost();
        }
        let effects: Vec<Option<String>> = seen.end.rows.iter().map(|row| Some(row.effect.clone())).collect();
        for answer in &done {
            self.must(effects.contains(&effect(&answer.body)), "an answer that nothing stands for");
            let is_same = answer.body == done[0].body && answer.operation_id == done[0].operation_id;
            self.must(is_same, "two clients got two answers to one command");
        }
        self.are_right(&effects);
        if code != Code::Quarantined {
            self.is_delivered();
        }
    }

    /// Checks that every delivered message is of an executed command, and the same each time.
    fn are_right(&mut self, effects: &[Option<String>]) {
        let seen = self.seen;
        for delivery in &seen.deliveries {
            let is_kept = seen.end.messages.iter().any(|message| message.event_id == delivery.event_id);
            self.must(is_kept, "a message came of which nobody knows");
            self.must(effects.contains(&effect(&delivery.body)), "a message came about what was taken back");
            self.must(delivery.key == format!("\"{}\"", delivery.event_id), "its key is not its event id");
            let is_same =
                |other: &Delivery| other.event_id != delivery.event_id || other.body == delivery.body;
            self.must(seen.deliveries.iter().all(is_same), "a message came again, and was another");
        }
    }

    /// Checks that the receiver has accepted the one message, and that its reference is stored.
    fn is_delivered(&mut self) {
        let seen = self.seen;
        for message in &seen.end.messages {
            self.must(message.state == "delivered", "a message was not delivered");
            let known = message.reference.as_deref() == Some(&*reference(&message.event_id));
            self.must(known, "what the receiver calls a message is not known");
            let taken = |delivery: &Delivery| delivery.is_taken && delivery.event_id == message.event_id;
            self.must(seen.deliveries.iter().any(taken), "a message is marked as delivered, and never came");
        }
    }

    /// Checks that a client can act on the response.
    fn is_understood(&mut self, told: &Told) {
        let Some(answer) = told.as_answer() else { return };
        if told.is_in_progress() || told.is_unavailable() {
            self.must(answer.retry_after, "told to come back, and not when");
        } else {
            let known = told.is_done() || told.is_failed_unknown() || is_rolled_back(told);
            self.must(known, &format!("an answer that the contract does not have: {told}"));
        }
    }

    /// Checks that the store lost the whole command, so that its key looks new.
    fn is_lost(&mut self) {
        let seen = self.seen;
        let keys: Vec<Option<String>> = seen.deliveries.iter().map(key).collect();
        let is_one = keys.iter().all(|key| key.is_some() && *key == keys[0]);
        self.must(is_one, "a receiver could not have told that it is the same command");
        let mut ids: Vec<&str> = seen.deliveries.iter().map(|delivery| &*delivery.event_id).collect();
        ids.sort_unstable();
        ids.dedup();
        self.must(ids.len() <= 2, TOO_MANY);
        self.is_delivered();
    }

    fn of_transaction(&mut self, code: Code) {
        let seen = self.seen;
        let then = seen.then.whole();
        if is_nothing(&seen.first) && !seen.during.iter().any(Told::is_done) {
            self.must(then == Some(0), "a client was told that nothing happened, and it had");
        }
        if seen.first.is_done() && code != Code::Lost {
            self.must(then == Some(1), "a client was told that it is done, and nothing is there");
        }
        match code {
            Code::Atomic => {
                let expected = seen.committed.map(usize::from);
                self.must(expected.is_some() && then == expected, "it is not what had been committed");
            }
            Code::Nothing => {
                self.must(seen.at_fault == Kept::default(), "something was there already");
                self.must(then == Some(0), "something happened");
                self.must(!seen.first.is_done(), "done, and yet nothing happened");
                let doubted = seen.committing && seen.first.is_failed_unknown();
                let told = is_nothing(&seen.first) || seen.first.as_answer().is_none() || doubted;
                self.must(told, "the client was not told that nothing happened");
            }
            Code::Ambiguous => {
                let decided = seen.first.is_done() || is_nothing(&seen.first);
                self.must(decided, "the client was answered before it was decided");
            }
            Code::Fenced => {
                self.must(seen.during.iter().any(Told::is_done), "nobody took it over");
                let winners = |answer: &Answer| {
                    answer.replayed || seen.first.is_in_progress() || seen.first.is_unknown()
                };
                let told = seen.first.as_answer().is_none_or(winners);
                self.must(told, "who was given up told its own result");
            }
            Code::Done => {
                self.must(!seen.during.iter().any(Told::is_done), "it was done by somebody else");
                let anew =
                    |told: &Told| told.is_done() && told.as_answer().is_some_and(|answer| !answer.replayed);
                self.must(!seen.after.iter().any(anew), "it was done again");
            }
            Code::Owned => {
                let waits = |told: &Told| told.is_in_progress() || told.is_unavailable();
                self.must(
                    !seen.during.is_empty() && seen.during.iter().all(waits),
                    "somebody was not told to wait",
                );
                let own =
                    seen.first.as_answer().is_some_and(|answer| seen.first.is_done() && !answer.replayed);
                self.must(own, "the owner has no answer");
            }
            Code::Lost => {
                self.must(seen.first.is_done(), "nothing was acknowledged that could be lost");
                self.must(then == Some(0), "not everything is lost");
            }
            _ => self.must(false, "this code is not judged by what a transaction shows"),
        }
    }

    fn of_message(&mut self, code: Code) {
        let seen = self.seen;
        self.must(seen.first.is_done(), "the command was not done");
        match code {
            Code::Redelivered => self.is_redelivered(),
            Code::RedeliveredFenced => {
                self.is_redelivered();
                let is_same = seen.won.is_some() && seen.end.messages.first() == seen.won.as_ref();
                self.must(is_same, "who was given up changed the message");
            }
            Code::Ambiguous => {
                self.is_redelivered();
                self.must(seen.deliveries.len() == 1, "it was sent again, although it was known to be there");
            }
            Code::Quarantined => self.is_quarantined(),
            Code::Lost => {}
            _ => self.must(false, "this code is not judged by what becomes of a message"),
        }
    }

    /// Checks that the one message was there all the time, under one event id.
    fn is_redelivered(&mut self) {
        let seen = self.seen;
        let ids = |kept: &Kept| -> Vec<String> {
            kept.messages.iter().map(|message| message.event_id.clone()).collect()
        };
        let end = ids(&seen.end);
        self.must(ids(&seen.at_fault) == end, "it has another name than at the fault");
        self.must(ids(&seen.then) == end, "it was away meanwhile");
        match seen.sent_again {
            Some(true) => self.must(seen.deliveries.len() > seen.received, "it was not sent again"),
            Some(false) => {
                self.must(
                    seen.deliveries.len() == seen.received,
                    "it was sent, although it was known to be there",
                );
            }
            None => {}
        }
    }

    /// Checks that the refused message is dead after its attempts, and no other one.
    fn is_quarantined(&mut self) {
        let seen = self.seen;
        let Some(poison) = &seen.poison else { return self.must(false, "nothing was refused") };
        self.must(poison.other.is_done(), "the other command was not done");
        let is_poison = |delivery: &&Delivery| key(delivery).as_deref() == Some(&*poison.key);
        let bad: Vec<&Delivery> = seen.deliveries.iter().filter(is_poison).collect();
        self.must(bad.len() == poison.tries as usize, "it was not tried as often as it may be");
        for message in &seen.end.messages {
            if bad.iter().any(|delivery| delivery.event_id == message.event_id) {
                self.must(message.state == "dead", "it was not given up");
                self.must(message.attempts == u64::from(poison.tries), "its tries were not counted");
            } else {
                self.must(message.state == "delivered", "another message did not move");
            }
        }
        let delivered = seen.end.messages.iter().filter(|message| message.state == "delivered").count();
        self.must(delivered == 1, "not exactly the other message was delivered");
    }
}
