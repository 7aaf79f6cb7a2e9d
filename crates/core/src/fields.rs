//! The table of field rules: the treatment of each header field in each section of a message, in every
//! version of HTTP. The layer and the gateway use it, and have no lists of their own.

use http::header::{HeaderMap, HeaderName};

use crate::credential::is_credential;

/// Part of a message that holds a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The head of a request.
    RequestHead,
    /// The trailers of a request.
    RequestTrailer,
    /// The head of a response.
    ResponseHead,
    /// The trailers of a response.
    ResponseTrailer,
}

/// The rule for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The field is passed on.
    Pass,
    /// The field belongs to one connection, and is not passed on.
    Hop,
    /// The field is removed, and the message passes without it.
    Strip,
    /// The message is refused.
    Refuse,
}

/// Reason why a field's name gets a message refused. The text is fixed: it repeats nothing that a client
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    /// The field changes the meaning of the request, where no rule looks.
    #[error("A field would change the method or the target of the request.")]
    Override,
    /// The field's name is another spelling of a name with a meaning.
    #[error("A field name has an underscore, and would be the name of another field with a hyphen.")]
    LookAlike,
    /// The field has a meaning in the head only.
    #[error("A trailer field belongs into the head of the request, or is not the client's to send.")]
    Trailer,
}

struct FieldRow {
    name: &'static str,
    /// Treatments in the order of [`Section`].
    rules: [Treatment; 4],
}

const fn row(name: &'static str, rules: [Treatment; 4]) -> FieldRow {
    FieldRow { name, rules }
}

/// Treatments of a field of one connection.
const HOP: [Treatment; 4] = [Treatment::Hop, Treatment::Refuse, Treatment::Hop, Treatment::Strip];
/// Treatments of a field that has a meaning in a head only: framing, routing, identity, control, the form of
/// the content.
const HEAD_ONLY: [Treatment; 4] = [Treatment::Pass, Treatment::Refuse, Treatment::Pass, Treatment::Strip];
/// Treatments of a field that only Semel may send to an upstream.
const OWN: [Treatment; 4] = [Treatment::Strip, Treatment::Refuse, Treatment::Pass, Treatment::Strip];
/// Treatments of a field that makes some servers read another request. The fingerprint does not cover it.
const OVERRIDE: [Treatment; 4] = [Treatment::Refuse, Treatment::Refuse, Treatment::Pass, Treatment::Strip];

/// Rows of all names with a rule of their own. Credentials ([`is_credential`]) are [`HEAD_ONLY`].
const TABLE: &[FieldRow] = &[
    row("connection", HOP),
    row("keep-alive", HOP),
    row("proxy-connection", HOP),
    row("te", HOP),
    row("transfer-encoding", HOP),
    row("upgrade", HOP),
    row("expect", [Treatment::Hop, Treatment::Refuse, Treatment::Pass, Treatment::Strip]),
    row("content-length", HEAD_ONLY),
    row("content-type", HEAD_ONLY),
    row("content-encoding", HEAD_ONLY),
    row("content-range", HEAD_ONLY),
    row("host", HEAD_ONLY),
    row("trailer", HEAD_ONLY),
    row("idempotency-key", HEAD_ONLY),
    row("idempotency-replayed", OWN),
    row("cache-control", HEAD_ONLY),
    row("date", HEAD_ONLY),
    row("location", HEAD_ONLY),
    row("max-forwards", HEAD_ONLY),
    row("range", HEAD_ONLY),
    row("vary", HEAD_ONLY),
    row("forwarded", HEAD_ONLY),
    row("via", HEAD_ONLY),
    row("x-forwarded-for", HEAD_ONLY),
    row("x-forwarded-host", HEAD_ONLY),
    row("x-forwarded-port", HEAD_ONLY),
    row("x-forwarded-prefix", HEAD_ONLY),
    row("x-forwarded-proto", HEAD_ONLY),
    row("x-forwarded-server", HEAD_ONLY),
    row("x-forwarded-ssl", HEAD_ONLY),
    row("x-real-ip", HEAD_ONLY),
    row("http2-settings", HOP),
    row("sec-websocket-accept", HEAD_ONLY),
    row("sec-websocket-key", HEAD_ONLY),
    row("sec-websocket-version", HEAD_ONLY),
    row("x-http-method", OVERRIDE),
    row("x-http-method-override", OVERRIDE),
    row("x-method-override", OVERRIDE),
    row("x-original-method", OVERRIDE),
    row("x-original-url", OVERRIDE),
    row("x-rewrite-url", OVERRIDE),
];

