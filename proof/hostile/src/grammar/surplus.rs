//! An upstream that sends more, less, earlier or later than its response.

use crate::case::{After, Case, Ending, Group, Wire};
use crate::draft::{Author, Sort, http1};
use crate::script::{Extra, Script};

const GROUP: Option<Group> = Some(Group::Surplus);

pub(super) fn draw(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::PLAIN));
    let (what, script) = script(author);
    if script == Script::Early {
        return early(author);
    }
    let draft = author.draft(client, sort).answered(script);
    if draft.ask.is_command {
        author.commands.push(draft.clone());
    }
    if author.chance.percent(40) {
        return draft.alone_over_http2(GROUP, what);
    }
    draft.alone(GROUP, what)
}

fn script(author: &mut Author<'_>) -> (&'static str, Script) {
    let extra = author.chance.pick(&Extra::ALL);
    match author.chance.index(16) {
        0 | 1 => ("bytes behind a response", Script::Surplus { extra, in_one: true }),
        2 | 3 => ("bytes in a second write", Script::Surplus { extra, in_one: false }),
        4..=6 if author.is_alone => ("bytes that come late", Script::Late(extra)),
        4..=6 => ("bytes in a second write", Script::Surplus { extra, in_one: false }),
        7 => {
            let statuses = author.chance.pick(&[&[103_u16][..], &[100], &[102, 103, 103], &[103, 100]]);
            ("interim responses", Script::Interim(statuses))
        }
        8 => ("an early answer", Script::Early),
        9 => ("a response in chunks", Script::Chunked),
        10 => ("trailers of a response", Script::Trailers),
        11 => ("a length beside chunks", Script::LengthAndChunks),
        12 => ("two lengths", Script::TwoLengths),
        13 => ("half a response", Script::Half { of_head: author.chance.percent(50) }),
        14 => ("no response", author.chance.pick(&[Script::Drop, Script::Garbage, Script::Fail])),
        _ => ("a response to the end of the connection", Script::ToTheEnd),
    }
}

/// Draws a body in two pieces, the second after the response.
fn early(author: &mut Author<'_>) -> Case {
    let client = author.client();
    let draft = author.draft(client, Sort::Store).answered(Script::Early);
    let whole = draft.whole();
    let cut = whole.len() - 4;
    let after = if author.speaks_http1 { After::Response } else { After::Nothing };
    let pieces = vec![(After::Nothing, whole[..cut].to_vec()), (after, whole[cut..].to_vec())];
    let mut case = http1(GROUP, "an early answer", vec![draft], Vec::new());
    case.wire = Wire::Http1 { pieces, ending: Ending::HalfClose };
    case
}
