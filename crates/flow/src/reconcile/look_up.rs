//! The trait for asking a provider about a command.

use async_trait::async_trait;
use semel_core::{LookUpAnswer, Record};

/// Asks the party that knows, such as a payment provider, for the outcome of a command.
///
/// It only asks, and never repeats the call. A look-up that exceeds the reconciler's timeout is dropped, and counts as
/// no answer.
#[async_trait]
pub trait LookUp: Send + Sync + 'static {
    /// Returns the finding about this command, whose outcome is unknown. The provider knows it by
    /// [`operation_id`](Record::operation_id), or by `operationId:phase` if it got a derived key.
    async fn look_up(&self, record: &Record) -> Finding;

    /// Returns true if the provider executes this command once, however often it is called: then a later attempt got
    /// the answer of an earlier attempt's effect. Default: false.
    fn deduplicates(&self, _record: &Record) -> bool {
        false
    }
}

/// Result of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Verdict about the command, or its absence.
    pub found: LookUpAnswer,
    /// Observation for people: it is stored in the audit log beside the verdict. No bodies, no credentials.
    pub seen: String,
}

impl Finding {
    /// Creates a finding with its observation.
    pub fn new(found: LookUpAnswer, seen: impl Into<String>) -> Finding {
        Finding { found, seen: seen.into() }
    }

    /// Creates a finding without evidence, for this reason.
    pub fn no_answer(why: impl Into<String>) -> Finding {
        Finding { found: LookUpAnswer::no_answer(why), seen: String::new() }
    }
}

/// Look-up for services without a provider to ask: evidence arrives by events, or from an operator.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLookUp;

#[async_trait]
impl LookUp for NoLookUp {
    async fn look_up(&self, record: &Record) -> Finding {
        Finding::no_answer(format!("there is no look-up for the operation {}", record.operation))
    }
}
