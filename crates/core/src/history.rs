//! The history of a record, for people: `semel records explain` shows it, and evidence is compared with it.
//! No transition depends on it, so an unreadable line is skipped.
//!
//! The history is text, one line per step, readable in any database shell:
//!
//! ```text
//! 1763207245123 1 processing claimed
//! 1763207275123 1 unknown timed_out | POST /payments: no answer within 25s
//! ```
//!
//! After a bar stands the executor's observation of a call with an unknown outcome.
//!
//! Invariant: a history grows only with a write to its record, in the same write, and is bounded.

use crate::state::{Epoch, Head, Reason, StateName};
use crate::time::Timestamp;

/// Maximum number of steps. The first stays; of the others, the oldest are dropped.
const MAX_STEPS: usize = 48;

/// Maximum length of an observation, in characters.
const MAX_OBSERVATION: usize = 300;

/// Separator of a step and its observation.
const BAR: &str = " | ";

/// The steps of one record, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(String);

/// One step: the record entered this state for this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time of the step, by the store's clock.
    pub at: Timestamp,
    /// Epoch of the step.
    pub epoch: Epoch,
    /// State that the record entered.
    pub state: StateName,
    /// Reason for the step.
    pub reason: Reason,
    /// Number of further writes in this state, and time of the last one: lease renewals, look-ups without
    /// evidence.
    pub again: Option<(u32, Timestamp)>,
}

impl History {
    /// Returns the history that a store kept.
    pub fn from_text(text: String) -> History {
        History(text)
    }

    /// Returns the text that a store keeps.
    pub fn as_text(&self) -> &str {
        &self.0
    }

    /// Appends `head` at `now`.
    pub(crate) fn then(&self, head: &Head, now: Timestamp) -> History {
        let next =
            Step { at: now, epoch: head.epoch, state: head.state.name(), reason: head.reason, again: None };
        let (before, last_line) =
            self.0.rsplit_once('\n').map_or(("", &*self.0), |(before, last)| (before, last));
        if let Some(last) = Step::parse(last_line)
            && (last.epoch, last.state, last.reason) == (next.epoch, next.state, next.reason)
        {
            let times = last.again.map_or(1, |(times, _)| times.saturating_add(1));
            let seen = observation(last_line).map_or(String::new(), |seen| format!("{BAR}{seen}"));
            return History::joined([
                before,
                &format!("{}{seen}", Step { again: Some((times, now)), ..last }),
            ]);
        }
        let steps = self.0.lines().count();
        let next = next.to_string();
        if steps < MAX_STEPS {
            return History::joined([&*self.0, &*next]);
        }
        let kept = self.0.lines().take(1).chain(self.0.lines().skip(steps + 2 - MAX_STEPS));
        History::joined(kept.chain([&*next]))
    }

    fn joined<'a>(lines: impl IntoIterator<Item = &'a str>) -> History {
        // Most histories have two steps.
        let mut text = String::with_capacity(128);
        for line in lines.into_iter().filter(|line| !line.is_empty()) {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line);
        }
        History(text)
    }

    /// Adds an observation to the last step.
    pub(crate) fn observing(self, seen: &str) -> History {
        let line: String =
            seen.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_OBSERVATION).collect();
        History(self.0 + BAR + line.trim())
    }

    /// Returns the executor's last observation of a call with an unknown outcome.
    pub fn observation(&self) -> Option<&str> {
        self.0.lines().rev().find_map(observation)
    }

    /// Returns the start of the attempt of this epoch, if the history still has it.
    pub fn began(&self, epoch: Epoch) -> Option<Timestamp> {
        self.steps().find(|step| step.epoch == epoch).map(|step| step.at)
    }

    /// Returns the terminal state in which the command was settled, if the history still has it.
    pub fn settled_as(&self) -> Option<StateName> {
        let settled = |step: &Step| matches!(step.state, StateName::Succeeded | StateName::FailedFinal);
        self.steps().filter(settled).last().map(|step| step.state)
    }

    /// Returns the steps, the oldest first.
    pub fn steps(&self) -> impl Iterator<Item = Step> {
        self.0.lines().filter_map(Step::parse)
    }
}

impl Step {
    fn parse(line: &str) -> Option<Step> {
        let step = line.split_once(BAR).map_or(line, |(step, _)| step);
        let mut words = step.split(' ');
        let at = moment(words.next()?)?;
        let epoch = words.next()?.parse().ok()?;
        let state = StateName::parse(words.next()?)?;
        let reason = Reason::parse(words.next()?)?;
        let again = match words.next() {
            Some(times) => Some((times.parse().ok()?, moment(words.next()?)?)),
            None => None,
        };
        Some(Step { at, epoch, state, reason, again })
    }
}

