//! Trailer fields, over HTTP/1 and HTTP/2.

use super::spelled;
use crate::case::{Case, Group};
use crate::draft::{Author, Draft, Sort, http1, http2};
use crate::frames;

const GROUP: Option<Group> = Some(Group::Trailer);

/// Names that belong into a head, or that a client may not send.
const REFUSED: [&str; 26] = [
    "Authorization",
    "X-Api-Key",
    "Idempotency-Key",
    "Idempotency_Key",
    "Semel-Tenant",
    "Semel-Caller",
    "Semel-Operation-Id",
    "Semel_Tenant",
    "Content-Length",
    "Content_Length",
    "Transfer-Encoding",
    "Content-Type",
    "Content-Encoding",
    "Host",
    "Connection",
    "Upgrade",
    "TE",
    "Expect",
    "Cookie",
    "X-HTTP-Method-Override",
    "X-Rewrite-URL",
    "Idempotency-Replayed",
    "Trailer",
    "Forwarded",
    "X-Forwarded-For",
    "Cache-Control",
];

pub(super) fn draw(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::WITH_BODY));
    let sort = if author.chance.percent(15) { Sort::Read } else { sort };
    let draft = author.draft(client, sort);
    let is_refused = sort == Sort::Read || author.chance.percent(65);
    let (name, value): (Vec<u8>, Vec<u8>) = match is_refused && author.chance.percent(90) {
        true => {
            let name = author.chance.pick(&REFUSED);
            let value = author.chance.pick(&["acme", "alice", "5", "chunked", "lab", "semel_1"]);
            (spelled(author, name), value.into())
        }
        // An invalid name, where it must be refused.
        false if is_refused => (b"X Sum".to_vec(), b"7".to_vec()),
        false => (spelled(author, "X-Sum"), b"7".to_vec()),
    };
    let draft = if is_refused { draft.refused() } else { draft };
    let what = if is_refused { "a trailer that belongs into a head" } else { "a trailer" };
    if author.chance.percent(45) {
        return over_http2(draft, &name, &value, what);
    }
    let lines = [b"X-First: 1\r\n", &name[..], b": ", &value, b"\r\n"].concat();
    let lines = if author.chance.percent(50) { lines[12..].to_vec() } else { lines };
    let bytes = draft.chunked(&mut author.chance, &lines);
    let case = http1(GROUP, what, vec![draft], bytes);
    let case = if author.chance.percent(30) { case.in_pieces(&mut author.chance) } else { case };
    if is_refused { case.then_half_closed() } else { case }
}

fn over_http2(draft: Draft, name: &[u8], value: &[u8], what: &'static str) -> Case {
    let fields = [(name.to_ascii_lowercase(), value.to_vec())];
    let mut step = vec![frames::head(0, &draft.fields_over_http2(), false)];
    if !draft.ask.body.is_empty() {
        step.push(frames::data(0, &draft.ask.body, false));
    }
    step.push(frames::head(0, &fields, true));
    http2(GROUP, what, vec![draft], vec![step])
}
