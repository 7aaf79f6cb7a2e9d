//! What to try: the arguments, read and checked before anything is sent.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::ArgMatches;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use semel_outgoing::{AddressError, TlsSettings, Trust};

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

/// An endpoint, and the client that sends requests there.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) client: semel_outgoing::Client,
}

impl Address {
    /// Reads an `http://` or `https://` URL.
    pub(super) fn parse(text: &str, tls: &TlsSettings, timeout: Duration) -> anyhow::Result<Address> {
        let shown = crate::config::redact(text);
        let address: semel_outgoing::Address = text.parse().map_err(|error| match error {
            AddressError::Credentials => anyhow::anyhow!("give credentials with --header, not in the URL"),
            error => anyhow::anyhow!("{shown:?}: {error}"),
        })?;
        let client = semel_outgoing::Client::new(address, tls.clone())?;
        Ok(Address { client: client.connect_timeout(timeout).timeout(timeout) })
    }

    /// Returns path and query.
    pub(super) fn target(&self) -> &str {
        self.client.address().target()
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.to_string()).finish()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.client.address();
        write!(f, "{}://{}{}", address.scheme(), address.authority(), address.target())
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

/// Fields that say who is calling, and let others be the same.
const CREDENTIALS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];

impl Options {
    /// Returns what a user should know before anything is sent.
    pub(super) fn warnings(&self) -> Vec<String> {
        let addresses = || std::iter::once(&self.address).chain(&self.count);
        let mut warnings = Vec::new();
        if addresses().any(|address| address.client.is_insecure()) {
            warnings.push(
                "--insecure: NO CERTIFICATE IS CHECKED. An attacker on the network can read and change \
                 everything, credentials included, and what this run reports may be about another server"
                    .to_owned(),
            );
        }
        let shows = |headers: &HeaderMap| CREDENTIALS.iter().any(|name| headers.contains_key(*name));
        if shows(&self.caller) || self.other_caller.as_ref().is_some_and(shows) {
            for address in addresses().filter(|address| address.client.address().is_exposed()) {
                warnings
                    .push(format!("the credentials for {address} cross the network in the clear: use https"));
            }
        }
        warnings
    }

    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Options> {
        let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
        let timeout = timeout(matches)?;
        let tls = TlsSettings { trust: trust(matches), own: None };
        let address = Address::parse(text("url").context("--url is required")?, &tls, timeout)?;
        let count = text("count-url").map(|text| Address::parse(text, &tls, timeout)).transpose()?;
        check_tls(matches, &tls, [Some(&address), count.as_ref()])?;
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
        Ok(Options { address, count, body, caller, other_caller, profile, timeout })
    }
}

fn timeout(matches: &ArgMatches) -> anyhow::Result<Duration> {
    let text = matches.get_one::<String>("timeout");
    let timeout =
        text.and_then(|text| parse_duration(text)).context("--timeout wants a time, such as 10s")?;
    ensure!(
        (MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout),
        "--timeout must be from {} ms to {} s",
        MIN_TIMEOUT.as_millis(),
        MAX_TIMEOUT.as_secs()
    );
    Ok(timeout)
}

fn trust(matches: &ArgMatches) -> Trust {
    match matches.get_flag("insecure") {
        true => Trust::Insecure,
        false => matches.get_one::<PathBuf>("ca").cloned().into(),
    }
}

/// Reads the files for TLS; `--ca` and `--insecure` go with an https:// URL only.
fn check_tls(matches: &ArgMatches, tls: &TlsSettings, asked: [Option<&Address>; 2]) -> anyhow::Result<()> {
    let mut encrypted =
        asked.into_iter().flatten().filter(|address| address.client.address().is_encrypted()).peekable();
    if encrypted.peek().is_none() && tls.trust != Trust::System {
        let flag = if matches.get_flag("insecure") { "insecure" } else { "ca" };
        bail!("--{flag} goes with an https:// URL only");
    }
    encrypted.try_for_each(|address| Ok(address.client.check()?))
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

    fn parse(text: &str) -> anyhow::Result<Address> {
        Address::parse(text, &TlsSettings::default(), MIN_TIMEOUT)
    }

    #[test]
    fn an_address_is_an_http_or_https_url() {
        for (text, shown) in [
            ("http://127.0.0.1:8080/payments?x=1", "http://127.0.0.1:8080/payments?x=1"),
            ("http://example.com", "http://example.com/"),
            ("https://[::1]:99/", "https://[::1]:99/"),
        ] {
            assert_eq!(parse(text).expect("it is one").to_string(), shown);
        }
    }

    #[test]
    fn other_urls_are_refused_with_the_reason() {
        let why = |text: &str| format!("{:#}", parse(text).expect_err("it is refused"));
        assert!(why("http://alice:secret@example.com/").contains("--header"));
        for text in ["", "/payments", "ftp://example.com/", "http://", "example.com", "http://x:99999/"] {
            assert!(parse(text).is_err(), "{text}");
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
            let why = format!("{:#}", parse(text).expect_err("it is refused"));
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn credentials_in_the_clear_and_unchecked_certificates_are_named() {
        let warnings = |url: &str, trust: Trust, field: &str| {
            let tls = TlsSettings { trust, own: None };
            let options = Options {
                address: Address::parse(url, &tls, MIN_TIMEOUT).expect("it is one"),
                count: None,
                body: Bytes::new(),
                caller: [parse_header(field).expect("it is one")].into_iter().collect(),
                other_caller: None,
                profile: Profile::Ietf,
                timeout: MIN_TIMEOUT,
            };
            options.warnings().join("; ")
        };
        let exposed = warnings("http://shop.example/", Trust::System, "Authorization: Bearer canary");
        assert!(
            exposed.contains("cross the network in the clear") && !exposed.contains("canary"),
            "{exposed}"
        );
        for (url, field) in [
            ("http://shop.example/", "X-User: alice"),
            ("http://127.0.0.1/", "Authorization: a"),
            ("https://shop.example/", "Authorization: a"),
        ] {
            assert_eq!(warnings(url, Trust::System, field), "", "{url} {field}");
        }
        let insecure = warnings("https://shop.example/", Trust::Insecure, "X-User: alice");
        assert!(insecure.contains("NO CERTIFICATE IS CHECKED"), "{insecure}");
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
