//! The options of a run, checked before the first request.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use semel_outgoing::{Address, Client, TlsError, TlsSettings, Trust};

/// The largest body of a command.
const MAX_COMMAND_BYTES: u64 = 1 << 20;
/// The most header fields of one caller.
const MAX_HEADERS: usize = 64;
/// The shortest timeout.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// The longest timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// Fields that the probes or the HTTP client set, and no caller may.
const RESERVED: [&str; 5] =
    ["idempotency-key", "content-length", "transfer-encoding", "connection", "expect"];

/// The answers that an endpoint is expected to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerProfile {
    /// The answers of the IETF draft.
    Ietf,
    /// The answers of Stripe.
    Stripe,
}

impl AnswerProfile {
    /// Returns the status that refuses a key that belongs to another request.
    pub(super) fn reused_key(self) -> u16 {
        match self {
            Self::Ietf => 422,
            Self::Stripe => 400,
        }
    }

    /// Returns the field that marks a replay.
    pub(super) fn replay_mark(self) -> &'static str {
        match self {
            Self::Ietf => "idempotency-replayed",
            Self::Stripe => "idempotent-replayed",
        }
    }

    /// Returns a key as the field spells it: a structured string in the draft, plain text for Stripe.
    pub(super) fn spell(self, key: &str) -> String {
        match self {
            Self::Ietf => format!("\"{key}\""),
            Self::Stripe => key.to_owned(),
        }
    }
}

impl fmt::Display for AnswerProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ietf => "ietf",
            Self::Stripe => "stripe",
        })
    }
}

/// An address, and the client that sends requests there.
#[derive(Clone)]
pub(super) struct TestedAddress {
    pub(super) client: Client,
}

impl TestedAddress {
    /// Makes a client for this address.
    fn new(address: Address, tls: &TlsSettings, timeout: Duration) -> Result<TestedAddress, TlsError> {
        let client = Client::new(address, tls.clone())?;
        Ok(TestedAddress { client: client.connect_timeout(timeout).timeout(timeout) })
    }

    /// Returns path and query.
    pub(super) fn target(&self) -> &str {
        self.client.address().target()
    }
}

impl fmt::Debug for TestedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestedAddress").field(&self.to_string()).finish()
    }
}

impl fmt::Display for TestedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.client.address();
        write!(f, "{}://{}{}", address.scheme(), address.authority(), address.target())
    }
}

/// The options as a user gives them.
#[derive(Debug)]
pub struct VerifySettings {
    /// The endpoint, which gets the command by POST.
    pub url: Address,
    /// The address that answers GET with the number of executions.
    pub count_url: Option<Address>,
    /// The file with the command.
    pub body: PathBuf,
    /// The fields of the caller, each as `Name: value`.
    pub headers: Vec<String>,
    /// The fields of a second caller, in place of the first one's.
    pub other_headers: Vec<String>,
    /// The expected answers.
    pub profile: AnswerProfile,
    /// The servers to trust with https.
    pub trust: Trust,
    /// The timeout of one request.
    pub timeout: Duration,
}

/// The reason against the options.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The timeout is out of bounds.
    #[error("--timeout must be from {} ms to {} s", MIN_TIMEOUT.as_millis(), MAX_TIMEOUT.as_secs())]
    Timeout,
    /// A flag of https stands beside http addresses.
    #[error("--{0} goes with an https:// URL only")]
    HttpsOnly(&'static str),
    /// The files for TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The command itself stands where the name of its file belongs.
    #[error(
        "--body needs the name of a file, not the command itself: write the command to a file, and name \
         that"
    )]
    InlineBody,
    /// The file with the command cannot be opened.
    #[error("cannot open {}", .0.display())]
    OpenBody(PathBuf, #[source] io::Error),
    /// The file with the command cannot be read.
    #[error("cannot read {}", .0.display())]
    ReadBody(PathBuf, #[source] io::Error),
    /// The command is too large.
    #[error("{} is larger than {MAX_COMMAND_BYTES} bytes", .0.display())]
    BodyTooLarge(PathBuf),
    /// A header field is malformed. Its value may be a credential, and is not repeated.
    #[error("--{0} needs \"Name: value\"")]
    MalformedHeader(&'static str),
    /// A header field belongs to the probes.
    #[error("--{flag}: verify sets {field} itself")]
    ReservedHeader {
        /// The flag, without its dashes.
        flag: &'static str,
        /// The field.
        field: HeaderName,
    },
    /// The header fields are too many.
    #[error("--{0}: at most {MAX_HEADERS} fields")]
    TooManyHeaders(&'static str),
    /// The second caller is the first.
    #[error("--other-header is the same as --header: it must be of another caller")]
    SameCaller,
}

/// The checked options of a run.
#[derive(Debug)]
pub struct VerifyOptions {
    pub(super) address: TestedAddress,
    pub(super) count: Option<TestedAddress>,
    pub(super) body: Bytes,
    /// The fields of every request.
    pub(super) caller: HeaderMap,
    /// The fields of a second caller, if there is one.
    pub(super) other_caller: Option<HeaderMap>,
    pub(super) profile: AnswerProfile,
    pub(super) timeout: Duration,
}

/// Fields that authenticate a caller, and give others access when stolen.
const CREDENTIALS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];

impl VerifyOptions {
    /// Checks the options and reads their files.
    ///
    /// # Errors
    /// If an option is wrong, or a file cannot be read.
    pub fn new(settings: VerifySettings) -> Result<VerifyOptions, OptionsError> {
        let VerifySettings { url, count_url, body, headers, other_headers, profile, trust, timeout } =
            settings;
        if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) {
            return Err(OptionsError::Timeout);
        }
        let tls = TlsSettings { trust, own: None };
        let address = TestedAddress::new(url, &tls, timeout)?;
        let count = count_url.map(|url| TestedAddress::new(url, &tls, timeout)).transpose()?;
        check_tls(&tls.trust, [Some(&address), count.as_ref()])?;
        let body = read_body(&body)?;
        let mut caller = read_headers("header", &headers)?;
        if !caller.contains_key(header::CONTENT_TYPE) {
            caller.insert(header::CONTENT_TYPE, content_type(&body));
        }
        let other = read_headers("other-header", &other_headers)?;
        let other_caller = (!other.is_empty()).then(|| replaced(&caller, &other));
        if other_caller.as_ref() == Some(&caller) {
            return Err(OptionsError::SameCaller);
        }
        Ok(VerifyOptions { address, count, body, caller, other_caller, profile, timeout })
    }

    /// Returns the risks that a user should know before the first request.
    pub fn warnings(&self) -> Vec<String> {
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
                    .push(format!("the credentials for {address} cross the network unencrypted: use https"));
            }
        }
        warnings
    }
}