/// Prefix of field names that only Semel may send.
const OWN_PREFIX: &str = "semel-";

/// Returns the rules of a name that has some; the name is written with hyphens.
fn rules(name: &str) -> Option<[Treatment; 4]> {
    if name.starts_with(OWN_PREFIX) {
        return Some(OWN);
    }
    TABLE.iter().find(|row| row.name == name).map(|row| row.rules)
}

fn rules_of(name: &HeaderName) -> Option<[Treatment; 4]> {
    rules(name.as_str()).or_else(|| is_credential(name).then_some(HEAD_ONLY))
}

/// Returns the name with hyphens for underscores, which some servers read as equal; `None` if it has no
/// underscore.
fn hyphenated(name: &HeaderName) -> Option<HeaderName> {
    let text = name.as_str();
    text.contains('_').then(|| HeaderName::try_from(text.replace('_', "-")).ok()).flatten()
}

/// Returns the rule for a field of this name in this section. Another spelling of a name with a rule is
/// refused, or stripped where the name is. Heads of upstreams may use any spelling.
pub fn treatment(name: &HeaderName, section: Section) -> Treatment {
    let rule = |rules: [Treatment; 4]| rules[section as usize];
    let Some(plain) = hyphenated(name) else {
        return rules_of(name).map_or(Treatment::Pass, rule);
    };
    match (rules_of(&plain).map(rule), section) {
        (None, _) | (_, Section::ResponseHead) => Treatment::Pass,
        (Some(Treatment::Strip), _) | (_, Section::ResponseTrailer) => Treatment::Strip,
        (Some(_), Section::RequestHead | Section::RequestTrailer) => Treatment::Refuse,
    }
}

/// Checks that a request's head has no forbidden field.
///
/// # Errors
/// The first fault.
pub fn check_request_head(headers: &HeaderMap) -> Result<(), FieldFault> {
    for name in headers.keys() {
        match (treatment(name, Section::RequestHead), hyphenated(name)) {
            (Treatment::Refuse, None) => return Err(FieldFault::Override),
            (Treatment::Refuse, Some(_)) => return Err(FieldFault::LookAlike),
            // Names that have their meaning from the settings are in no table.
            (Treatment::Pass, Some(plain)) if headers.contains_key(&plain) => {
                return Err(FieldFault::LookAlike);
            }
            (Treatment::Pass | Treatment::Hop | Treatment::Strip, _) => {}
        }
    }
    Ok(())
}

/// Checks that a request's trailers have no forbidden field.
///
/// # Errors
/// The first fault.
pub fn check_request_trailers(trailers: &HeaderMap) -> Result<(), FieldFault> {
    let is_refused = |name: &HeaderName| treatment(name, Section::RequestTrailer) != Treatment::Pass;
    if trailers.keys().any(is_refused) { Err(FieldFault::Trailer) } else { Ok(()) }
}

