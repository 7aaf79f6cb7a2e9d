//! Fuzz target of the listener: raw bytes on one connection to a real gateway, before a real upstream that counts.
//!
//! The input is sent by the client, with [`NONCE`] replaced by a new text each time. If it begins with a zero byte,
//! each byte after it stands for a piece of nearly valid HTTP/1 (`pieces.rs`). HTTP/2 has a target of its own
//! (`http2`).

mod lab;
mod pieces;

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use semel_core::KeyRules;

use self::lab::{AsksHead, Conversation, Lab, Seen};
use crate::http1::{self, Kind, Message, Read};

/// Placeholder that becomes another text for each input, so that its keys are new.
pub const NONCE: &str = "nonce-00000000";

/// Maximum length of an input: enough for a few requests.
const MAX_INPUT: usize = 16 * 1024;
/// Maximum number of inputs of one gateway, which bounds its memory.
const INPUTS: usize = 20_000;

/// Gateway that gets the inputs, one after the other, and the commands it has forwarded.
#[derive(Default)]
struct Front {
    lab: Option<Lab>,
    inputs: usize,
    executed: HashSet<Command>,
}

/// Method, path and key of a command, which reaches the upstream once.
type Command = (Vec<u8>, Vec<u8>, String);

static FRONT: LazyLock<Mutex<Front>> = LazyLock::new(Mutex::default);

/// Checks that the upstream sees only requests that were sent: unchanged, in order, and each command once.
pub fn check(input: &[u8]) {
    // A failed check in another test does not affect this one.
    let mut front = FRONT.lock().unwrap_or_else(PoisonError::into_inner);
    if front.inputs.is_multiple_of(INPUTS) {
        *front = Front { lab: Some(Lab::start()), ..Front::default() };
    }
    front.inputs += 1;
    let bytes = bytes(input, front.inputs);
    if bytes.starts_with(b"PRI") || bytes.len() > MAX_INPUT {
        return;
    }
    let (sent, rest) = requests(&bytes);
    let asks_head = AsksHead {
        whole: sent.iter().map(|request| request.start[0] == b"HEAD").collect(),
        rest: rest.strip_prefix(b"\r\n").unwrap_or(rest).starts_with(b"HEAD "),
    };
    let lab = front.lab.as_mut().expect("it was started above");
    let Conversation { answers, is_broken, seen } = lab.converse(&bytes, &asks_head);
    let seen: Vec<Message> = seen.iter().filter_map(|seen| well_formed(seen, &bytes)).collect();
    check_order(&sent, &seen, &bytes);
    seen.iter().for_each(check_named);
    for command in seen.iter().filter_map(command) {
        let shown = format!("{command:?}");
        assert!(front.executed.insert(command), "{shown} reached the upstream twice");
    }
    check_answers(&answers, &seen, is_broken);
}

/// Returns the bytes to send for an input.
fn bytes(input: &[u8], number: usize) -> Vec<u8> {
    let mut bytes = match input {
        [0, choices @ ..] => pieces::put_together(choices),
        _ => input.to_vec(),
    };
    let fresh = format!("nonce-{number:08}");
    while let Some(at) = bytes.windows(NONCE.len()).position(|window| window == NONCE.as_bytes()) {
        bytes[at..at + NONCE.len()].copy_from_slice(fresh.as_bytes());
    }
    bytes
}

/// Returns the complete, unambiguous requests at the beginning of these bytes, and the remaining bytes.
fn requests(bytes: &[u8]) -> (Vec<Message>, &[u8]) {
    let (mut requests, mut at) = (Vec::new(), 0);
    while let Read::Whole(request) = http1::read(&bytes[at..], Kind::Request) {
        at += request.length;
        requests.push(request);
    }
    (requests, &bytes[at..])
}

