//! `[operation.reconcile]`: the look-up of a command at its provider.

use std::time::Duration;

use http::StatusCode;
use semel_core::JsonPointer;
use semel_core::reading::{Gone, LookUpReading, NotFound};
use semel_core::redact::redact;

use crate::engine::addresses::AddressChecks;
use crate::engine::findings::Findings;
use crate::engine::kind::{Choice, List, Maybe, ValueKind, ValueRefusal, Words, quoted};
use crate::engine::setting::{Setting, setting};
use crate::engine::table::read_table;
use crate::engine::value::{NamedValue, ValueContent};
use crate::parts::scalar::{Period, Switch};
use crate::parts::service::{self, ServiceAddress, ServiceTls};
use crate::parts::text::{FilePath, VariableName};
use crate::parts::word::{GoodStatus, ProviderWord, ambiguous, twofold};

/// The look-up of a command at its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUpConfig {
    /// The address of the question.
    pub url: LookUpUrl,
    /// The variable with the value of the header `Authorization`.
    pub authorization_env: Option<VariableName>,
    /// The reading of the answer.
    pub reading: LookUpReading,
    /// Timeout of the look-up.
    pub timeout: Duration,
    /// TLS with the provider.
    pub tls: ServiceTls,
}

/// An `[operation.reconcile]`, unchecked.
#[derive(Clone, Debug)]
pub(crate) struct LookUpTable {
    pub(crate) url: Option<LookUpUrl>,
    pub(crate) authorization_env: Option<VariableName>,
    pub(crate) reading: LookUpReading,
    pub(crate) timeout: Duration,
    pub(crate) tls: ServiceTls,
}

impl Default for LookUpTable {
    fn default() -> LookUpTable {
        LookUpTable {
            url: None,
            authorization_env: None,
            reading: LookUpReading::default(),
            timeout: Duration::from_secs(5),
            tls: ServiceTls::default(),
        }
    }
}

impl LookUpTable {
    pub(crate) fn of(config: LookUpConfig) -> LookUpTable {
        let LookUpConfig { url, authorization_env, reading, timeout, tls } = config;
        LookUpTable { url: Some(url), authorization_env, reading, timeout, tls }
    }

    /// Returns the look-up, if it has an address.
    pub(crate) fn finish(self, max_response: usize) -> Option<LookUpConfig> {
        let LookUpTable { url, authorization_env, reading, timeout, tls } = self;
        let reading = LookUpReading { max_response, ..reading };
        Some(LookUpConfig { url: url?, authorization_env, reading, timeout, tls })
    }
}

/// The parts of an address that stand for a command.
const PLACEHOLDERS: [&str; 3] = ["{operation_id}", "{tenant}", "{caller}"];

/// An address in which `{operation_id}` stands for a command's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUpUrl {
    text: String,
    address: Option<ServiceAddress>,
}

impl LookUpUrl {
    /// Returns the text of the configuration.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the address, with placeholder text for the command.
    pub fn address(&self) -> Option<&ServiceAddress> {
        self.address.as_ref()
    }

    /// Returns true if only the query names the command: a provider that does not know the parameter ignores
    /// it.
    pub(crate) fn asks_by_query(&self) -> bool {
        self.text.split_once('?').is_some_and(|(path, _)| !path.contains("{operation_id}"))
    }
}

impl ValueKind for LookUpUrl {
    type Value = LookUpUrl;

    fn expected() -> String {
        "an address such as \"https://provider.example/charges/{operation_id}\"".to_owned()
    }

    fn parse(text: &str) -> Result<LookUpUrl, ValueRefusal> {
        let plain = PLACEHOLDERS.iter().fold(text.to_owned(), |text, name| text.replace(name, "x"));
        Ok(LookUpUrl { text: text.to_owned(), address: ServiceAddress::new(&plain) })
    }

    fn check_address(value: &LookUpUrl, checks: &AddressChecks) -> Result<(), ValueRefusal> {
        (checks.look_up)(&value.text).map_err(ValueRefusal::ReasonFirst)
    }

    fn show(value: &LookUpUrl) -> Option<String> {
        Some(quoted(&redact(&value.text)))
    }
}

impl Words for Gone {
    const WORDS: &'static [(&'static str, Self)] =
        &[("no-answer", Gone::NoAnswer), ("tombstone", Gone::Tombstone)];
}

impl Words for NotFound {
    const WORDS: &'static [(&'static str, Self)] =
        &[("unknown", NotFound::Unknown), ("not-executed", NotFound::NotExecuted)];
}