/// Removes the fields that have this treatment in this section.
pub fn remove(headers: &mut HeaderMap, section: Section, unwanted: Treatment) {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| treatment(name, section) == unwanted).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Removes the fields of one connection: those of the table, and those that `Connection` names and is allowed
/// to name.
pub fn remove_hop_by_hop(headers: &mut HeaderMap, section: Section) {
    let named: Vec<HeaderName> = elements(headers, &http::header::CONNECTION)
        .filter_map(|element| HeaderName::from_bytes(element).ok())
        .filter(|name| !is_end_to_end(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
    remove(headers, section, Treatment::Hop);
}

/// Returns true if `Connection` may not name this field: a proxy that removed it would pass on another
/// message than was checked.
pub fn is_end_to_end(name: &HeaderName) -> bool {
    let text = name.as_str();
    match rules_of(name) {
        Some(rules) => rules[Section::RequestHead as usize] != Treatment::Hop,
        None => text.starts_with("content-") || text.starts_with("x-") || hyphenated(name).is_some(),
    }
}

/// Returns true if the meaning of a command depends on this field. It is stored with the request, whatever
/// the settings leave out.
pub fn reads_command(name: &HeaderName) -> bool {
    ["content-encoding", "content-length", "content-type", "host", "idempotency-key"].contains(&name.as_str())
}

/// Returns the elements of a list field as bytes. Unreadable elements are included: the caller decides about
/// them.
pub fn elements<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).iter().map(|value| value.as_bytes());
    lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::CONNECTION;

    use super::*;

    fn name(text: &'static str) -> HeaderName {
        HeaderName::from_static(text)
    }

    fn map(names: &[&'static str]) -> HeaderMap {
        names.iter().map(|text| (name(text), HeaderValue::from_static("1"))).collect()
    }

    #[test]
    fn names_that_are_no_names_of_a_client_are_refused_or_stripped() {
        for (refused, fault) in [
            ("x-http-method-override", FieldFault::Override),
            ("x-method-override", FieldFault::Override),
            ("x-http-method", FieldFault::Override),
            ("x-original-url", FieldFault::Override),
            ("x_http_method_override", FieldFault::LookAlike),
            ("x-http_method-override", FieldFault::LookAlike),
            ("idempotency_key", FieldFault::LookAlike),
            ("content_length", FieldFault::LookAlike),
            ("transfer_encoding", FieldFault::LookAlike),
            ("x_api_key", FieldFault::LookAlike),
        ] {
            assert_eq!(check_request_head(&map(&[refused])), Err(fault), "{refused}");
            assert_eq!(check_request_trailers(&map(&[refused])), Err(FieldFault::Trailer), "{refused}");
        }
        for stripped in ["semel-tenant", "semel_tenant", "semel-anything", "idempotency-replayed"] {
            assert_eq!(treatment(&name(stripped), Section::RequestHead), Treatment::Strip, "{stripped}");
        }
        assert_eq!(check_request_head(&map(&["x_tenant", "x-tenant"])), Err(FieldFault::LookAlike));
        assert_eq!(check_request_head(&map(&["x_mine", "x-tenant", "upgrade"])), Ok(()));
    }

    #[test]
    fn head_only_fields_are_refused_as_trailers() {
        for refused in [
            "semel-tenant",
            "semel_tenant",
            "idempotency-key",
            "content-length",
            "transfer-encoding",
            "host",
            "authorization",
            "cookie",
            "x-api-key",
            "trailer",
            "te",
            "connection",
        ] {
            assert_eq!(check_request_trailers(&map(&[refused])), Err(FieldFault::Trailer), "{refused}");
            assert_eq!(treatment(&name(refused), Section::ResponseTrailer), Treatment::Strip, "{refused}");
        }
        assert_eq!(check_request_trailers(&map(&["content-digest", "x-sum", "etag"])), Ok(()));
    }

    #[test]
    fn an_unreadable_connection_element_does_not_hide_the_elements_after_it() {
        let mut headers = map(&["private", "host", "keep-alive"]);
        headers.insert(CONNECTION, HeaderValue::from_bytes(b"\xff, Private ,Host").expect("it is a value"));
        let found: Vec<&[u8]> = elements(&headers, &CONNECTION).collect();
        assert_eq!(found, [&b"\xff"[..], b"Private", b"Host"]);
        remove_hop_by_hop(&mut headers, Section::RequestHead);
        assert_eq!(headers, map(&["host"]), "no connection may claim it");
    }

    #[test]
    fn each_name_has_one_row() {
        for (number, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..number].iter().all(|other| other.name != row.name), "{}", row.name);
            assert!(!row.name.contains('_') && row.name == row.name.to_ascii_lowercase(), "{}", row.name);
        }
    }

    #[test]
    fn connection_cannot_make_content_or_extension_fields_hop_by_hop() {
        for kept in ["content-later", "x-later", "a_later", "idempotency-key", "host"] {
            assert!(is_end_to_end(&name(kept)), "{kept}");
        }
        for claimed in ["later", "contents", "xlater", "keep-alive"] {
            assert!(!is_end_to_end(&name(claimed)), "{claimed}");
        }
    }

    #[test]
    fn fields_that_a_command_is_read_by_are_kept() {
        for read in ["content-encoding", "content-length", "content-type", "host", "idempotency-key"] {
            assert!(reads_command(&name(read)), "{read}");
        }
        assert!(!reads_command(&name("accept")) && !reads_command(&name("content-language")));
    }
}
