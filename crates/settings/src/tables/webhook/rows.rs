//! The settings of a `[[webhook]]`.

use http::{HeaderName, StatusCode};
use semel_core::{JsonPointer, OperationName};

use crate::engine::kind::{Choice, List, Maybe, OneOrMore};
use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Period, Switch};
use crate::parts::text::VariableName;
use crate::parts::word::{GoodStatus, ProviderWord};
use crate::tables::webhook::{ProofName, SchemeName, UnknownOperation, WebhookName, WebhookTable};

/// `[[webhook]]`.
pub(crate) const WEBHOOK: &[Setting<WebhookTable>] = &[
    setting!(
        "name",
        Maybe<WebhookName>,
        name,
        "Its path is /.well-known/semel/webhooks/ and this name",
        "\"provider\""
    ),
    setting!(
        "secret_env",
        OneOrMore<VariableName>,
        secret_env,
        "The variable with the secret that signs its events; several while it is exchanged",
        "\"PROVIDER_WEBHOOK_SECRET\""
    ),
    setting!("scheme", Choice<SchemeName>, scheme, "How its events are signed"),
    setting!(
        "signature_header",
        Maybe<HeaderName>,
        signature_header,
        "With scheme = \"body\": the header with the signature, if not X-Hub-Signature-256",
        "\"X-Signature\""
    ),
    setting!(
        "operations",
        List<OperationName>,
        operations,
        "The operations that it may speak about",
        "[\"payments.create\"]"
    ),
    setting!(
        "tenants",
        List<ProviderWord>,
        tenants,
        "The tenants that it may speak about; without it, all of them",
        "[\"acme\"]"
    ),
    setting!(
        "event_id",
        Maybe<JsonPointer>,
        event_id,
        "Where in an event its id is; with scheme = \"semel\" the header Semel-Event-Id will do",
        "\"/id\""
    ),
    setting!(
        "operation_id",
        Maybe<JsonPointer>,
        operation_id,
        "Where in an event the operation id is, or a key that begins with it and a colon",
        "\"/data/reference\""
    ),
    setting!(
        "attempt",
        Maybe<JsonPointer>,
        attempt,
        "Where in an event the attempt is, if the provider repeats what it got in Semel-Attempt",
        "\"/data/attempt\""
    ),
    setting!(
        "verdict",
        Maybe<JsonPointer>,
        verdict,
        "Where in an event is what became of the command",
        "\"/type\""
    ),
    setting!(
        "executed",
        List<ProviderWord>,
        executed,
        "What is there if it took place",
        "[\"charge.captured\"]"
    ),
    setting!(
        "failed",
        List<ProviderWord>,
        failed,
        "What is there if it failed for good",
        "[\"charge.declined\"]"
    ),
    setting!(
        "not_executed",
        List<ProviderWord>,
        not_executed,
        "What is there if it did not take place; needs a proof",
        "[\"charge.cancelled\"]"
    ),
    setting!(
        "proof",
        Maybe<Choice<ProofName>>,
        proof,
        "Why not_executed cannot be overtaken: the provider deduplicates on our operation id, or holds a tombstone",
        "\"tombstone\""
    ),
    setting!(
        "deduplicates",
        Switch,
        deduplicates,
        "Whether the provider deduplicates on our operation id: an effect of an earlier attempt is then no second one"
    ),
    setting!(
        "response",
        Maybe<JsonPointer>,
        response,
        "Where in an event the body is that retries get; without it, the event",
        "\"/data\""
    ),
    setting!("response_status", GoodStatus, response_status, "The status that retries get if it took place"),
    setting!("failed_status", StatusCode, failed_status, "The status that retries get if it failed"),
    setting!("tolerance", Period, tolerance, "How long ago, or how far ahead, an event may have been signed"),
    setting!(
        "unknown_operation",
        Choice<UnknownOperation>,
        unknown_operation,
        "What becomes of an event about a command that there is not: 404, or kept for it and 202"
    ),
    setting!(
        "step",
        Maybe<ProviderWord>,
        step,
        "What follows the operation id and a colon, where events name it so",
        "\"charge\""
    ),
];
