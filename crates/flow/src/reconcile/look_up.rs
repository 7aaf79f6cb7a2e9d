//! Where evidence is looked for.

use async_trait::async_trait;
use semel_core::{Found, Record};

/// Asks whoever would know, such as a payment provider, what became of a command.
///
/// It only asks: it never makes the call again. A look that takes longer than the reconciler allows is dropped, and counts
/// as no answer.
#[async_trait]
pub trait LookUp: Send + Sync + 'static {
    /// What became of this command, whose outcome is unknown. The provider knows it by
    /// [`operation_id`](Record::operation_id), or by `operationId:phase` where it got a derived key.
    async fn look_up(&self, record: &Record) -> Finding;

    /// Whether whoever carries this command out does so once, however often it is asked: then what an earlier attempt did is
    /// what a later one was answered with. Default: no.
    fn deduplicates(&self, _record: &Record) -> bool {
        false
    }
}

/// What a look-up came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it says about the command.
    pub found: Found,
    /// What was seen, for people: it is kept in the audit log beside the verdict. No bodies, no credentials.
    pub seen: String,
}

impl Finding {
    /// What was found, and what was seen of it.
    pub fn new(found: Found, seen: impl Into<String>) -> Finding {
        Finding { found, seen: seen.into() }
    }

    /// Nothing was learnt, for this reason.
    pub fn no_answer(why: impl Into<String>) -> Finding {
        Finding { found: Found::no_answer(why), seen: String::new() }
    }
}

/// Nobody can be asked: evidence comes by itself, or from an operator.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLookUp;

#[async_trait]
impl LookUp for NoLookUp {
    async fn look_up(&self, record: &Record) -> Finding {
        Finding::no_answer(format!("there is no look-up for the operation {}", record.operation))
    }
}
