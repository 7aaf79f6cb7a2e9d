//! What to try: the arguments, read and checked before anything is sent.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::ArgMatches;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Scheme, Uri};

use crate::config::parse_duration;

/// How large the command may be.
const MAX_COMMAND_BYTES: u64 = 1 << 20;
/// How many header fields may be given for one caller.
const MAX_HEADERS: usize = 64;
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// Fields that are part of what is tried, or of how it is sent: nobody else may set them.
const RESERVED: [&str; 5] =
    ["idempotency-key", "content-length", "transfer-encoding", "connection", "expect"];

/// Which codes are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// Those of the IETF draft.
    Ietf,
    /// Those of Stripe.
    Stripe,
}

impl Profile {
    /// The status that refuses a key that belongs to another request.
    pub(super) fn reused_key(self) -> u16 {
        match self {
            Self::Ietf => 422,
            Self::Stripe => 400,
        }
    }

    /// The field that marks a replay.
    pub(super) fn replay_mark(self) -> &'static str {
        match self {
            Self::Ietf => "idempotency-replayed",
            Self::Stripe => "idempotent-replayed",
        }
    }

    /// A key as the field spells it: the draft wants a structured string, Stripe takes the text as it is.
    pub(super) fn spell(self, key: &str) -> String {
        match self {
            Self::Ietf => format!("\"{key}\""),
            Self::Stripe => key.to_owned(),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ietf => "ietf",
            Self::Stripe => "stripe",
        })
    }
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// As in the `Host` field.
    pub(super) authority: String,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query.
    pub(super) target: String,
}

impl Address {
    /// Reads an `http://` URL.
    pub(super) fn parse(text: &str) -> anyhow::Result<Address> {
        let shown = crate::config::redact(text);
        let uri: Uri = text.parse().with_context(|| format!("{shown:?} is not a URL"))?;
        if uri.scheme() == Some(&Scheme::HTTPS) {
            bail!(
                "{shown}: https is not spoken yet; try the plain http:// address behind the TLS, \
                 or put a local TLS client such as stunnel in between"
            );
        }
        ensure!(uri.scheme() == Some(&Scheme::HTTP), "{shown:?} is not an http:// URL");
        let authority = uri.authority().with_context(|| format!("{shown:?} names no host"))?;
        ensure!(!authority.as_str().contains('@'), "give credentials with --header, not in the URL");
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        ensure!(!host.is_empty(), "{shown:?} names no host");
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("" | ":") | None => 80,
            Some(_) => authority.port_u16().with_context(|| format!("{shown:?}: not a port"))?,
        };
        let target = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Address { authority: authority.as_str().to_owned(), host, port, target })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.target)
    }
}

/// Everything that was asked for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) address: Address,
    pub(super) count: Option<Address>,
    pub(super) body: Bytes,
    /// What the caller sends with every request.
    pub(super) caller: HeaderMap,
    /// What a second caller sends, if there is one.
    pub(super) other_caller: Option<HeaderMap>,
    pub(super) profile: Profile,
    pub(super) timeout: Duration,
}

impl Options {
    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Options> {
        let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
        let address = Address::parse(text("url").context("--url is required")?)?;
        let count = text("count-url").map(Address::parse).transpose()?;
        let path = matches.get_one::<PathBuf>("body").context("--body is required")?;
        let body = read_body(path)?;
        let mut caller = headers(matches, "header")?;
        if !caller.contains_key(header::CONTENT_TYPE) {
            caller.insert(header::CONTENT_TYPE, content_type(&body));
        }
        let other = headers(matches, "other-header")?;
        let other_caller = (!other.is_empty()).then(|| replaced(&caller, &other));
        ensure!(
            other_caller.as_ref() != Some(&caller),
            "--other-header is what --header says already: it must be another caller"
        );
        let profile = if text("profile") == Some("stripe") { Profile::Stripe } else { Profile::Ietf };
        let timeout =
            text("timeout").and_then(parse_duration).context("--timeout wants a time, such as 10s")?;
        ensure!(
            (MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout),
            "--timeout must be from {} ms to {} s",
            MIN_TIMEOUT.as_millis(),
            MAX_TIMEOUT.as_secs()
        );
        Ok(Options { address, count, body, caller, other_caller, profile, timeout })
    }
}

