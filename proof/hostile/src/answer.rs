//! Response of a client's request, as the judge sees it.

use semel_fuzz::http1::Message;

/// Problem codes after which nothing of the request can have reached the upstream.
const NOT_SENT: [&str; 2] = ["UPSTREAM_UNREACHABLE", "OVERLOADED"];

/// Response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// From the upstream, with the mark and identity that it saw.
    Upstream { mark: String, tenant: String, caller: String },
    /// From the gateway: the request was not forwarded.
    Refused { code: String },
    /// Another one: from the gateway about a failed upstream, or one that cannot be classified.
    Other { what: String },
    /// No response: the connection ended before it.
    None,
}

impl Answer {
    /// Reads a response over HTTP/1.
    pub(crate) fn over_http1(message: &Message) -> Answer {
        let head = message.values("x-seen").first().map(|seen| String::from_utf8_lossy(seen).into_owned());
        match head {
            Some(seen) => Answer::seen(&seen).unwrap_or(Answer::Other { what: seen }),
            None => Answer::of(&message.body, Some(message.status())),
        }
    }

    /// Reads a response by its body alone.
    pub(crate) fn of(body: &[u8], status: Option<u16>) -> Answer {
        let text = String::from_utf8_lossy(body);
        if let Some(answer) = text.strip_prefix("seen ").and_then(Answer::seen) {
            return answer;
        }
        let (Some(code), true) = (between(&text, "\"code\":\"", "\""), text.contains("urn:semel:problem:"))
        else {
            return Answer::Other { what: format!("{status:?} {}", body.escape_ascii()) };
        };
        let status =
            between(&text, "\"status\":", ",").and_then(|digits| digits.trim_end_matches('}').parse().ok());
        match status.unwrap_or(0_u16) {
            // Another request of this command is in progress, or has failed.
            409 => Answer::Other { what: code },
            400..=499 => Answer::Refused { code },
            _ if NOT_SENT.contains(&&*code) => Answer::Refused { code },
            _ => Answer::Other { what: code },
        }
    }

    /// Reads `mark=… tenant=… caller=…`.
    fn seen(text: &str) -> Option<Answer> {
        let word = |name: &str| {
            let value = text.split_ascii_whitespace().find_map(|word| word.strip_prefix(name));
            value.map(str::to_owned)
        };
        Some(Answer::Upstream { mark: word("mark=")?, tenant: word("tenant=")?, caller: word("caller=")? })
    }
}

fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(rest[..rest.find(after).unwrap_or(rest.len())].to_owned())
}

/// Returns the marks of responses in these bytes, in any form.
pub(crate) fn marks(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let is_mark = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let ends = |rest: &str| rest.find(|letter| !is_mark(letter));
    // A mark that is cut off counts for nothing.
    text.split("mark=").skip(1).filter_map(|rest| ends(rest).map(|end| rest[..end].to_owned())).collect()
}
