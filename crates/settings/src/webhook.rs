//! Who may send events about commands: `[[webhook]]`.

use std::time::Duration;

use http::{HeaderName, StatusCode};
use semel_core::transition::Proof;
use semel_core::{JsonPointer, OperationName};
use semel_flow::reconcile::webhook::{EventReading, Scheme};

use super::kind::{Kind, Refusal, Words, quoted};
use super::look_up::VariableName;

/// Who may send events about commands, and how they are believed and read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// The last part of its path.
    pub name: WebhookName,
    /// The variables with its secrets; more than one while they are exchanged.
    pub secret_env: Vec<VariableName>,
    /// How it signs.
    pub scheme: Scheme,
    /// The operations that it may speak about.
    pub operations: Vec<OperationName>,
    /// The tenants that it may speak about; `None`: all of them.
    pub tenants: Option<Vec<String>>,
    /// Whether the provider carries a command out once, however often it is asked.
    pub deduplicates: bool,
    /// How its events are read.
    pub reading: EventReading,
    /// How long ago, or how far ahead, an event may have been signed.
    pub tolerance: Duration,
    /// Whether events about commands that there are not are kept.
    pub keep_unknown: bool,
    /// What stands after the operation id and a colon, where events name a step of the command.
    pub step: Option<String>,
}

/// A `[[webhook]]` as far as it was written.
#[derive(Clone, Debug)]
pub(super) struct WebhookTable {
    pub(super) name: Option<WebhookName>,
    pub(super) secret_env: Vec<VariableName>,
    pub(super) scheme: SchemeName,
    pub(super) signature_header: Option<HeaderName>,
    pub(super) operations: Vec<OperationName>,
    pub(super) tenants: Vec<String>,
    pub(super) deduplicates: bool,
    pub(super) attempt: Option<JsonPointer>,
    pub(super) event_id: Option<JsonPointer>,
    pub(super) operation_id: Option<JsonPointer>,
    pub(super) verdict: Option<JsonPointer>,
    pub(super) executed: Vec<String>,
    pub(super) failed: Vec<String>,
    pub(super) not_executed: Vec<String>,
    pub(super) proof: Option<ProofName>,
    pub(super) response: Option<JsonPointer>,
    pub(super) response_status: StatusCode,
    pub(super) failed_status: StatusCode,
    pub(super) tolerance: Duration,
    pub(super) unknown_operation: UnknownOperation,
    pub(super) step: Option<String>,
}

impl Default for WebhookTable {
    fn default() -> WebhookTable {
        WebhookTable {
            name: None,
            secret_env: Vec::new(),
            scheme: SchemeName::Semel,
            signature_header: None,
            operations: Vec::new(),
            tenants: Vec::new(),
            deduplicates: false,
            attempt: None,
            event_id: None,
            operation_id: None,
            verdict: None,
            executed: Vec::new(),
            failed: Vec::new(),
            not_executed: Vec::new(),
            proof: None,
            response: None,
            response_status: StatusCode::OK,
            failed_status: StatusCode::UNPROCESSABLE_ENTITY,
            tolerance: Duration::from_secs(300),
            unknown_operation: UnknownOperation::Refuse,
            step: None,
        }
    }
}

