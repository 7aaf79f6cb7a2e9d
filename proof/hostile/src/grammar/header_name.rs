//! Fields in a head: look-alikes, overrides, the gateway's own names, forged identities, duplicates, values beyond ASCII.

use super::spelled;
use crate::case::{Case, Client, Group};
use crate::draft::{Author, Draft, Sort};

const GROUP: Option<Group> = Some(Group::HeaderName);

/// Names that change the meaning of a request, and look-alikes of meaningful names.
const REFUSED: [&str; 16] = [
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    "X-Original-Method",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X_HTTP_Method_Override",
    "Content_Length",
    "Transfer_Encoding",
    "Idempotency_Key",
    "X_Api_Key",
    "Content_Type",
    "Idempotency_key",
    "X_Forwarded_For",
    "X-Forwarded_Proto",
    "X_Mark",
];

/// Names that only the gateway may send.
const STRIPPED: [&str; 10] = [
    "Semel-Tenant",
    "Semel-Caller",
    "Semel-Operation-Id",
    "Semel-Attempt",
    "Semel-Outcome",
    "Semel_Tenant",
    "Semel_Caller",
    "Semel-Operation_Id",
    "Semel-Anything",
    "Idempotency-Replayed",
];

/// Names without a meaning for the gateway.
const PASSED: [&str; 6] = ["X-Other", "X_Other", "X-Tenant", "Prefer", "Cookie", "X-Real-IP"];

pub(super) fn draw(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::PLAIN));
    let draft = author.draft(client, sort);
    let (what, draft) = match author.chance.index(8) {
        0 | 1 => {
            let name = author.chance.pick(&REFUSED);
            let (name, value) = (spelled(author, name), author.chance.pick(&["POST", "/payments", "1", "7"]));
            ("a name that changes the request", draft.with_bytes(&name, value.as_bytes()).refused())
        }
        2 | 3 => {
            let mut draft = draft;
            for _ in 0..=author.chance.index(3) {
                let name = author.chance.pick(&STRIPPED);
                let name = spelled(author, name);
                let value: &[u8] = author.chance.pick(&[&b"acme"[..], b"alice", b"globex", b"1", b"\xff"]);
                draft = draft.with_bytes(&name, value);
            }
            ("a name that is the gateway's", draft)
        }
        4 => {
            let name = author.chance.pick(&PASSED);
            let value: &[u8] =
                author.chance.pick(&[&b"acme"[..], b"caf\xe9", b"\xc3\xa9", b"a\tb", b"\xe2\x80\xa8"]);
            ("a name without a meaning", draft.with_bytes(name.as_bytes(), value))
        }
        5 => duplicate(author, client),
        6 => connection(author, draft),
        _ => credentials(author, client),
    };
    if author.chance.percent(40) && !has_connection(&draft) {
        return draft.alone_over_http2(GROUP, what);
    }
    let is_refused = draft.ask.expectation != crate::case::Expectation::Accepted;
    let case = draft.alone(GROUP, what);
    if is_refused { case.then_half_closed() } else { case }
}

fn has_connection(draft: &Draft) -> bool {
    draft.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"connection"))
}

/// Draws a repeated field that may occur only once.
fn duplicate(author: &mut Author<'_>, client: Client) -> (&'static str, Draft) {
    let sort = author.chance.pick(&Sort::COMMANDS);
    let draft = author.draft(client, sort);
    let draft = match author.chance.index(5) {
        0 => draft.clone().with("Idempotency-Key", draft.ask.key.as_deref().unwrap_or_default()),
        1 => draft.with("Idempotency-Key", "another-key-of-this-request"),
        2 => draft.with("Host", "lab").with("Host", "lab"),
        3 => draft.with("X-Other", "1").with("X_Other", "1"),
        _ => draft.without("Idempotency-Key").with("Idempotency-Key", ""),
    };
    ("a field that is there twice", draft.refused())
}

/// Draws a `Connection` that names a field, which it mostly may not remove.
fn connection(author: &mut Author<'_>, draft: Draft) -> (&'static str, Draft) {
    let (value, is_refused): (&[u8], bool) = author.chance.pick(&[
        (b"Idempotency-Key", true),
        (b"close, Authorization", true),
        (b"X-Api-Key", true),
        (b"X-Mark", true),
        (b"Host", true),
        (b"Semel-Tenant", true),
        (b"Content-Length", true),
        (b"\xff", true),
        (b"a b", true),
        (b"keep-alive", false),
        (b"private", false),
    ]);
    let draft = draft.with("Private", "1").with_bytes(b"Connection", value);
    ("a connection that names a field", if is_refused { draft.refused() } else { draft })
}

/// Draws credentials that prove no identity, or two.
fn credentials(author: &mut Author<'_>, client: Client) -> (&'static str, Draft) {
    let sort = author.chance.pick(&Sort::COMMANDS);
    // A client that shows only another's key is that other client.
    let client = if client == Client::Guest || client == Client::Bob { Client::Alice } else { client };
    let (own, other) = (author.key_of(client), author.key_of(Client::Bob));
    let bare = author.draft(client, sort).without("Authorization").without("X-Api-Key").refused();
    let draft = match author.chance.index(9) {
        0 => bare.with("Authorization", &format!("Bearer {own}")).with("X-Api-Key", other),
        1 => bare.with("X-Api-Key", other).with("X-Api-Key", own),
        2 => bare.with_bytes(b"Authorization", &[b"Bearer ", other.as_bytes(), b"\xff"].concat()),
        3 => bare.with("Authorization", &format!("Bearer {}", other.trim_end_matches(char::is_alphanumeric))),
        4 => bare.with("Authorization", "Bearer semel_0000000000000000000000000000000000000000"),
        5 => bare.with("Authorization", &format!("Basic {other}")),
        6 => bare.with("Authorization", &format!("Bearer {}x", other)),
        7 => bare.with("X-Tenant", "acme").with("X-Caller", "alice"),
        _ => bare.with("Semel-Tenant", "acme").with("Semel-Caller", "alice"),
    };
    ("credentials that prove nothing", draft)
}
