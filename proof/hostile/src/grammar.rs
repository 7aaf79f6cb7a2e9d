//! Grammar of the cases: one module for each group, each of which draws a case.

mod framing;
mod header_name;
mod http2;
mod path;
mod surplus;
mod trailer;
mod upgrade;

use crate::case::{Case, Client, Group};
use crate::draft::{Author, Sort};

/// Nonce of every handshake (RFC 6455, section 1.3), and its answer.
pub(crate) const WEBSOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub(crate) const WEBSOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Draws a case of a group.
pub(crate) fn draw(author: &mut Author<'_>, group: Group) -> Case {
    match group {
        Group::Framing => framing::draw(author),
        Group::Upgrade => upgrade::draw(author),
        Group::Path => path::draw(author),
        Group::HeaderName => header_name::draw(author),
        Group::Trailer => trailer::draw(author),
        Group::Http2 => http2::draw(author),
        Group::Surplus => surplus::draw(author),
    }
}

/// Draws a plain request, which shows that no earlier case changed the responses of others.
pub(crate) fn probe(author: &mut Author<'_>, client: Client, is_http2: bool) -> Case {
    let sort = match client {
        Client::Guest => author.chance.pick(&[Sort::Read, Sort::Store]),
        _ => author.chance.pick(&Sort::PLAIN),
    };
    let draft = author.draft(client, sort);
    if draft.ask.is_command {
        author.commands.push(draft.clone());
    }
    if is_http2 { draft.alone_over_http2(None, "probe") } else { draft.alone(None, "probe") }
}

/// Draws a retry of a command of this scene, or another caller's command under the same key.
pub(crate) fn retry(author: &mut Author<'_>, is_http2: bool) -> Option<Case> {
    let at = author.chance.index(author.commands.len());
    let first = author.commands.get(at)?.clone();
    let draft = if author.chance.percent(60) {
        // A concurrent retry may be told to come back.
        if author.is_alone { first } else { first.either() }
    } else {
        let others: Vec<Client> =
            Client::ALL[..3].iter().filter(|other| **other != first.ask.client).copied().collect();
        let sort = author.chance.pick(&Sort::COMMANDS);
        let client = author.chance.pick(&others);
        let draft = author.draft(client, sort).without("Idempotency-Key");
        let key = first.ask.key.unwrap_or_default();
        let mut draft = draft.with("Idempotency-Key", &key);
        draft.ask.key = Some(key);
        // A third command under this key may be the second of its caller, with another payload.
        draft.either()
    };
    Some(if is_http2 { draft.alone_over_http2(None, "retry") } else { draft.alone(None, "retry") })
}

/// Spells a name with letters in either case.
fn spelled(author: &mut Author<'_>, name: &str) -> Vec<u8> {
    let how = author.chance.index(4);
    let letter = |letter: char, upper: bool| {
        if upper { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
    };
    let text: String = match how {
        0 => name.to_owned(),
        1 => name.to_ascii_lowercase(),
        2 => name.to_ascii_uppercase(),
        _ => name.chars().map(|each| letter(each, author.chance.percent(50))).collect(),
    };
    text.into_bytes()
}
