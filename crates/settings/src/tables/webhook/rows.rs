//! The settings of a `[[webhook]]`.

use http::{HeaderName, StatusCode};
use semel_core::{JsonPointer, OperationName};

use crate::engine::kind::{Choice, List, Maybe, OneOrMore};
use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Period, Switch};
use crate::parts::text::{PrincipalName, VariableName};
use crate::parts::word::{GoodStatus, ProviderWord};
use crate::tables::webhook::{ProofName, SchemeName, UnknownOperation, WebhookName, WebhookTable};

/// `[[webhook]]`.
pub(crate) const WEBHOOK: &[Setting<WebhookTable>] = &[
    setting!(
        "name",
        Maybe<WebhookName>,
        name,
        "Name of the webhook; its path is /.well-known/semel/webhooks/ and this name",
        "\"provider\""
    ),
    setting!(
        "secret_env",
        OneOrMore<VariableName>,
        secret_env,
        "Environment variable with the secret that signs its events; several during a rotation",
        "\"PROVIDER_WEBHOOK_SECRET\""
    ),
    setting!("scheme", Choice<SchemeName>, scheme, "Signature scheme of its events"),
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
        "Operations whose commands it may settle",
        "[\"payments.create\"]"
    ),
    setting!(
        "tenants",
        List<PrincipalName>,
        tenants,
        "Tenants whose commands it may settle; without it, all of them",
        "[\"acme\"]"
    ),
    setting!(
        "event_id",
        Maybe<JsonPointer>,
        event_id,
        "JSON Pointer to the id of an event; with scheme = \"semel\", the header Semel-Event-Id is enough",
        "\"/id\""
    ),
    setting!(
        "operation_id",
        Maybe<JsonPointer>,
        operation_id,
        "JSON Pointer to the operation id, or to a key that begins with it and a colon",
        "\"/data/reference\""
    ),
    setting!(
        "attempt",
        Maybe<JsonPointer>,
        attempt,
        "JSON Pointer to the attempt, if the provider repeats the value of Semel-Attempt",
        "\"/data/attempt\""
    ),
    setting!(
        "verdict",
        Maybe<JsonPointer>,
        verdict,
        "JSON Pointer to the verdict on the command",
        "\"/type\""
    ),
    setting!(
        "executed",
        List<ProviderWord>,
        executed,
        "Verdict words of a command that was executed",
        "[\"charge.captured\"]"
    ),
    setting!(
        "failed",
        List<ProviderWord>,
        failed,
        "Verdict words of a command that failed for good",
        "[\"charge.declined\"]"
    ),
    setting!(
        "not_executed",
        List<ProviderWord>,
        not_executed,
        "Verdict words of a command that was not executed; needs proof",
        "[\"charge.cancelled\"]"
    ),
    setting!(
        "proof",
        Maybe<Choice<ProofName>>,
        proof,
        "Reason why no call takes effect after not_executed (the provider deduplicates on our operation id, \
         or holds a tombstone)",
        "\"tombstone\""
    ),
    setting!(
        "deduplicates",
        Switch,
        deduplicates,
        "Declares that the provider deduplicates on our operation id: an effect of an earlier attempt is \
         then no second one"
    ),
    setting!(
        "response",
        Maybe<JsonPointer>,
        response,
        "JSON Pointer to the body for retries; without it, retries get the event",
        "\"/data\""
    ),
    setting!(
        "response_status",
        GoodStatus,
        response_status,
        "Status that retries get if the command was executed"
    ),
    setting!("failed_status", StatusCode, failed_status, "Status that retries get if the command failed"),
    setting!(
        "tolerance",
        Period,
        tolerance,
        "Largest difference between the time of a signature and this clock, in either direction"
    ),
    setting!(
        "unknown_operation",
        Choice<UnknownOperation>,
        unknown_operation,
        "Treatment of an event about a command that does not exist (404, or kept for the command and 202)"
    ),
    setting!(
        "step",
        Maybe<ProviderWord>,
        step,
        "Step of the command that events name after the operation id and a colon",
        "\"charge\""
    ),
];