impl WebhookTable {
    /// The same, if everything is there.
    pub(super) fn finish(self) -> Option<WebhookConfig> {
        let scheme = match (self.scheme, self.signature_header) {
            (SchemeName::Semel, _) => Scheme::Semel,
            (SchemeName::Stripe, _) => Scheme::Stripe,
            (SchemeName::Body, Some(header)) => Scheme::Body(header),
            (SchemeName::Body, None) => Scheme::body(),
        };
        let proof = |proof| match proof {
            ProofName::Deduplicates => Proof::ProviderDeduplicates,
            ProofName::Tombstone => Proof::ProviderTombstone,
        };
        let reading = EventReading {
            event_id: self.event_id,
            operation_id: self.operation_id?,
            attempt: self.attempt,
            verdict: self.verdict?,
            executed: self.executed,
            failed: self.failed,
            not_executed: self.proof.map(|name| (self.not_executed, proof(name))),
            response: self.response,
            response_status: self.response_status,
            failed_status: self.failed_status,
        };
        Some(WebhookConfig {
            name: self.name?,
            secret_env: self.secret_env,
            scheme,
            operations: self.operations,
            tenants: (!self.tenants.is_empty()).then_some(self.tenants),
            deduplicates: self.deduplicates || self.proof == Some(ProofName::Deduplicates),
            reading,
            tolerance: self.tolerance,
            keep_unknown: self.unknown_operation == UnknownOperation::Keep,
            step: self.step,
        })
    }

    /// As it was written.
    pub(super) fn of(config: WebhookConfig) -> WebhookTable {
        let (scheme, signature_header) = match config.scheme {
            Scheme::Semel => (SchemeName::Semel, None),
            Scheme::Stripe => (SchemeName::Stripe, None),
            Scheme::Body(header) => (SchemeName::Body, Some(header)),
        };
        let EventReading { event_id, operation_id, attempt, verdict, executed, failed, .. } = config.reading;
        let (not_executed, proof) = match config.reading.not_executed {
            Some((words, Proof::ProviderTombstone)) => (words, Some(ProofName::Tombstone)),
            Some((words, _)) => (words, Some(ProofName::Deduplicates)),
            None => (Vec::new(), None),
        };
        let unknown_operation =
            if config.keep_unknown { UnknownOperation::Keep } else { UnknownOperation::Refuse };
        WebhookTable {
            name: Some(config.name),
            secret_env: config.secret_env,
            scheme,
            signature_header,
            operations: config.operations,
            tenants: config.tenants.unwrap_or_default(),
            deduplicates: config.deduplicates,
            attempt,
            event_id,
            operation_id: Some(operation_id),
            verdict: Some(verdict),
            executed,
            failed,
            not_executed,
            proof,
            response: config.reading.response,
            response_status: config.reading.response_status,
            failed_status: config.reading.failed_status,
            tolerance: config.tolerance,
            unknown_operation,
            step: config.step,
        }
    }
}

/// The name of a webhook: a part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookName(String);

impl WebhookName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for WebhookName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The longest name of a webhook.
const MAX_NAME: usize = 64;

impl Kind for WebhookName {
    type Value = WebhookName;

    fn expected() -> String {
        format!(
            "a name of 1 to {MAX_NAME} letters, digits, dashes, dots or underscores, such as \"provider\""
        )
    }

    fn parse(text: &str) -> Result<WebhookName, Refusal> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_dots = text.chars().all(|c| c == '.');
        if text.len() > MAX_NAME || is_dots || !text.chars().all(allowed) {
            return Err(Refusal::Unexpected);
        }
        Ok(WebhookName(text.to_owned()))
    }

    fn show(value: &WebhookName) -> Option<String> {
        Some(quoted(&value.0))
    }
}

/// `scheme`, before its header is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemeName {
    Semel,
    Stripe,
    Body,
}

impl Words for SchemeName {
    const WORDS: &'static [(&'static str, Self)] =
        &[("semel", SchemeName::Semel), ("stripe", SchemeName::Stripe), ("body", SchemeName::Body)];
}

/// Why an event that says "not executed" cannot be overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProofName {
    Deduplicates,
    Tombstone,
}

impl Words for ProofName {
    const WORDS: &'static [(&'static str, Self)] =
        &[("deduplicates", ProofName::Deduplicates), ("tombstone", ProofName::Tombstone)];
}

/// What becomes of an event about a command that there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownOperation {
    Refuse,
    Keep,
}

impl Words for UnknownOperation {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", UnknownOperation::Refuse), ("keep", UnknownOperation::Keep)];
}
