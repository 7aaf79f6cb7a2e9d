//! Fuzz target of truncated HTTP/2 messages: frames of a client to a real gateway, and of an upstream behind it.
//!
//! The first byte of an input chooses the request and announced lengths (`plan.rs`). Each byte after it is a step of
//! the request, up to a byte of 255; then of the response. Invariant: a complete message is forwarded; a truncated one
//! is never claimed, executed, stored, or forwarded as complete.

mod lab;
mod naive;
mod plan;

use std::sync::{LazyLock, Mutex, PoisonError};

use self::lab::{Conversation, Ended, Lab};
use self::plan::Plan;

pub use self::lab::Reader;

/// Maximum length of an input: more steps find nothing more.
const MAX_INPUT: usize = 64;
/// Maximum number of inputs of one gateway, which bounds its memory.
const INPUTS: usize = 5_000;

static LAB: LazyLock<Mutex<(usize, Option<Lab>)>> = LazyLock::new(Mutex::default);

/// Checks that both messages of an exchange are taken for complete exactly if they are.
pub fn check(input: &[u8]) {
    if input.len() > MAX_INPUT {
        return;
    }
    // A failed check in another test does not affect this one.
    let mut state = LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let (inputs, lab) = &mut *state;
    if inputs.is_multiple_of(INPUTS) {
        *lab = None;
    }
    *inputs += 1;
    let plan = Plan::of(input);
    let mut fresh = lab.take().unwrap_or_else(|| Lab::start(Reader::Gateway));
    let conversation = fresh.converse(&plan, &format!("cut-somewhere-{inputs:08}"));
    judge(&plan, &conversation);
    // Only a lab whose check has passed is used again.
    *lab = Some(fresh);
}

/// Checks an input with a naive reader in the way, which takes truncated messages for complete. Tests expect a panic.
pub fn check_with(reader: Reader, input: &[u8]) {
    let plan = Plan::of(input);
    let conversation = Lab::start(reader).converse(&plan, "cut-for-a-naive-reader");
    judge(&plan, &conversation);
}

fn judge(plan: &Plan, conversation: &Conversation) {
    let Conversation { seen, answer, retry } = conversation;
    let (request, response) = (&plan.request, &plan.response);
    assert!(seen.len() <= 1, "{plan:?}: it was sent {} times", seen.len());
    for stream in seen {
        let is_whole = stream.ended == Ended::Whole;
        assert!(!is_whole || request.is_whole(), "{plan:?}: half a request was passed on as a whole one");
        assert!(!is_whole || stream.body == request.body, "{plan:?}: another body was passed on");
        assert!(is_whole || !plan.is_command, "{plan:?}: half a command was passed on");
    }
    let is_carried_out = seen.iter().any(|stream| stream.ended == Ended::Whole);
    if request.is_whole() && request.is_left_alone() {
        assert!(is_carried_out, "{plan:?}: a whole request did not arrive");
    }
    if let Some(body) = answer.as_ref().filter(|body| !body.starts_with(b"{")) {
        assert!(is_carried_out && response.is_whole(), "{plan:?}: half a response was given as a whole one");
        assert_eq!(*body, response.body, "{plan:?}");
    }
    if is_carried_out && request.is_left_alone() && response.is_whole() {
        let body = answer.as_ref().map(Vec::as_slice);
        assert_eq!(body, Some(&response.body[..]), "{plan:?}: a whole response did not arrive");
    }
    let Some(retry) = retry else { return };
    let is_unknown = retry.status == 409;
    // After the client has left, the lab may end the upstream's connection before the response is complete.
    let may_be_unknown = is_carried_out && (!response.is_whole() || !request.is_left_alone());
    if is_unknown && may_be_unknown {
        return;
    }
    let body = if is_carried_out { &response.body[..] } else { b"" };
    let told = (retry.status.as_u16(), retry.replayed(), &retry.body[..]);
    assert_eq!(told, (201, is_carried_out, body), "{plan:?}: {retry:?}");
    assert!(!is_carried_out || response.is_whole(), "{plan:?}: half a response was stored");
}
