//! Comparison of a request at the upstream with the request that was sent.

use semel_fuzz::http1::Message;

use crate::case::Ask;
use crate::draft::Credentials;

/// Fields that only the gateway adds, once to every command.
const NAMES: [&str; 4] = ["semel-operation-id", "semel-attempt", "semel-tenant", "semel-caller"];

/// Fields that never reach an upstream.
const NEVER: [&str; 10] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-method",
    "x-original-url",
    "x-rewrite-url",
    "http2-settings",
    "idempotency-replayed",
    "expect",
    "keep-alive",
];

/// Names that some servers read with hyphens for underscores.
const LOOK_ALIKES: [&str; 6] =
    ["content_length", "transfer_encoding", "idempotency_key", "content_type", "x_api_key", "x_mark"];

/// Returns the mark in the query of a request, or in its field.
pub(crate) fn mark(request: &Message) -> Option<String> {
    mark_in(&request.start[1])
        .or_else(|| request.values("x-mark").first().map(|mark| String::from_utf8_lossy(mark).into_owned()))
}

/// Returns the first mark in some bytes.
pub(crate) fn mark_in(bytes: &[u8]) -> Option<String> {
    let at = bytes.windows(4).position(|window| window == b"?m=m")? + 3;
    let end = bytes[at..].iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-');
    let end = end.map_or(bytes.len(), |end| at + end);
    Some(String::from_utf8_lossy(&bytes[at..end]).into_owned())
}

/// Returns the tenant and the caller that a request names.
pub(crate) fn identity(request: &Message) -> (String, String) {
    let text = |name: &str| match &request.values(name)[..] {
        [] => "-".into(),
        [one] => String::from_utf8_lossy(one).into_owned(),
        _ => "several".into(),
    };
    (text("semel-tenant"), text("semel-caller"))
}

/// Returns true if a careless router takes this for a path that needs a caller.
fn is_protected(method: &[u8], target: &[u8]) -> bool {
    let target = String::from_utf8_lossy(target);
    let path = generous(target.split('?').next().unwrap_or_default());
    match method {
        b"POST" | b"PATCH" => true,
        b"PUT" => path.starts_with("/payments/"),
        b"DELETE" => path.starts_with("/orders/"),
        _ => false,
    }
}

/// Returns the path as seen by a router that decodes twice, resolves dots, drops parameters and empty segments, and
/// ignores case.
fn generous(path: &str) -> String {
    let decoded = decoded(&decoded(path));
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split(['/', '\\']) {
        match segment.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/")).to_lowercase()
}

fn decoded(path: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let [first, after @ ..] = rest {
        let escape = after.get(..2).filter(|_| *first == b'%').and_then(|digits| str::from_utf8(digits).ok());
        match escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns all differences between a request at the upstream and the sent, proven one.
pub(crate) fn faults(ask: &Ask, request: &Message, credentials: &Credentials) -> Vec<String> {
    let [method, target, _] = &request.start;
    let mut faults = Vec::new();
    if ask.expectation == crate::case::Expectation::Refused {
        faults.push("it must be refused".to_owned());
    }
    if *method != ask.method.as_bytes() || *target != ask.target.as_bytes() || request.body != ask.body {
        faults.push(format!("it asks for something else than {} {}", ask.method, ask.target));
    }
    identity_faults(ask, request, &mut faults);
    field_faults(ask, request, credentials, &mut faults);
    faults
}

fn identity_faults(ask: &Ask, request: &Message, faults: &mut Vec<String>) {
    let lines = NAMES.map(|name| request.values(name).len());
    let (tenant, caller) = identity(request);
    if ask.is_command {
        let is_proven = ask.client.names() == Some((&tenant, &caller));
        if lines != [1; 4] || !is_proven {
            faults.push(format!("it is of {tenant}/{caller}, and {:?} sent it", ask.client));
        }
        let keys = request.values("idempotency-key");
        if keys.len() != 1 || Some(keys[0]) != ask.key.as_deref().map(str::as_bytes) {
            faults.push("its key is another one".to_owned());
        }
    } else if lines != [0; 4] {
        faults.push(format!("it names {tenant}/{caller}, and nothing has proven that"));
    }
    if is_protected(&request.start[0], &request.start[1]) && lines != [1; 4] {
        faults.push("it walked around a rule".to_owned());
    }
}

fn field_faults(ask: &Ask, request: &Message, credentials: &Credentials, faults: &mut Vec<String>) {
    for (name, value) in request.fields.iter().chain(&request.trailers) {
        let name = String::from_utf8_lossy(name);
        let is_given = NAMES.contains(&&*name);
        let is_look_alike = LOOK_ALIKES.contains(&&*name) || name.replace('_', "-").starts_with("semel-");
        if NEVER.contains(&&*name) || (is_look_alike && !is_given) {
            faults.push(format!("it has {name}"));
        }
        if credentials.0.iter().any(|secret| holds(value, secret.as_bytes())) {
            faults.push(format!("it has an API key in {name}"));
        }
        if name == "upgrade" && !(ask.may_upgrade && value.eq_ignore_ascii_case(b"websocket")) {
            faults.push("it asks to switch protocols".to_owned());
        }
    }
    let is_plain = |name: &[u8]| name == b"x-sum" || name == b"x-first";
    if let Some((name, _)) = request.trailers.iter().find(|(name, _)| !is_plain(name)) {
        faults.push(format!("it has the trailer {}", name.escape_ascii()));
    }
    if request.values("host").len() != 1 {
        faults.push("it does not name one host".to_owned());
    }
    if request.values("x-mark") != [ask.mark.as_bytes()] {
        faults.push("its mark was changed".to_owned());
    }
}

fn holds(value: &[u8], part: &[u8]) -> bool {
    value.windows(part.len()).any(|window| window == part)
}