/// Reads the files for TLS; `--ca` and `--insecure` go with an https:// URL only.
fn check_tls(trust: &Trust, asked: [Option<&TestedAddress>; 2]) -> Result<(), OptionsError> {
    let mut encrypted =
        asked.into_iter().flatten().filter(|address| address.client.address().is_encrypted()).peekable();
    match (encrypted.peek(), trust) {
        (None, Trust::Insecure) => return Err(OptionsError::HttpsOnly("insecure")),
        (None, Trust::Authorities(_)) => return Err(OptionsError::HttpsOnly("ca")),
        (None, Trust::System) | (Some(_), _) => {}
    }
    encrypted.try_for_each(|address| Ok(address.client.check()?))
}

/// Reads the command from its file.
fn read_body(path: &Path) -> Result<Bytes, OptionsError> {
    let file = File::open(path).map_err(|error| {
        match path.to_string_lossy().trim_start().starts_with(['{', '[']) {
            true => OptionsError::InlineBody,
            false => OptionsError::OpenBody(path.to_owned(), error),
        }
    })?;
    let mut body = Vec::new();
    file.take(MAX_COMMAND_BYTES + 1)
        .read_to_end(&mut body)
        .map_err(|error| OptionsError::ReadBody(path.to_owned(), error))?;
    if body.len() as u64 > MAX_COMMAND_BYTES {
        return Err(OptionsError::BodyTooLarge(path.to_owned()));
    }
    Ok(Bytes::from(body))
}

/// Guesses the media type of the command.
fn content_type(body: &[u8]) -> HeaderValue {
    let json = serde_json::from_slice::<serde_json::Value>(body).is_ok();
    HeaderValue::from_static(if json { "application/json" } else { "application/octet-stream" })
}

/// Reads the fields of one caller.
fn read_headers(flag: &'static str, texts: &[String]) -> Result<HeaderMap, OptionsError> {
    let mut headers = HeaderMap::new();
    for text in texts {
        let (field, value) = parse_header(text).ok_or(OptionsError::MalformedHeader(flag))?;
        if RESERVED.contains(&field.as_str()) {
            return Err(OptionsError::ReservedHeader { flag, field });
        }
        if headers.len() >= MAX_HEADERS {
            return Err(OptionsError::TooManyHeaders(flag));
        }
        headers.append(field, value);
    }
    Ok(headers)
}

/// Reads a field as `Name: value`.
fn parse_header(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':')?;
    Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
}

/// Returns the first caller's fields, with those of the second in place of fields of the same name.
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
    fn credentials_in_the_clear_and_unchecked_certificates_are_named() {
        let warnings = |url: &str, trust: Trust, field: &str| {
            let tls = TlsSettings { trust, own: None };
            let options = VerifyOptions {
                address: TestedAddress::new(url.parse().expect("it is one"), &tls, MIN_TIMEOUT)
                    .expect("it has a client"),
                count: None,
                body: Bytes::new(),
                caller: [parse_header(field).expect("it is one")].into_iter().collect(),
                other_caller: None,
                profile: AnswerProfile::Ietf,
                timeout: MIN_TIMEOUT,
            };
            options.warnings().join("; ")
        };
        let exposed = warnings("http://shop.example/", Trust::System, "Authorization: Bearer canary");
        assert!(
            exposed.contains("cross the network unencrypted") && !exposed.contains("canary"),
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
    fn a_command_in_place_of_its_file_is_named_as_the_mistake() {
        let why = |path: &str| read_body(Path::new(path)).expect_err("it is refused").to_string();
        for inline in ["{\"amount\": 5}", " [1]", "{"] {
            let said = why(inline);
            assert!(said.starts_with("--body needs the name of a file, not the command itself"), "{said}");
        }
        assert_eq!(why("no/such/file.json"), "cannot open no/such/file.json");
    }

    #[test]
    fn a_second_caller_replaces_only_the_given_header_fields() {
        let field = |text: &str| parse_header(text).expect("it is one");
        let caller: HeaderMap = [field("Authorization: a"), field("X-Tenant: t")].into_iter().collect();
        let other: HeaderMap = [field("authorization: b")].into_iter().collect();
        let both = replaced(&caller, &other);
        assert_eq!((both["authorization"].as_bytes(), both["x-tenant"].as_bytes()), (&b"b"[..], &b"t"[..]));
        assert!(parse_header("no colon").is_none() && parse_header("a b: c").is_none());
    }
}
