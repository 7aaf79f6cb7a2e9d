//! Requests to switch protocols, valid, broken and in disguise, before upstreams that switch to anything.

use crate::case::{After, Ask, Case, Client, Ending, Group, Wire};
use crate::draft::{Author, Draft, Sort, http1};
use crate::grammar::WEBSOCKET_KEY;
use crate::script::{Accept, Script};

const GROUP: Option<Group> = Some(Group::Upgrade);

/// Values of `Upgrade` that are not a list of protocol names.
const DISGUISES: [&[u8]; 10] = [
    b"h2c\xff",
    b"h2c, \xff",
    b"h2c;q=1",
    b"\xffh2c",
    b"websocket\xff",
    b"websocket, h2c\x80",
    b"HTTP/2.0",
    b"h2c/",
    b"",
    b"h2c websocket",
];

/// Valid lists of protocol names without an allowed protocol.
const OTHERS: [&[u8]; 6] = [b"h2c", b"H2C", b"websocket, h2c", b"echo", b"TLS", b"h2c, websocket"];

pub(super) fn draw(author: &mut Author<'_>) -> Case {
    let client = author.client();
    let (what, draft) = match author.chance.index(8) {
        0..=2 => handshake(author),
        3 => broken_handshake(author),
        4 | 5 => {
            let (sort, value) =
                (author.chance.pick(&[Sort::Read, Sort::Create]), author.chance.pick(&DISGUISES));
            let draft = settings(author, client, sort).with_bytes(b"Upgrade", value);
            ("an upgrade in disguise", draft.refused())
        }
        6 => {
            let value = author.chance.pick(&OTHERS);
            let draft = settings(author, client, Sort::Read).with_bytes(b"Upgrade", value);
            ("an upgrade to another protocol", draft)
        }
        _ => {
            let draft = author.draft(client, Sort::Read).with("Upgrade", "websocket");
            ("an upgrade that the connection does not name", draft)
        }
    };
    let script = switch(author);
    let is_right = script == Script::Switch { protocol: "websocket", accept: Accept::Right };
    let draft = if draft.ask.may_upgrade && is_right && author.speaks_http1 {
        Draft { ask: Ask { script, ..draft.ask }, ..draft }
    } else {
        draft.answered(script)
    };
    // The bytes behind a handshake are a forged command, which no client may send, in the tunnel and out of it.
    let forged = author.forged();
    let after = if author.chance.percent(70) { After::Response } else { After::Nothing };
    let pieces = vec![(After::Nothing, draft.whole()), (after, forged.whole())];
    let mut case = http1(GROUP, what, vec![draft, forged], Vec::new());
    case.wire = Wire::Http1 { pieces, ending: Ending::HalfClose };
    case
}

fn switch(author: &mut Author<'_>) -> Script {
    match author.chance.index(5) {
        0 => Script::Plain,
        1 | 2 => Script::Switch { protocol: "websocket", accept: Accept::Right },
        3 => Script::Switch {
            protocol: "websocket",
            accept: author.chance.pick(&[Accept::Wrong, Accept::Missing]),
        },
        _ => Script::Switch {
            protocol: author.chance.pick(&["h2c", "h2c, websocket", ""]),
            accept: Accept::Right,
        },
    }
}

/// Makes a request with all fields that switch to HTTP/2 in the clear.
fn settings(author: &mut Author<'_>, client: Client, sort: Sort) -> Draft {
    let draft = author.draft(client, sort);
    let connection =
        author.chance.pick(&["Upgrade, HTTP2-Settings", "upgrade", "HTTP2-Settings, Upgrade, keep-alive"]);
    draft.with("Connection", connection).with("HTTP2-Settings", "AAMAAABkAAQAoAAA")
}

fn handshake(author: &mut Author<'_>) -> (&'static str, Draft) {
    let client = author.client();
    let mut draft = author.draft(client, Sort::Read);
    draft.ask.may_upgrade = true;
    let connection = author.chance.pick(&["Upgrade", "upgrade", "keep-alive, Upgrade"]);
    let protocol = author.chance.pick(&["websocket", "WebSocket", "WEBSOCKET"]);
    let draft = draft.with("Connection", connection).with("Upgrade", protocol);
    let draft = draft.with("Sec-WebSocket-Version", "13").with("Sec-WebSocket-Key", WEBSOCKET_KEY);
    ("a WebSocket handshake", draft)
}

fn broken_handshake(author: &mut Author<'_>) -> (&'static str, Draft) {
    let (_, mut draft) = handshake(author);
    draft.ask.may_upgrade = false;
    let draft = match author.chance.index(7) {
        0 => draft.without("Sec-WebSocket-Version"),
        1 => draft.without("Sec-WebSocket-Version").with("Sec-WebSocket-Version", "8"),
        2 => draft.without("Sec-WebSocket-Key"),
        3 => draft.without("Sec-WebSocket-Key").with("Sec-WebSocket-Key", "AAAA"),
        4 => draft.with("Sec-WebSocket-Key", WEBSOCKET_KEY),
        5 => draft.with("Sec-WebSocket-Version", "13"),
        _ => {
            draft.ask.method = "PUT".into();
            draft
        }
    };
    ("a WebSocket handshake that is not whole", draft.refused())
}
