//! `[[webhook]]`: senders of events about commands.

mod rows;

pub(crate) use rows::WEBHOOK;

use std::time::Duration;

use http::{HeaderName, StatusCode};
use semel_core::reading::{EventReading, Scheme};
use semel_core::transition::Proof;
use semel_core::{JsonPointer, OperationName};

use crate::engine::findings::Findings;
use crate::engine::kind::{ValueKind, ValueRefusal, Words, quoted};
use crate::engine::source::Origin;
use crate::engine::table::read_table;
use crate::engine::value::{SettingValue, Table, ValueContent};
use crate::parts::text::VariableName;
use crate::parts::word::{ambiguous, twofold};

/// Sender of events about commands: its secrets, its bounds, and the reading of its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Last part of its path.
    pub name: WebhookName,
    /// Variables with its secrets; more than one during a rotation.
    pub secret_env: Vec<VariableName>,
    /// The scheme of its signatures.
    pub scheme: Scheme,
    /// Operations that it may report on.
    pub operations: Vec<OperationName>,
    /// Tenants that it may report on; `None` for all of them.
    pub tenants: Option<Vec<String>>,
    /// True if the provider executes a command once, no matter how many requests it gets.
    pub deduplicates: bool,
    /// The reading of its events.
    pub reading: EventReading,
    /// Largest difference between now and the time of a signature.
    pub tolerance: Duration,
    /// True if events about commands without a record are stored.
    pub keep_unknown: bool,
    /// Text after the operation id and a colon, if events name a step of the command.
    pub step: Option<String>,
}

/// A `[[webhook]]`, unchecked.
#[derive(Clone, Debug)]
pub(crate) struct WebhookTable {
    pub(crate) name: Option<WebhookName>,
    pub(crate) secret_env: Vec<VariableName>,
    pub(crate) scheme: SchemeName,
    pub(crate) signature_header: Option<HeaderName>,
    pub(crate) operations: Vec<OperationName>,
    pub(crate) tenants: Vec<String>,
    pub(crate) deduplicates: bool,
    pub(crate) attempt: Option<JsonPointer>,
    pub(crate) event_id: Option<JsonPointer>,
    pub(crate) operation_id: Option<JsonPointer>,
    pub(crate) verdict: Option<JsonPointer>,
    pub(crate) executed: Vec<String>,
    pub(crate) failed: Vec<String>,
    pub(crate) not_executed: Vec<String>,
    pub(crate) proof: Option<ProofName>,
    pub(crate) response: Option<JsonPointer>,
    pub(crate) response_status: StatusCode,
    pub(crate) failed_status: StatusCode,
    pub(crate) tolerance: Duration,
    pub(crate) unknown_operation: UnknownOperation,
    pub(crate) step: Option<String>,
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
    /// Returns the webhook, if every required setting is there.
    pub(crate) fn finish(self) -> Option<WebhookConfig> {
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

    /// Returns the table of a webhook.
    pub(crate) fn of(config: WebhookConfig) -> WebhookTable {
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
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for WebhookName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Largest length of a webhook's name.
const MAX_NAME: usize = 64;

impl ValueKind for WebhookName {
    type Value = WebhookName;

    fn expected() -> String {
        format!(
            "a name of 1 to {MAX_NAME} letters, digits, dashes, dots or underscores, such as \"provider\""
        )
    }

    fn parse(text: &str) -> Result<WebhookName, ValueRefusal> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_dots = text.chars().all(|c| c == '.');
        if text.len() > MAX_NAME || is_dots || !text.chars().all(allowed) {
            return Err(ValueRefusal::Unexpected);
        }
        Ok(WebhookName(text.to_owned()))
    }

    fn show(value: &WebhookName) -> Option<String> {
        Some(quoted(&value.0))
    }
}

/// Value of `scheme`, before its header is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemeName {
    Semel,
    Stripe,
    Body,
}

impl Words for SchemeName {
    const WORDS: &'static [(&'static str, Self)] =
        &[("semel", SchemeName::Semel), ("stripe", SchemeName::Stripe), ("body", SchemeName::Body)];
}