/// Checks that one connection of the upstream carries one request and nothing else; or the beginning of one, if the
/// client disconnected within it. Returns the complete request.
fn well_formed(seen: &Seen, sent: &[u8]) -> Option<Message> {
    match http1::read(&seen.bytes, Kind::Request) {
        Read::Whole(request) => {
            assert_eq!(request.length, seen.bytes.len(), "something followed: {}", seen.bytes.escape_ascii());
            assert_eq!(request.values("host").len(), 1, "{}", seen.bytes.escape_ascii());
            Some(request)
        }
        Read::Part => {
            let is_command = [&b"POST "[..], b"PATCH "].iter().any(|method| seen.bytes.starts_with(method));
            assert!(!is_command, "half a command was passed on: {}", seen.bytes.escape_ascii());
            None
        }
        Read::Not => panic!("{} became {}", sent.escape_ascii(), seen.bytes.escape_ascii()),
    }
}

/// Returns true for a method that is surely a command, false for one that is surely none, `None` for any other.
fn is_surely(request: &Message) -> Option<bool> {
    match &request.start[0][..] {
        b"POST" | b"PATCH" => Some(true),
        b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE" => Some(false),
        _ => None,
    }
}

fn is_command(request: &Message) -> bool {
    !request.values("semel-operation-id").is_empty()
}

/// Checks that each request at the upstream was sent, and in this order.
fn check_order(sent: &[Message], seen: &[Message], bytes: &[u8]) {
    let mut rest = sent.iter();
    for request in seen {
        let asked = |sent: &&Message| {
            sent.start[0] == request.start[0]
                && path_of(&sent.start[1]) == request.start[1]
                && sent.body == request.body
                && sent.values("idempotency-key") == request.values("idempotency-key")
        };
        assert!(rest.any(|sent| asked(&sent)), "{request:?} was not sent by {}", bytes.escape_ascii());
    }
}

/// Returns the path of a target that may name a host as well.
fn path_of(target: &[u8]) -> Vec<u8> {
    let Some(scheme) = target.windows(3).position(|window| window == b"://").filter(|_| target[0] != b'/')
    else {
        return target.to_vec();
    };
    let rest = &target[scheme + 3..];
    let path = rest.iter().position(|byte| b"/?".contains(byte)).map_or(&b""[..], |at| &rest[at..]);
    if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() }
}

/// Checks that a command has one key and the fields that only the gateway adds; any other request has none of these.
fn check_named(request: &Message) {
    const GIVEN: [&str; 4] = ["semel-operation-id", "semel-attempt", "semel-tenant", "semel-caller"];
    let lines = GIVEN.map(|name| request.values(name).len());
    assert!(is_surely(request).is_none_or(|surely| surely == is_command(request)), "{request:?}");
    if is_command(request) {
        assert_eq!(lines, [1; 4], "{request:?}");
        assert_eq!(request.values("semel-tenant"), [b"local"]);
        assert_eq!(request.values("idempotency-key").len(), 1, "{request:?}");
    } else {
        assert_eq!(lines, [0; 4], "{request:?}");
    }
    assert!(request.values("idempotency-replayed").is_empty(), "{request:?}");
}

/// Returns the identity of a request, if it is a command.
fn command(request: &Message) -> Option<Command> {
    let [method, target, _] = &request.start;
    is_command(request).then_some(())?;
    let key = KeyRules::default().parse(request.values("idempotency-key"));
    let key = key.expect("what was passed on has a good key").expect("it has one");
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    Some((method.clone(), path.to_vec(), key.as_str().to_owned()))
}

/// Checks that responses are complete and as many as the upstream gave, each once but for replays.
fn check_answers(answers: &[Message], seen: &[Message], is_broken: bool) {
    let numbers: Vec<&[u8]> = answers
        .iter()
        .filter(|answer| answer.values("idempotency-replayed").is_empty())
        .flat_map(|answer| answer.values(lab::NUMBER))
        .collect();
    let distinct: HashSet<&&[u8]> = numbers.iter().collect();
    assert_eq!(distinct.len(), numbers.len(), "an answer was given twice: {answers:?}");
    let answered = seen.iter().filter(|request| !lab::is_dropped(request)).count();
    assert!(numbers.len() <= answered, "{answers:?} to {seen:?}");
    assert!(is_broken || numbers.len() == answered, "{answers:?} to {seen:?}");
    for answer in answers.iter().filter(|answer| !answer.body.is_empty()) {
        for number in answer.values(lab::NUMBER) {
            assert_eq!(answer.body, lab::body(number), "{answer:?}");
        }
    }
}
