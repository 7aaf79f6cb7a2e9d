//! Business references that two commands claim to have executed. Every store reports them by [`contested`].

use semel_core::{Note, OperationId};

/// Author of the store's own notes.
const STORE: &str = "store";

/// Reports that the effect of a command is proven after its business reference went to another one: in the
/// log, as a metric, and by the returned note, which the store writes to the audit log.
pub(crate) fn contested(command: OperationId, holder: OperationId) -> Note {
    metrics::counter!("idempotency_reference_conflicts_total").increment(1);
    tracing::error!(
        event = "idempotency_reference_conflict",
        operationId = %command,
        holder = %holder,
        "a command was carried out whose business reference another command holds by now: both may have had an effect"
    );
    let why =
        format!("it was carried out, but its business reference went to operation {holder} in the meantime");
    Note { who: STORE.to_owned(), action: "contradiction".to_owned(), why }
}
