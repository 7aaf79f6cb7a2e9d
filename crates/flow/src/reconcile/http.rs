//! Look-up that asks a provider over HTTP. It treats the answer as untrusted input.
//!
//! | answer | |
//! |---|---|
//! | 200 | the object at `result`, its `reference` and the word at its `status` tell the command's outcome |
//! | 404, or a list without the command | not found: the settings declare its meaning |
//! | 410 with the command's `reference`, if declared | a tombstone: the command will never take effect under this id |
//! | 429, 5xx, no answer, timeout | no answer: retried, not before `Retry-After` if that is reasonable |
//! | anything else: other statuses, redirects, no JSON | no answer, and probably a mistake in the settings |
//!
//! Invariant: an answer that a proxy, or a wrong path, could have given is never evidence.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use semel_core::json::{NotCanonical, Numbers, Pointed, canonicalize};
use semel_core::reading::MAX_ANSWER;
pub use semel_core::reading::{Gone, LookUpReading, NotFound};
use semel_core::transition::Proof;
use semel_core::{Clock, LookUpAnswer, OperationId, Record, SystemClock, Timestamp, is_server_error};
use semel_outgoing::{Address, Client, Error, TlsError, TlsSettings};

use super::look_up::{Finding, LookUp};
use super::reading::{command, quoted, result, word};

/// Placeholder of the operation id in an address.
const OPERATION_ID: &str = "{operation_id}";
const TENANT: &str = "{tenant}";
const CALLER: &str = "{caller}";

/// Judges the answers of a provider by their reading.
struct Judge<'a>(&'a LookUpReading);

impl Judge<'_> {
    /// Reads a successful answer about a command.
    fn read(&self, answer: &[u8], about: OperationId) -> Finding {
        match self.try_to_read(answer, about) {
            Ok(finding) => finding,
            Err(why) => Finding::no_answer(why),
        }
    }

    fn try_to_read(&self, answer: &[u8], about: OperationId) -> Result<Finding, String> {
        let object = match &self.0.result {
            None => whole(answer)?,
            Some(pointer) => match pointer.point(answer).map_err(not_json)? {
                Pointed::Value(object) if object != "null" => object,
                Pointed::Value(_) | Pointed::Missing => {
                    return Ok(self.not_found(&format!("there is nothing at {pointer} of the answer")));
                }
                Pointed::NoPlace => {
                    return Err(format!("the answer has another shape: there is no place for {pointer}"));
                }
            },
        };
        if !object.starts_with('{') {
            return Err("what was found is no object".to_owned());
        }
        let is_named = self.names(&object, about)?;
        let Some(pointer) = &self.0.status else {
            if !is_named {
                return Err("nothing says what it is about: name `reference` or `status`".to_owned());
            }
            return Ok(Finding::new(self.executed(&object)?, "the provider has it"));
        };
        let status = word(pointer, object.as_bytes()).map_err(not_json)?;
        let status = status.ok_or_else(|| format!("there is no status at {pointer} of what was found"))?;
        let seen = format!("its {pointer} is {}", quoted(&status));
        let found = match &status {
            status if self.0.executed.contains(status) => self.executed(&object)?,
            status if self.0.failed.contains(status) => {
                LookUpAnswer::Failed(result(self.0.failed_status, self.body(&object)?, self.0.max_response))
            }
            status if self.0.pending.contains(status) => LookUpAnswer::Pending,
            _ => return Err(format!("{seen}, which is none of the words that are known")),
        };
        Ok(Finding::new(found, seen))
    }

    /// Returns true if an object has this command's reference; false if no reference is configured.
    fn names(&self, object: &str, about: OperationId) -> Result<bool, String> {
        let Some(pointer) = &self.0.reference else { return Ok(false) };
        let found = word(pointer, object.as_bytes()).map_err(not_json)?;
        let found = found.ok_or_else(|| format!("there is no reference at {pointer} of what was found"))?;
        if command(&found) != Some(about) {
            return Err(format!("what was found is about {}, which is another command", quoted(&found)));
        }
        Ok(true)
    }

    /// Reads a 410 answer, which a proxy may also have given.
    fn gone(&self, answer: &[u8], about: OperationId, seen: &str) -> Finding {
        let object = || match &self.0.result {
            None => whole(answer),
            Some(pointer) => match pointer.point(answer).map_err(not_json)? {
                Pointed::Value(object) => Ok(object),
                Pointed::Missing | Pointed::NoPlace => whole(answer),
            },
        };
        match (self.0.gone, object().and_then(|object| self.names(&object, about))) {
            (Gone::NoAnswer, _) => {
                Finding::no_answer(format!("{seen}: the path may be gone, and not the command"))
            }
            (Gone::Tombstone, Ok(true)) => {
                Finding::new(LookUpAnswer::NotExecuted(Proof::ProviderTombstone), seen)
            }
            (Gone::Tombstone, Ok(false)) => Finding::no_answer(format!("{seen}, without a reference")),
            (Gone::Tombstone, Err(why)) => Finding::no_answer(format!("{seen}: {why}")),
        }
    }

    fn executed(&self, object: &str) -> Result<LookUpAnswer, String> {
        Ok(LookUpAnswer::Executed(result(self.0.response_status, self.body(object)?, self.0.max_response)))
    }

    /// Returns the body that retries get.
    fn body(&self, object: &str) -> Result<String, String> {
        let Some(pointer) = &self.0.response else { return Ok(object.to_owned()) };
        match pointer.point(object.as_bytes()) {
            Ok(Pointed::Value(body)) => Ok(body),
            Ok(Pointed::Missing | Pointed::NoPlace) => {
                Err(format!("there is no response at {pointer} of what was found"))
            }
            Err(error) => Err(format!("the answer cannot be read: {error}")),
        }
    }

    /// Returns the finding for a command that the provider does not know.
    fn not_found(&self, seen: &str) -> Finding {
        match (self.0.not_found, self.0.deduplicates) {
            (NotFound::Unknown, _) => Finding::no_answer(format!("the provider does not know it: {seen}")),
            (NotFound::NotExecuted, true) => {
                Finding::new(LookUpAnswer::NotExecuted(Proof::ProviderDeduplicates), seen)
            }
            (NotFound::NotExecuted, false) => {
                Finding::new(LookUpAnswer::NotExecuted(Proof::Quarantine), seen)
            }
        }
    }
}