/// `[operation.reconcile]`.
pub(crate) const LOOK_UP: &[Setting<LookUpTable>] = &[
    setting!(
        "url",
        Maybe<LookUpUrl>,
        url,
        "Address of the provider's look-up; {operation_id}, {tenant} and {caller} are replaced by those of \
         the command",
        "\"https://provider.example/charges?reference={operation_id}\""
    ),
    setting!(
        "authorization_env",
        Maybe<VariableName>,
        authorization_env,
        "Environment variable with the value of the Authorization header",
        "\"PROVIDER_TOKEN\""
    ),
    setting!(
        "deduplicates",
        Switch,
        reading.deduplicates,
        "Declares that the provider deduplicates on our operation id: a not-executed verdict then frees a \
         key at once"
    ),
    setting!(
        "result",
        Maybe<JsonPointer>,
        reading.result,
        "JSON Pointer to the object of the command in the answer; if it is missing, the command was not \
         found",
        "\"/0\""
    ),
    setting!(
        "reference",
        Maybe<JsonPointer>,
        reading.reference,
        "JSON Pointer to the operation id in that object, which proves that it is about this command",
        "\"/reference\""
    ),
    setting!(
        "status",
        Maybe<JsonPointer>,
        reading.status,
        "JSON Pointer to the command's status in that object; without it, a command that is found was \
         executed",
        "\"/status\""
    ),
    setting!(
        "executed",
        List<ProviderWord>,
        reading.executed,
        "Status words of a command that was executed",
        "[\"captured\"]"
    ),
    setting!(
        "failed",
        List<ProviderWord>,
        reading.failed,
        "Status words of a command that failed for good",
        "[\"declined\"]"
    ),
    setting!(
        "pending",
        List<ProviderWord>,
        reading.pending,
        "Status words of a command that the provider still executes",
        "[\"processing\"]"
    ),
    setting!(
        "not_found",
        Choice<NotFound>,
        reading.not_found,
        "Verdict on a command that the provider does not know"
    ),
    setting!(
        "gone",
        Choice<Gone>,
        reading.gone,
        "Meaning of a 410 from the provider (nothing, or a tombstone if the reference is in the answer)"
    ),
    setting!(
        "response",
        Maybe<JsonPointer>,
        reading.response,
        "JSON Pointer to the body for retries in that object; without it, retries get the object",
        "\"/receipt\""
    ),
    setting!(
        "response_status",
        GoodStatus,
        reading.response_status,
        "Status that retries get if the command was executed"
    ),
    setting!(
        "failed_status",
        StatusCode,
        reading.failed_status,
        "Status that retries get if the command failed"
    ),
    setting!("timeout", Period, timeout, "Timeout of one look-up"),
    setting!(
        "ca",
        Maybe<FilePath>,
        tls.ca,
        "With an https:// address: file with the certificate authorities to trust, instead of the system's",
        "\"/etc/semel/ca.crt\""
    ),
    setting!(
        "certificate",
        Maybe<FilePath>,
        tls.certificate,
        "With an https:// address: file with the gateway's client certificate",
        "\"/etc/semel/gateway.crt\""
    ),
    setting!(
        "key",
        Maybe<FilePath>,
        tls.key,
        "With an https:// address: file with the private key of the client certificate",
        "\"/etc/semel/gateway.key\""
    ),
];

/// Reads an `[operation.reconcile]`.
pub(crate) fn read(findings: &mut Findings, path: &str, entry: &NamedValue) -> Option<LookUpTable> {
    let ValueContent::Table(entries) = &entry.value.content else {
        let message = "expected a table: write `[operation.reconcile]` below its `[[operation]]`";
        findings.error(entry.value.origin.clone(), path, message);
        return None;
    };
    let mut table = LookUpTable::default();
    read_table(findings, path, LOOK_UP, &mut table, entries);
    if !entries.iter().any(|entry| entry.name == "url") {
        let message = "missing: the address of the provider's look-up";
        findings.error(entry.origin.clone(), &format!("{path}.url"), message);
    }
    check(findings, path, &table);
    Some(table)
}

/// Checks that the settings of an `[operation.reconcile]` are consistent.
fn check(findings: &mut Findings, prefix: &str, table: &LookUpTable) {
    let reading = &table.reading;
    service::check(findings, (prefix, ""), &table.tls, table.url.as_ref().and_then(LookUpUrl::address));
    let path = |name: &str| format!("{prefix}.{name}");
    let words = ["executed", "failed", "pending"];
    if reading.status.is_none() {
        for name in words.map(path) {
            if findings.is_set(&name) {
                let message = "goes with `status` only, the JSON Pointer to the status in the answer";
                findings.error(findings.origin(&name), &name, message);
            }
        }
    } else if reading.executed.is_empty() && findings.are_readable(&[&path("executed")]) {
        let message = "needs `executed`: the status words of a command that was executed";
        findings.error(findings.origin(&path("status")), &path("status"), message);
    }
    if reading.status.is_none() && reading.reference.is_none() && table.url.is_some() {
        let message = "missing, and so is `status`: without either, no answer can be matched to its \
                       command, so set one of them";
        if findings.are_readable(&[&path("reference"), &path("status")]) {
            findings.error(findings.origin(&path("url")), &path("reference"), message);
        }
    }
    if reading.gone == Gone::Tombstone
        && reading.reference.is_none()
        && findings.are_readable(&[&path("reference")])
    {
        let message = "needs `reference`: a tombstone names its command";
        findings.error(findings.origin(&path("gone")), &path("gone"), message);
    }
    if let Some(word) = ambiguous(&[&reading.executed, &reading.failed, &reading.pending]) {
        let lists: [(&str, &[String]); 3] =
            [("executed", &reading.executed), ("failed", &reading.failed), ("pending", &reading.pending)];
        twofold(findings, prefix, &lists, word);
    }
}
