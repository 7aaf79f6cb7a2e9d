//! A command that a request or a worker has acquired, and may execute.

use std::time::Duration;

use semel_core::{Change, Fence, Reason, Record};

use crate::busy::KeyHashPrefix;
use crate::execution::AskedAt;
use crate::observe::ObservationLabels;
use crate::operations::CommandRule;
use crate::spans::OpenSpan;

/// A command that was acquired, by a request or by a worker.
pub(crate) struct Acquired {
    pub(crate) record: Box<Record>,
    pub(crate) rule: CommandRule,
    /// The moment at which the store was asked for it, by the clock of this process. The lease counts from then, so that it
    /// ends here before it ends in the store.
    pub(crate) asked: AskedAt,
    /// The change that is written if the command provably does not run.
    pub(crate) unexecuted: Unexecuted,
    /// The span that the execution is a part of, if it is traced.
    pub(crate) span: Option<OpenSpan>,
}

impl Acquired {
    /// Returns the labels of observations of the command.
    pub(crate) fn about(&self) -> ObservationLabels {
        ObservationLabels {
            principal: Some(self.record.principal.clone()),
            key: KeyHashPrefix::parse(&self.record.key_hash_prefix),
            trace: self.span.as_ref().map(OpenSpan::context),
            ..ObservationLabels::of(&self.rule)
        }
    }
}

/// The change that is written about a command that provably did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unexecuted {
    /// Frees the key for one fresh request.
    Release,
    /// Leaves the command to a worker, after this time.
    Requeue(Duration),
}

impl Unexecuted {
    pub(crate) fn change(self, fence: Fence, reason: Reason) -> Change {
        match self {
            Unexecuted::Release => Change::release(fence, reason),
            Unexecuted::Requeue(after) => Change::requeue(fence, reason, after),
        }
    }
}