fn not_json(error: NotCanonical) -> String {
    format!("the answer cannot be read: {error}")
}

/// Returns the whole answer in canonical form.
fn whole(answer: &[u8]) -> Result<String, String> {
    let whole = canonicalize(answer, Numbers::Exact, &[]).map_err(not_json)?;
    Ok(String::from_utf8_lossy(&whole).into_owned())
}

/// Returns true if this may be a provider's answer, and no page of a proxy: JSON by its content type, if it has one,
/// and by its syntax.
fn is_json(headers: &HeaderMap, body: &[u8]) -> bool {
    let named = headers.get(CONTENT_TYPE).is_none_or(|value| {
        let value = value.to_str().unwrap_or_default();
        let kind = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
    });
    named && canonicalize(body, Numbers::Exact, &[]).is_ok()
}

/// Asks a provider over HTTP.
pub struct HttpLookUp {
    /// Path and query, with the placeholders.
    template: String,
    client: Client,
    authorization: Option<HeaderValue>,
    reading: LookUpReading,
}

/// Error that rejects an address or its TLS files.
#[derive(Debug, thiserror::Error)]
pub enum HttpLookUpError {
    /// The address is not valid.
    #[error(
        "{0:?} is not an address such as https://provider.example/charges?reference={{operation_id}}: {1}"
    )]
    Address(String, String),
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl HttpLookUp {
    /// Creates a look-up at this address, with the placeholders `{operation_id}`, `{tenant}` and `{caller}`, whose
    /// values are percent-encoded.
    pub fn new(address: &str, reading: LookUpReading) -> Result<HttpLookUp, HttpLookUpError> {
        let wrong = |why: &str| HttpLookUpError::Address(address.to_owned(), why.to_owned());
        if address.contains('#') {
            return Err(wrong("it has a fragment, which is not sent"));
        }
        let mut plain = address.to_owned();
        for name in [OPERATION_ID, TENANT, CALLER] {
            plain = plain.replace(name, "x");
        }
        if plain.contains(['{', '}']) {
            return Err(wrong("only {operation_id}, {tenant} and {caller} can stand in it"));
        }
        let host: Address = plain.parse().map_err(|error| wrong(&format!("{error}")))?;
        let rest = address.split_once("://").map_or("", |(_, rest)| rest);
        let template = match rest.find(['/', '?']) {
            Some(end) if rest[..end] != *host.authority() => {
                return Err(wrong("the host is the same for every command"));
            }
            Some(end) if rest[end..].starts_with('?') => format!("/{}", &rest[end..]),
            Some(end) => rest[end..].to_owned(),
            None => String::new(),
        };
        if !template.contains(OPERATION_ID) {
            return Err(wrong("it does not say which command is meant: {operation_id} is missing"));
        }
        let client = Client::new(host, TlsSettings::default())?.timeout(Duration::from_secs(5));
        Ok(HttpLookUp { template, client, authorization: None, reading })
    }

    /// Uses these TLS files in place of the system's trusted certificates.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn tls(self, settings: TlsSettings) -> Result<HttpLookUp, HttpLookUpError> {
        Ok(HttpLookUp { client: self.client.tls(settings)?, ..self })
    }

    /// Sets the header `Authorization`. Over plain http, the network can read it.
    pub fn authorization(self, mut value: HeaderValue) -> HttpLookUp {
        value.set_sensitive(true);
        HttpLookUp { authorization: Some(value), ..self }
    }

    /// Sets the timeout of the whole call.
    pub fn timeout(self, timeout: Duration) -> HttpLookUp {
        HttpLookUp { client: self.client.timeout(timeout), ..self }
    }

    /// Returns the provider's host, with its use of TLS.
    pub fn address(&self) -> &Address {
        self.client.address()
    }

    async fn ask(&self, record: &Record) -> Result<Finding, String> {
        let answer = self.client.send(self.request(record)?).await.map_err(|error| self.in_words(&error))?;
        let answer = answer.bytes(MAX_ANSWER).await.map_err(|error| self.in_words(&error))?;
        let finding = self.judged(answer.status(), answer.headers(), answer.body(), record.operation_id);
        Ok(match finding.found {
            LookUpAnswer::NotExecuted(_) if record.head.is_in_doubt() => Finding::no_answer(
                "the provider does not know this operation id, which is no evidence: the store was restored, and an attempt that it \
                 has forgotten may have had another id. See the provider's own records, and give the verdict yourself",
            ),
            LookUpAnswer::NotExecuted(_)
            | LookUpAnswer::Executed(_)
            | LookUpAnswer::Failed(_)
            | LookUpAnswer::Pending
            | LookUpAnswer::NoAnswer { .. } => finding,
        })
    }

    fn in_words(&self, error: &Error) -> String {
        match error {
            Error::TimedOut(_) => format!("{} did not answer in time", self.client.address().authority()),
            other => other.to_string(),
        }
    }

    fn request(&self, record: &Record) -> Result<Request<Full<Bytes>>, String> {
        let id = record.operation_id.to_string();
        let path = filled(&self.template, &id, record.principal.tenant(), record.principal.caller());
        let request = self
            .client
            .request(Method::GET, &path)
            .header(ACCEPT, "application/json")
            .header("semel-operation-id", id);
        let request = match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value),
            None => request,
        };
        request.body(Full::default()).map_err(|error| format!("it cannot be asked for: {error}"))
    }

    fn judged(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], about: OperationId) -> Finding {
        let answered = format!("{} answered {}", self.client.address().authority(), status.as_u16());
        let finding = match status {
            StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::GONE if !is_json(headers, body) => {
                return Finding::no_answer(format!(
                    "{answered} with no JSON: a proxy, or another path, does so"
                ));
            }
            StatusCode::NOT_FOUND => return Judge(&self.reading).not_found(&answered),
            StatusCode::GONE => return Judge(&self.reading).gone(body, about, &answered),
            StatusCode::OK => Judge(&self.reading).read(body, about),
            // Accepted, partial, or changed by an intermediary.
            status if status.is_success() => {
                return Finding::no_answer(format!("{answered}, which does not say what became of it"));
            }
            status if is_server_error(status) || status == StatusCode::TOO_MANY_REQUESTS => {
                let retry_after = retry_after(headers);
                return Finding::new(LookUpAnswer::NoAnswer { why: answered, retry_after }, "");
            }
            status if status.is_redirection() => {
                return Finding::no_answer(format!(
                    "{answered}; redirects are not followed: name the final address"
                ));
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Finding::no_answer(format!("{answered}: it wants other credentials"));
            }
            _ => return Finding::no_answer(format!("{answered}: it does not understand what it is asked")),
        };
        match finding.found {
            LookUpAnswer::NoAnswer { why, retry_after } => {
                Finding::new(LookUpAnswer::NoAnswer { why: format!("{answered}: {why}"), retry_after }, "")
            }
            found => Finding { found, seen: format!("{answered}: {}", finding.seen) },
        }
    }
}

