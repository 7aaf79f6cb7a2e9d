//! How a provider is asked what became of a command: `[operation.reconcile]`.

use std::time::Duration;

use http::StatusCode;
use semel_flow::reconcile::http::{Gone, LookUpReading, NotFound};
use semel_flow::reconcile::{HttpLookUp, HttpLookUpError};
use semel_outgoing::Address;

use super::kind::{Kind, Refusal, Words, quoted};
use super::outgoing::ServiceTls;
use super::redact::redact;

/// How a provider is asked what became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUpConfig {
    /// Where it is asked.
    pub url: LookUpUrl,
    /// The variable with the value of the header `Authorization`.
    pub authorization_env: Option<VariableName>,
    /// How its answer is read.
    pub reading: LookUpReading,
    /// The longest that it may take.
    pub timeout: Duration,
    /// TLS with the provider.
    pub tls: ServiceTls,
}

/// An `[operation.reconcile]` as far as it was written.
#[derive(Clone, Debug)]
pub(super) struct LookUpTable {
    pub(super) url: Option<LookUpUrl>,
    pub(super) authorization_env: Option<VariableName>,
    pub(super) reading: LookUpReading,
    pub(super) timeout: Duration,
    pub(super) tls: ServiceTls,
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
    pub(super) fn of(config: LookUpConfig) -> LookUpTable {
        let LookUpConfig { url, authorization_env, reading, timeout, tls } = config;
        LookUpTable { url: Some(url), authorization_env, reading, timeout, tls }
    }

    /// The same, if it says where to ask.
    pub(super) fn finish(self, max_response: usize) -> Option<LookUpConfig> {
        let LookUpTable { url, authorization_env, reading, timeout, tls } = self;
        let reading = LookUpReading { max_response, ..reading };
        Some(LookUpConfig { url: url?, authorization_env, reading, timeout, tls })
    }
}

/// An address in which `{operation_id}` stands for a command's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUpUrl {
    text: String,
    address: Address,
}

impl LookUpUrl {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the address, with other text for the command.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the command is named behind the `?`, which a provider that does not know the name leaves out of account.
    pub(super) fn asks_by_query(&self) -> bool {
        self.text.split_once('?').is_some_and(|(path, _)| !path.contains("{operation_id}"))
    }
}

impl Kind for LookUpUrl {
    type Value = LookUpUrl;

    fn expected() -> String {
        "an address such as \"https://provider.example/charges/{operation_id}\"".to_owned()
    }

    fn parse(text: &str) -> Result<LookUpUrl, Refusal> {
        match HttpLookUp::new(text, LookUpReading::default()) {
            Ok(look_up) => Ok(LookUpUrl { text: text.to_owned(), address: look_up.address().clone() }),
            Err(HttpLookUpError::Tls(error)) => Err(Refusal::Because(error.to_string())),
            Err(HttpLookUpError::Address(_, why)) => Err(Refusal::Because(why)),
        }
    }

    fn show(value: &LookUpUrl) -> Option<String> {
        Some(quoted(&redact(&value.text)))
    }
}

/// The name of a variable that holds a secret, which is never written into a file of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableName(String);

impl VariableName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Kind for VariableName {
    type Value = VariableName;

    fn expected() -> String {
        "the name of an environment variable, such as \"PROVIDER_TOKEN\"".to_owned()
    }

    fn parse(text: &str) -> Result<VariableName, Refusal> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) || !text.chars().all(allowed) {
            return Err(Refusal::Because("the secret itself does not belong here".to_owned()));
        }
        Ok(VariableName(text.to_owned()))
    }

    fn show(value: &VariableName) -> Option<String> {
        Some(quoted(&value.0))
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

/// A word of a provider, such as a status.
pub(super) struct Word;

impl Kind for Word {
    type Value = String;
    const BARE_INTEGER: bool = true;
    const BARE_BOOLEAN: bool = true;

    fn expected() -> String {
        "a word of the provider, such as \"captured\"".to_owned()
    }

    fn parse(text: &str) -> Result<String, Refusal> {
        if text.is_empty() { Err(Refusal::Unexpected) } else { Ok(text.to_owned()) }
    }

    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

/// The status of an answer that is no failure.
pub(super) struct GoodStatus;

impl Kind for GoodStatus {
    type Value = StatusCode;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        "an HTTP status from 200 to 399".to_owned()
    }

    fn parse(text: &str) -> Result<StatusCode, Refusal> {
        let status = text.parse().ok().filter(|status: &StatusCode| (200..400).contains(&status.as_u16()));
        status.ok_or(Refusal::Unexpected)
    }

    fn show(value: &StatusCode) -> Option<String> {
        Some(value.as_str().to_owned())
    }
}

/// The words that stand in two lists, and mean two things.
pub(super) fn ambiguous<'a>(lists: &[&'a [String]]) -> Option<&'a str> {
    let mut all: Vec<&str> = lists.iter().flat_map(|list| list.iter().map(String::as_str)).collect();
    all.sort_unstable();
    all.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}