/// Returns the text behind the bar of a line.
fn observation(line: &str) -> Option<&str> {
    line.split_once(BAR).map(|(_, seen)| seen)
}

fn moment(millis: &str) -> Option<Timestamp> {
    millis.parse().ok().map(Timestamp::from_millis)
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.at.as_millis(), self.epoch, self.state, self.reason.as_str())?;
        match self.again {
            Some((times, last)) => write!(f, " {times} {}", last.as_millis()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::{Fingerprint, FingerprintVersion};
    use crate::ids::AttemptToken;
    use crate::policy::Policy;
    use crate::state::State;

    fn head(epoch: Epoch, state: State, reason: Reason) -> Head {
        Head {
            fingerprint: Fingerprint::from_parts(FingerprintVersion::V1, [0; 32]),
            epoch,
            token: AttemptToken::from_bytes([0; 16]),
            terms: Policy::default().terms(),
            state,
            reason,
            earlier_may_have_run: false,
            partly_done: false,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn running(epoch: Epoch, until: i64) -> Head {
        head(epoch, State::Processing { lease_until: at(until), start_by: None }, Reason::Claimed)
    }

    #[test]
    fn renewals_are_counted_in_one_step() {
        let claimed = History::default().then(&running(1, 30), at(0));
        let renewed = claimed.then(&running(1, 40), at(10)).then(&running(1, 50), at(20));
        let steps: Vec<Step> = renewed.steps().collect();
        assert_eq!(steps.len(), 1);
        assert_eq!((steps[0].at, steps[0].again), (at(0), Some((2, at(20)))));
        let retried = renewed.then(&running(2, 60), at(30));
        assert_eq!(retried.steps().map(|step| step.epoch).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(History::from_text(retried.as_text().to_owned()), retried);
    }

    #[test]
    fn a_long_history_keeps_its_first_step_and_its_most_recent_ones() {
        let mut history = History::default();
        for epoch in 1..=1000 {
            history = history.then(&running(epoch, 0), at(i64::from(epoch)));
            assert!(history.as_text().lines().count() <= MAX_STEPS);
        }
        let steps: Vec<Step> = history.steps().collect();
        assert_eq!(steps.len(), MAX_STEPS);
        assert_eq!(steps[0].epoch, 1, "how it began");
        assert_eq!(steps[1].epoch, 1000 - (MAX_STEPS as Epoch - 2), "then the last ones, without a gap");
        assert_eq!(steps.last().map(|step| step.epoch), Some(1000));
    }

    #[test]
    fn later_look_ups_keep_the_observation_of_a_history_step() {
        let unknown = |looks| {
            let state = State::Unknown {
                since: at(9),
                reconcile_after: at(9),
                attempts: looks,
                quarantine_until: at(60),
            };
            head(1, state, Reason::TimedOut)
        };
        let seen = History::default().then(&running(1, 30), at(0)).then(&unknown(0), at(9));
        let seen = seen.observing("POST /a | b:\nno answer");
        assert_eq!(seen.observation(), Some("POST /a | b: no answer"));
        let looked = seen.then(&unknown(1), at(10)).then(&unknown(2), at(11));
        assert_eq!(looked.observation(), Some("POST /a | b: no answer"));
        let steps: Vec<Step> = looked.steps().collect();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[1].again, Some((2, at(11))));
        let long = History::default().then(&running(1, 0), at(0)).observing(&"x".repeat(1000));
        assert_eq!(long.observation().map(str::len), Some(MAX_OBSERVATION));
    }

    #[test]
    fn unreadable_history_lines_are_skipped() {
        let text =
            "1000 1 processing claimed\nnonsense\n2000 1 dancing claimed\n\n3000 1 unknown lease_expired x";
        let history = History::from_text(text.to_owned());
        assert_eq!(history.steps().count(), 1);
        let more = history.then(&running(2, 60), at(60));
        assert_eq!(more.steps().count(), 2);
    }

    #[test]
    fn an_attempt_begins_at_the_time_of_its_first_history_step() {
        let history = History::default().then(&running(1, 30), at(0)).then(&running(2, 60), at(30));
        assert_eq!([1, 2, 3].map(|epoch| history.began(epoch)), [Some(at(0)), Some(at(30)), None]);
    }
}