#[async_trait]
impl LookUp for HttpLookUp {
    async fn look_up(&self, record: &Record) -> Finding {
        self.ask(record).await.unwrap_or_else(Finding::no_answer)
    }

    fn deduplicates(&self, _record: &Record) -> bool {
        self.reading.deduplicates
    }
}

/// Fills in the placeholders. The inserted values are not searched for placeholders again.
fn filled(template: &str, id: &str, tenant: &str, caller: &str) -> String {
    let mut text = String::with_capacity(template.len() + id.len());
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let names = [(OPERATION_ID, id), (TENANT, tenant), (CALLER, caller)];
        match names.into_iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                encode(value, &mut text);
                rest = &rest[name.len()..];
            }
            None => {
                text.push('{');
                rest = &rest[1..];
            }
        }
    }
    text + rest
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
fn encode(value: &str, text: &mut String) {
    use std::fmt::Write;
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            other => {
                let _ = write!(text, "%{other:02X}");
            }
        }
    }
}

/// Returns the value of `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(Timestamp::from_http_date(text)?.since(SystemClock.now())),
    }
}

#[cfg(test)]
mod tests {
    use semel_core::JsonPointer;

    use super::*;
    use semel_core::StoredResult;

    const ID: OperationId = OperationId::from_bytes([7; 16]);

