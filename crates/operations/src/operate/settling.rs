//! Outcomes of verdicts on many records. Each verdict goes through [`act`] by itself, so that the protocol decides about
//! every record alone.

use semel_core::{Note, Record, Records, StateName, StoreError};
use semel_settings::Config;
use serde_json::{Value, json};

use super::Acted;
use super::records::{act, rehearse};
use super::settle::EvidenceLine;

/// Action in notes and messages.
const ACTION: &str = "resolve";

/// Result of one verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictOutcome {
    /// The record is settled, or would be.
    Settled {
        /// State after it.
        state: Option<StateName>,
        /// True if the verdict has a body that the operation's policy does not store.
        loses_its_body: bool,
    },
    /// Settled before, by the same verdict. Nothing changed.
    AlreadySettled {
        /// State of the record.
        state: StateName,
    },
    /// The protocol refuses it. Nothing changed.
    Refused(String),
    /// No such record exists.
    Absent(String),
    /// The store could not take it.
    Failed(String),
    /// It was not given, since the store failed before it.
    NotTried,
}

/// Numbers of verdicts by their outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    /// Verdicts that settled their records, or would.
    pub settled: usize,
    /// Verdicts whose records the same verdict settled before.
    pub already_settled: usize,
    /// Verdicts that were refused, are about no record, failed, or were not given.
    pub others: usize,
}

impl VerdictCounts {
    /// Counts a verdict.
    pub fn count(&mut self, outcome: &VerdictOutcome) {
        let counted = match outcome {
            VerdictOutcome::Settled { .. } => &mut self.settled,
            VerdictOutcome::AlreadySettled { .. } => &mut self.already_settled,
            VerdictOutcome::Refused(_)
            | VerdictOutcome::Absent(_)
            | VerdictOutcome::Failed(_)
            | VerdictOutcome::NotTried => &mut self.others,
        };
        *counted += 1;
    }

    /// Returns the numbers and the results as JSON. The names are stable.
    pub fn to_json(&self, is_dry: bool, results: &[Value]) -> Value {
        json!({
            "dryRun": is_dry,
            "settled": self.settled,
            "alreadySettled": self.already_settled,
            "others": self.others,
            "results": results,
        })
    }
}

/// Gives verdicts one after the other, or only says what each would come to.
pub struct Settling<'a> {
    /// Store of the records.
    pub store: &'a dyn Records,
    /// Settings of the operations.
    pub config: &'a Config,
    /// Operator.
    pub who: &'a str,
    /// True if nothing is to be changed.
    pub is_dry: bool,
    /// Failure of the store after which no verdict is given.
    pub stopped: Option<String>,
}

impl Settling<'_> {
    /// Gives one verdict.
    pub async fn give(&mut self, line: &EvidenceLine) -> VerdictOutcome {
        if self.stopped.is_some() {
            return VerdictOutcome::NotTried;
        }
        let (mut loses_its_body, id) = (false, line.operation_id);
        let change = |record: &Record| {
            let policy = self.config.policy_of(&record.operation);
            loses_its_body = line.said.loses_its_body(policy);
            line.said.change(policy, line.attempt)
        };
        let acted = match self.is_dry {
            true => rehearse(self.store, id, change, ACTION).await,
            false => {
                let note =
                    Note { who: self.who.to_owned(), action: ACTION.to_owned(), why: line.why.clone() };
                act(self.store, id, change, note).await
            }
        };
        match acted {
            Ok(Acted::Done(state)) => VerdictOutcome::Settled { state, loses_its_body },
            Ok(Acted::Refused(why)) => match self.settled_before(line).await {
                Ok(Some(state)) => VerdictOutcome::AlreadySettled { state },
                Ok(None) => VerdictOutcome::Refused(why),
                Err(error) => self.failed(&error),
            },
            Ok(Acted::Absent(why)) => VerdictOutcome::Absent(why),
            Err(error) => self.failed(&error),
        }
    }

    /// Returns the state of the record if the same verdict settled it before. It is read after the refusal: another
    /// operator may settle it in between.
    async fn settled_before(&self, line: &EvidenceLine) -> Result<Option<StateName>, StoreError> {
        let record = self.store.find(line.operation_id).await?.record;
        let is_same = |record: &Record| {
            let policy = self.config.policy_of(&record.operation);
            line.said.has_settled(record, policy, line.attempt)
        };
        Ok(record.filter(is_same).map(|record| record.head.state.name()))
    }

    fn failed(&mut self, error: &StoreError) -> VerdictOutcome {
        let why = error.to_string();
        match error {
            // These are about this record only.
            StoreError::Busy(_) | StoreError::Rejected(_) | StoreError::Corrupt(_) => {}
            StoreError::Unavailable(_) | StoreError::Ambiguous(_) | StoreError::Damaged(_) => {
                self.stopped = Some(why.clone());
            }
        }
        VerdictOutcome::Failed(why)
    }

    /// Returns the result of a verdict as JSON. The names are stable.
    pub fn to_json(&self, line: &EvidenceLine, outcome: &VerdictOutcome) -> Value {
        let mut shown = json!({
            "number": line.number,
            "operationId": line.operation_id.to_string(),
            "verdict": line.verdict(),
            "result": self.word(outcome),
        });
        match outcome {
            VerdictOutcome::Settled { state, loses_its_body } => {
                shown["state"] = json!(state.map(StateName::as_str));
                if *loses_its_body {
                    shown["bodyStored"] = false.into();
                }
            }
            VerdictOutcome::AlreadySettled { state } => shown["state"] = state.as_str().into(),
            VerdictOutcome::Refused(why) | VerdictOutcome::Absent(why) | VerdictOutcome::Failed(why) => {
                shown["why"] = why.as_str().into();
            }
            VerdictOutcome::NotTried => {}
        }
        shown
    }

    /// Returns the result of a verdict as a word.
    pub fn word(&self, outcome: &VerdictOutcome) -> &'static str {
        match outcome {
            VerdictOutcome::Settled { .. } if self.is_dry => "would_settle",
            VerdictOutcome::Settled { .. } => "settled",
            VerdictOutcome::AlreadySettled { .. } => "already_settled",
            VerdictOutcome::Refused(_) => "refused",
            VerdictOutcome::Absent(_) => "absent",
            VerdictOutcome::Failed(_) => "failed",
            VerdictOutcome::NotTried => "not_tried",
        }
    }
}