/// Reason for which a later execution cannot follow a "not executed" event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofName {
    Deduplicates,
    Tombstone,
}

impl Words for ProofName {
    const WORDS: &'static [(&'static str, Self)] =
        &[("deduplicates", ProofName::Deduplicates), ("tombstone", ProofName::Tombstone)];
}

/// The treatment of an event about a command without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownOperation {
    Refuse,
    Keep,
}

impl Words for UnknownOperation {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", UnknownOperation::Refuse), ("keep", UnknownOperation::Keep)];
}

/// Reads one `[[webhook]]`.
pub(crate) fn read(findings: &mut Findings, value: &SettingValue) -> Option<WebhookConfig> {
    let ValueContent::Table(entries) = &value.content else {
        let message = format!("expected a table, written `[[webhook]]`, found {}", value.content);
        findings.error(value.origin.clone(), "webhook", message);
        return None;
    };
    let prefix = path_of(entries);
    let mut table = WebhookTable::default();
    read_table(findings, &prefix, WEBHOOK, &mut table, entries);
    for required in ["name", "secret_env", "operations", "operation_id", "verdict"] {
        if !entries.iter().any(|entry| entry.name == required) {
            let path = format!("{prefix}.{required}");
            findings.error(value.origin.clone(), &path, "missing: every webhook needs it");
        }
    }
    check(findings, &prefix, &table, &value.origin);
    table.finish()
}

/// Returns the path of the settings of a webhook: by its name, if that is usable.
fn path_of(entries: &Table) -> String {
    let name = entries.iter().find(|entry| entry.name == "name").map(|entry| &entry.value.content);
    match name {
        Some(ValueContent::Text(name)) if WebhookName::parse(name).is_ok() => format!("webhook.{name}"),
        _ => "webhook".to_owned(),
    }
}

/// Checks that the settings of a `[[webhook]]` are consistent.
fn check(findings: &mut Findings, prefix: &str, table: &WebhookTable, origin: &Origin) {
    let path = |name: &str| format!("{prefix}.{name}");
    let mut wrong = |name: &str, message: &str| {
        let path = path(name);
        let place = if findings.is_set(&path) { findings.origin(&path) } else { origin.clone() };
        if findings.are_readable(&[&path]) {
            findings.error(place, &path, message);
        }
    };
    if table.event_id.is_none() && table.scheme != SchemeName::Semel {
        wrong("event_id", "missing: without it, a repeated event cannot be recognised");
    }
    if table.signature_header.is_some() && table.scheme != SchemeName::Body {
        wrong("signature_header", "goes with `scheme = \"body\"` only");
    }
    if table.executed.is_empty() && table.failed.is_empty() && table.not_executed.is_empty() {
        wrong(
            "executed",
            "missing, and so are `failed` and `not_executed`: without them, no event is a verdict",
        );
    }
    match (table.not_executed.is_empty(), table.proof) {
        (false, None) => wrong(
            "not_executed",
            "frees keys while a call may still be on its way: set `proof`, the reason why no call can take \
             effect any more",
        ),
        (true, Some(_)) => wrong("proof", "goes with `not_executed` only"),
        (true, None) | (false, Some(_)) => {}
    }
    for (name, empty) in
        [("secret_env", table.secret_env.is_empty()), ("operations", table.operations.is_empty())]
    {
        let set = path(name);
        if empty && findings.is_set(&set) && findings.are_readable(&[&set]) {
            findings.error(
                findings.origin(&set),
                &set,
                "is empty, so every event would be refused: list at least one",
            );
        }
    }
    if let Some(word) = ambiguous(&[&table.executed, &table.failed, &table.not_executed]) {
        let lists: [(&str, &[String]); 3] =
            [("executed", &table.executed), ("failed", &table.failed), ("not_executed", &table.not_executed)];
        twofold(findings, prefix, &lists, word);
    }
}
