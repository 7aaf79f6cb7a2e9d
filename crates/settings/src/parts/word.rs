//! Words of a provider, and the statuses that they lead to: shared by look-ups and webhooks.

use http::StatusCode;

use crate::engine::findings::Findings;
use crate::engine::kind::{ValueKind, ValueRefusal, quoted};

/// A word of a provider, such as a status.
pub(crate) struct ProviderWord;

impl ValueKind for ProviderWord {
    type Value = String;
    const BARE_INTEGER: bool = true;
    const BARE_BOOLEAN: bool = true;

    fn expected() -> String {
        "a word of the provider, such as \"captured\"".to_owned()
    }

    fn parse(text: &str) -> Result<String, ValueRefusal> {
        if text.is_empty() { Err(ValueRefusal::Unexpected) } else { Ok(text.to_owned()) }
    }

    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

/// The status of an answer that is no failure.
pub(crate) struct GoodStatus;

impl ValueKind for GoodStatus {
    type Value = StatusCode;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        "an HTTP status from 200 to 399".to_owned()
    }

    fn parse(text: &str) -> Result<StatusCode, ValueRefusal> {
        let status = text.parse().ok().filter(|status: &StatusCode| (200..400).contains(&status.as_u16()));
        status.ok_or(ValueRefusal::Unexpected)
    }

    fn show(value: &StatusCode) -> Option<String> {
        Some(value.as_str().to_owned())
    }
}

/// Returns a word that stands in two lists, which would be ambiguous.
pub(crate) fn ambiguous<'a>(lists: &[&'a [String]]) -> Option<&'a str> {
    let mut all: Vec<&str> = lists.iter().flat_map(|list| list.iter().map(String::as_str)).collect();
    all.sort_unstable();
    all.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// Reports a word that stands in two lists.
pub(crate) fn twofold(findings: &mut Findings, prefix: &str, lists: &[(&str, &[String])], word: &str) {
    let mut holders = lists.iter().filter(|(_, words)| words.iter().any(|own| own == word));
    let (Some((first, _)), second) = (holders.next(), holders.next()) else { return };
    let path = format!("{prefix}.{}", second.map_or(*first, |(name, _)| *name));
    if findings.is_set(&path) {
        let message =
            format!("\"{word}\" is listed twice, also in `{first}`: a word has one meaning, so list it once");
        findings.error(findings.origin(&path), &path, message);
    }
}