    fn pointer(text: &str) -> Option<JsonPointer> {
        Some(JsonPointer::parse(text).expect("tests use pointers"))
    }

    fn reading() -> LookUpReading {
        LookUpReading {
            result: pointer("/data/0"),
            reference: pointer("/reference"),
            status: pointer("/status"),
            executed: vec!["captured".into(), "true".into()],
            failed: vec!["declined".into()],
            pending: vec!["processing".into()],
            not_found: NotFound::NotExecuted,
            response_status: StatusCode::CREATED,
            failed_status: StatusCode::PAYMENT_REQUIRED,
            ..LookUpReading::default()
        }
    }

    fn charge(status: &str) -> String {
        format!(r#"{{"data":[{{"status":{status},"reference":"{ID}:charge","amount":1.50}}]}}"#)
    }

    fn body(result: &StoredResult) -> String {
        let body = result.response.decode().expect("it was just made").body.expect("it is kept");
        String::from_utf8(body.to_vec()).expect("it is text")
    }

    #[test]
    fn configured_provider_states_become_verdicts() {
        let read = |answer: &str| Judge(&reading()).read(answer.as_bytes(), ID).found;
        match read(&charge(r#""captured""#)) {
            LookUpAnswer::Executed(result) => {
                assert_eq!(result.status, 201);
                let expected = format!(r#"{{"amount":1.5,"reference":"{ID}:charge","status":"captured"}}"#);
                assert_eq!(body(&result), expected, "the object, with every number exact");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(read(&charge("true")), LookUpAnswer::Executed(_)));
        assert!(
            matches!(read(&charge(r#""declined""#)), LookUpAnswer::Failed(result) if result.status == 402)
        );
        assert_eq!(read(&charge(r#""processing""#)), LookUpAnswer::Pending);
        assert_eq!(read(r#"{"data":[]}"#), LookUpAnswer::NotExecuted(Proof::Quarantine));
        let deduplicates = LookUpReading { deduplicates: true, ..reading() };
        let not_executed = LookUpAnswer::NotExecuted(Proof::ProviderDeduplicates);
        assert_eq!(Judge(&deduplicates).read(br#"{"data":[]}"#, ID).found, not_executed);
    }

    #[test]
    fn a_look_up_body_of_unexpected_shape_gives_no_answer() {
        let other = OperationId::from_bytes([8; 16]);
        let table = [
            ("not JSON", "<html>".to_owned()),
            ("empty", String::new()),
            ("another shape", r#"{"error":"too many requests"}"#.to_owned()),
            ("not a list", r#"{"data":{}}"#.to_owned()),
            ("no list", r#"{"data":null}"#.to_owned()),
            ("an unknown word", charge(r#""refunded""#)),
            ("no word", charge("{}")),
            ("two words", charge(r#""captured","status":"declined""#)),
            ("another command", charge(r#""captured""#).replace(&ID.to_string(), &other.to_string())),
            ("no reference", r#"{"data":[{"status":"captured"}]}"#.to_owned()),
        ];
        for (what, answer) in table {
            let found = Judge(&reading()).read(answer.as_bytes(), ID).found;
            assert!(matches!(found, LookUpAnswer::NoAnswer { .. }), "{what}: {found:?}");
        }
        let whole = LookUpReading { result: None, status: None, reference: None, ..reading() };
        for answer in ["<html>", "null", "[]", "{}", "\"x\"", "1", r#"{"error":"no such version"}"#] {
            let found = Judge(&whole).read(answer.as_bytes(), ID).found;
            assert!(matches!(found, LookUpAnswer::NoAnswer { .. }), "without status and reference: {answer}");
        }
        let named = LookUpReading { result: None, status: None, ..reading() };
        for answer in ["null", "[]", "{}", r#"{"reference":null}"#] {
            let found = Judge(&named).read(answer.as_bytes(), ID).found;
            assert!(matches!(found, LookUpAnswer::NoAnswer { .. }), "without a status: {answer}");
        }
        let there = format!(r#"{{"reference":"{ID}"}}"#);
        assert!(matches!(Judge(&named).read(there.as_bytes(), ID).found, LookUpAnswer::Executed(_)));
        let unsure = LookUpReading { not_found: NotFound::Unknown, ..reading() };
        assert!(matches!(Judge(&unsure).read(br#"{"data":[]}"#, ID).found, LookUpAnswer::NoAnswer { .. }));
    }

    fn judged(reading: LookUpReading, status: u16, kind: Option<&'static str>, body: &str) -> LookUpAnswer {
        let look_up = HttpLookUp::new("http://provider/{operation_id}", reading).expect("it is an address");
        let status = StatusCode::from_u16(status).expect("tests use real statuses");
        let mut headers = HeaderMap::new();
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        look_up.judged(status, &headers, body.as_bytes(), ID).found
    }

    #[test]
    fn a_410_is_a_tombstone_only_if_declared_and_naming_the_command() {
        let json = Some("application/json");
        let named = format!(r#"{{"reference":"{ID}","cancelled":true}}"#);
        let declared = LookUpReading { gone: Gone::Tombstone, ..reading() };
        let tombstone = LookUpAnswer::NotExecuted(Proof::ProviderTombstone);
        assert_eq!(judged(declared.clone(), 410, json, &named), tombstone);
        let listed = format!(r#"{{"data":[{named}]}}"#);
        assert_eq!(judged(declared.clone(), 410, json, &listed), tombstone);
        let no_answer = |reading: LookUpReading, kind, body: &str| {
            let found = judged(reading, 410, kind, body);
            assert!(matches!(found, LookUpAnswer::NoAnswer { .. }), "{body:?} as {kind:?}: {found:?}");
        };
        no_answer(reading(), json, &named);
        no_answer(declared.clone(), Some("text/html"), &named);
        for body in ["", "null", "{}", "<html>gone</html>", r#"{"error":"this version was retired"}"#] {
            no_answer(declared.clone(), json, body);
        }
        no_answer(
            declared.clone(),
            json,
            &named.replace(&ID.to_string(), &OperationId::from_bytes([8; 16]).to_string()),
        );
        no_answer(LookUpReading { reference: None, ..declared }, json, &named);
    }

    #[test]
    fn only_a_look_up_status_200_or_404_with_a_json_body_is_evidence() {
        let body = charge(r#""captured""#);
        let json = Some("application/json; charset=utf-8");
        assert!(matches!(judged(reading(), 200, json, &body), LookUpAnswer::Executed(_)));
        assert!(matches!(
            judged(reading(), 200, Some("application/hal+json"), &body),
            LookUpAnswer::Executed(_)
        ));
        assert!(
            matches!(judged(reading(), 200, None, &body), LookUpAnswer::Executed(_)),
            "its form is enough"
        );
        let not_executed = LookUpAnswer::NotExecuted(Proof::Quarantine);
        assert_eq!(judged(reading(), 404, json, r#"{"error":"no such charge"}"#), not_executed);
        for kind in ["text/html", "text/plain", "application/octet-stream", "application/jsonp"] {
            let found = judged(reading(), 200, Some(kind), &body);
            assert!(matches!(found, LookUpAnswer::NoAnswer { .. }), "{kind}: {found:?}");
        }
        for (status, body) in [(404, ""), (404, "<html>not found</html>"), (200, ""), (200, "null")] {
            let found = judged(reading(), status, None, body);
            assert!(matches!(found, LookUpAnswer::NoAnswer { .. }), "{status} {body:?}: {found:?}");
        }
        for status in (201..=599).filter(|status| *status != 404) {
            let found = judged(reading(), status, json, &body);
            assert!(matches!(found, LookUpAnswer::NoAnswer { .. }), "{status}: {found:?}");
        }
    }

    #[test]
    fn a_response_that_is_too_large_is_kept_without_its_body() {
        let small = LookUpReading { max_response: 10, ..reading() };
        let LookUpAnswer::Executed(result) = Judge(&small).read(charge(r#""captured""#).as_bytes(), ID).found
        else {
            panic!("it was executed")
        };
        assert_eq!((result.status, result.response.decode().expect("it reads").body), (201, None));
    }

    #[test]
    fn an_address_names_the_command_and_one_host() {
        let new = |address: &str| HttpLookUp::new(address, reading());
        for address in [
            "http://provider/charges/{operation_id}",
            "http://provider:8080?reference={operation_id}&t={tenant}&c={caller}",
        ] {
            assert!(new(address).is_ok(), "{address}");
        }
        assert!(new("https://provider/{operation_id}").is_ok());
        for address in [
            "",
            "provider/{operation_id}",
            "ftp://provider/{operation_id}",
            "http:///{operation_id}",
            "http://provider/charges",
            "http://{tenant}.provider/{operation_id}",
            "https://{tenant}.provider/{operation_id}",
            "http://{operation_id}",
            "http://user:password@provider/{operation_id}",
            "http://provider/{operation_id}#x",
            "http://provider/{operation_id}/{key}",
            "http://provider/{operation_id",
            "http://provider/ {operation_id}",
        ] {
            assert!(matches!(new(address), Err(HttpLookUpError::Address(..))), "{address}");
        }
    }

    #[test]
    fn filled_in_values_cannot_change_the_address() {
        let template = "/c/{operation_id}?t={tenant}&c={caller}";
        let text = filled(template, "1-2", "a/b?c=d&e#f {caller}", "é\r\n");
        assert_eq!(text, "/c/1-2?t=a%2Fb%3Fc%3Dd%26e%23f%20%7Bcaller%7D&c=%C3%A9%0D%0A");
    }
}