fn read_body(path: &Path) -> anyhow::Result<Bytes> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut body = Vec::new();
    file.take(MAX_COMMAND_BYTES + 1)
        .read_to_end(&mut body)
        .with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        body.len() as u64 <= MAX_COMMAND_BYTES,
        "{} is larger than {MAX_COMMAND_BYTES} bytes",
        path.display()
    );
    Ok(Bytes::from(body))
}

fn content_type(body: &[u8]) -> HeaderValue {
    let json = serde_json::from_slice::<serde_json::Value>(body).is_ok();
    HeaderValue::from_static(if json { "application/json" } else { "application/octet-stream" })
}

fn headers(matches: &ArgMatches, name: &str) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for text in matches.get_many::<String>(name).unwrap_or_default() {
        let (field, value) = parse_header(text).with_context(|| {
            // The value may be a credential: it is not repeated.
            format!("--{name} wants \"Name: value\"")
        })?;
        ensure!(!RESERVED.contains(&field.as_str()), "--{name}: verify sets {field} itself");
        ensure!(headers.len() < MAX_HEADERS, "--{name}: at most {MAX_HEADERS} fields");
        headers.append(field, value);
    }
    Ok(headers)
}

fn parse_header(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':')?;
    Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
}

/// The first caller's fields, with those of the second in place of every one that has the same name.
fn replaced(caller: &HeaderMap, other: &HeaderMap) -> HeaderMap {
    let mut headers = caller.clone();
    for name in other.keys() {
        headers.remove(name);
        for value in other.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_http_url() {
        let address = Address::parse("http://127.0.0.1:8080/payments?x=1").expect("it is one");
        assert_eq!((address.host.as_str(), address.port), ("127.0.0.1", 8080));
        assert_eq!(address.target, "/payments?x=1");
        let bare = Address::parse("http://example.com").expect("it is one");
        assert_eq!((bare.port, bare.target.as_str()), (80, "/"));
        let v6 = Address::parse("http://[::1]:99/").expect("it is one");
        assert_eq!((v6.host.as_str(), v6.port, v6.authority.as_str()), ("::1", 99, "[::1]:99"));
    }

    #[test]
    fn what_cannot_be_spoken_to_is_refused_with_the_reason() {
        let why = |text: &str| format!("{:#}", Address::parse(text).expect_err("it is refused"));
        assert!(why("https://example.com/").contains("https is not spoken yet"));
        assert!(why("http://alice:secret@example.com/").contains("--header"));
        for text in ["", "/payments", "ftp://example.com/", "http://", "example.com", "http://x:99999/"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_refusal_shows_a_password() {
        for text in [
            "https://alice:hunter2@example.com/",
            "ftp://alice:hunter2@example.com/",
            "http://alice:hunter2@[::1/",
            "http://alice:hunter2@example.com/",
        ] {
            let why = format!("{:#}", Address::parse(text).expect_err("it is refused"));
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn a_second_caller_differs_only_in_what_is_given() {
        let field = |text: &str| parse_header(text).expect("it is one");
        let caller: HeaderMap = [field("Authorization: a"), field("X-Tenant: t")].into_iter().collect();
        let other: HeaderMap = [field("authorization: b")].into_iter().collect();
        let both = replaced(&caller, &other);
        assert_eq!((both["authorization"].as_bytes(), both["x-tenant"].as_bytes()), (&b"b"[..], &b"t"[..]));
        assert!(parse_header("no colon").is_none() && parse_header("a b: c").is_none());
    }
}
