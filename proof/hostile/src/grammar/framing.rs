//! Framing of requests over HTTP/1: lengths, chunks, folds, pipelines, truncation, `Expect`.

use crate::case::{After, Case, Ending, Group, Wire};
use crate::draft::{Author, Draft, Sort, http1};

const GROUP: Option<Group> = Some(Group::Framing);

pub(super) fn draw(author: &mut Author<'_>) -> Case {
    let case = match author.chance.index(14) {
        0 => whole(author),
        1 => in_chunks(author),
        2 => length_and_coding(author),
        3 => bad_length(author),
        4 => bad_coding(author),
        5 => bad_chunks(author),
        6 => bad_line(author),
        7 | 8 => pipeline(author),
        9 => half(author),
        10 => expects(author),
        11 => body_on_get(author),
        12 => request_line(author),
        _ => hosts(author),
    };
    if author.chance.percent(30) { case.in_pieces(&mut author.chance) } else { case }
}

fn whole(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::PLAIN));
    let draft = author.draft(client, sort);
    let (head, what) = match author.chance.index(3) {
        0 => (b"\r\n".to_vec(), "an empty line before a request"),
        _ => (Vec::new(), "a whole request"),
    };
    let bytes = [head, draft.whole()].concat();
    http1(GROUP, what, vec![draft], bytes)
}

fn in_chunks(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::WITH_BODY));
    let draft = author.draft(client, sort);
    let bytes = draft.chunked(&mut author.chance, b"");
    http1(GROUP, "a whole request in chunks", vec![draft], bytes)
}

/// Draws a body that two readers end in two places, with a request in the remainder.
fn length_and_coding(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::WITH_BODY));
    let draft = author.draft(client, sort).refused();
    let hidden = author.hidden();
    let rest = hidden.whole();
    let (length, body) = match author.chance.percent(50) {
        // The length ends before the hidden request, and the chunks behind it; or the other way around.
        true => (3, [format!("1\r\nx\r\n{:x}\r\n", rest.len()).as_bytes(), &rest, b"\r\n0\r\n\r\n"].concat()),
        false => (5 + rest.len(), [b"0\r\n\r\n", &rest[..]].concat()),
    };
    let length = if author.chance.percent(30) { 0 } else { length };
    let lines = [format!("Content-Length: {length}\r\n"), "Transfer-Encoding: chunked\r\n".into()];
    let lines = if author.chance.percent(50) { lines.concat() } else { [&*lines[1], &*lines[0]].concat() };
    let bytes = [draft.head(lines.as_bytes()), body].concat();
    http1(GROUP, "a length beside chunks", vec![draft], bytes).hiding(vec![hidden]).then_half_closed()
}

fn bad_length(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::WITH_BODY));
    let draft = author.draft(client, sort).refused();
    let hidden = author.hidden();
    let (length, rest) = (draft.ask.body.len(), hidden.whole());
    let whole = length + rest.len();
    let lines = match author.chance.index(14) {
        0 => format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"),
        1 => format!("Content-Length: {length}\r\nContent-Length: {whole}\r\n"),
        2 => format!("Content-Length: {whole}\r\nContent-Length: {length}\r\n"),
        3 => format!("Content-Length: {length}, {length}\r\n"),
        4 => format!("Content-Length: +{length}\r\n"),
        5 => format!("Content-Length: 0{length}\r\n"),
        6 => format!("Content-Length: {length}x\r\n"),
        7 => format!("Content-Length: 0x{length:x}\r\n"),
        8 => "Content-Length: -1\r\n".into(),
        9 => "Content-Length: \r\n".into(),
        10 => "Content-Length: 18446744073709551621\r\n".into(),
        11 => format!("Content-Length : {length}\r\n"),
        12 => format!("Content_Length: {length}\r\n"),
        _ => format!("Content-Length:\x0b{length}\r\n"),
    };
    let bytes = [draft.head(lines.as_bytes()), draft.ask.body.clone(), rest].concat();
    http1(GROUP, "a length that is none", vec![draft], bytes).hiding(vec![hidden]).then_half_closed()
}

fn bad_coding(author: &mut Author<'_>) -> Case {
    const CODINGS: [&[u8]; 14] = [
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: chunked, chunked\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding: chunked;q=1\r\n",
        b"Transfer-Encoding: \"chunked\"\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Transfer-Encoding: chunked\xff\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding:\r\n chunked\r\n",
        b"Transfer_Encoding: chunked\r\n",
    ];
    let (client, sort) = (author.client(), author.chance.pick(&Sort::WITH_BODY));
    let draft = author.draft(client, sort).refused();
    let hidden = author.hidden();
    let coding = author.chance.pick(&CODINGS);
    let bytes = [draft.head(coding), b"0\r\n\r\n".to_vec(), hidden.whole()].concat();
    http1(GROUP, "a coding that is not chunked", vec![draft], bytes).hiding(vec![hidden]).then_half_closed()
}

fn bad_chunks(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::WITH_BODY));
    let draft = author.draft(client, sort).refused();
    let hidden = author.hidden();
    let rest = hidden.whole();
    let length = rest.len();
    let body: Vec<u8> = match author.chance.index(12) {
        0 => [b"5\nhello\n0\n\n", &rest[..]].concat(),
        1 => [b"0x5\r\nhello\r\n0\r\n\r\n", &rest[..]].concat(),
        2 => [b"-1\r\n", &rest[..]].concat(),
        3 => [b"4\r\nhello\r\n0\r\n\r\n", &rest[..]].concat(),
        4 => [b"6\r\nhello\r\n0\r\n\r\n", &rest[..]].concat(),
        5 => [b"5\r\nhelloXX0\r\n\r\n", &rest[..]].concat(),
        6 => [b"ffffffffffffffff1\r\nhello\r\n0\r\n\r\n", &rest[..]].concat(),
        7 => [b"\r\nhello\r\n0\r\n\r\n", &rest[..]].concat(),
        8 => [b"5\r\nhello\r\n0\r\nX: 1\n\r\n", &rest[..]].concat(),
        9 => [b"5\r\nhello\r\n0\r\n", &rest[..]].concat(),
        10 => [format!("5;\n{length:x}\r\nhello\r\n").as_bytes(), &rest, b"\r\n0\r\n\r\n"].concat(),
        _ => [b"5;a=\"\x00\"\r\nhello\r\n0\r\n\r\n", &rest[..]].concat(),
    };
    let bytes = [draft.head(b"Transfer-Encoding: chunked\r\n"), body].concat();
    http1(GROUP, "chunks that are none", vec![draft], bytes).hiding(vec![hidden]).then_half_closed()
}

fn bad_line(author: &mut Author<'_>) -> Case {
    const LINES: [&[u8]; 12] = [
        b"X-Fold: 1\r\n 2\r\n",
        b"X-Fold: 1\r\n\tTransfer-Encoding: chunked\r\n",
        b" X-First: 1\r\n",
        b"X-Line: 1\n",
        b"X-Line: 1\nContent-Length: 0\r\n",
        b"X-Return: 1\r2\r\n",
        b"X-Null: \x00\r\n",
        b"X-Control: \x01\r\n",
        b"X-Nothing\r\n",
        b": empty\r\n",
        b"X Space: 1\r\n",
        b"X-\xc3\xa9: 1\r\n",
    ];
    let (client, sort) = (author.client(), author.chance.pick(&Sort::PLAIN));
    let draft = author.draft(client, sort).refused();
    let line = author.chance.pick(&LINES);
    let length = format!("Content-Length: {}\r\n", draft.ask.body.len());
    let length = if draft.ask.body.is_empty() { "" } else { &length };
    let bytes = [draft.head(&[line, length.as_bytes()].concat()), draft.ask.body.clone()].concat();
    http1(GROUP, "a line that is none", vec![draft], bytes).then_half_closed()
}

/// Draws a pipeline of several clients' requests, perhaps with one that ends the connection.
fn pipeline(author: &mut Author<'_>) -> Case {
    let (count, spoils) = (2 + author.chance.index(3), author.chance.percent(30));
    let spoiled = if spoils { author.chance.index(count) } else { count };
    let (mut drafts, mut bytes): (Vec<Draft>, Vec<u8>) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (client, sort) = (author.client(), author.chance.pick(&Sort::PLAIN));
        let draft = author.draft(client, sort);
        if number == spoiled {
            let lines = b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n";
            bytes.extend([draft.head(lines), b"0\r\n\r\n".to_vec()].concat());
        } else if author.chance.percent(30) && !draft.ask.body.is_empty() {
            bytes.extend(draft.chunked(&mut author.chance, b""));
        } else {
            bytes.extend(draft.whole());
        }
        // Behind a refused head, no byte is read as a request.
        drafts.push(if number >= spoiled { draft.refused() } else { draft });
    }
    let case = http1(GROUP, "a pipeline", drafts, bytes);
    if spoils || author.chance.percent(20) { case.then_half_closed() } else { case }
}

fn half(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::PLAIN));
    let draft = author.draft(client, sort).refused();
    let whole = match draft.ask.body.is_empty() || author.chance.percent(50) {
        true => draft.whole(),
        false => draft.chunked(&mut author.chance, b""),
    };
    let cut = match author.chance.percent(50) {
        true => whole.len() - 1 - author.chance.index(whole.len().min(20)),
        false => author.chance.index(whole.len()),
    };
    let case = http1(GROUP, "half a request", vec![draft], whole[..cut.max(1)].to_vec());
    if author.chance.percent(70) { case.then_half_closed() } else { case.then_left() }
}

fn expects(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::WITH_BODY));
    let draft = author.draft(client, sort);
    let length = format!("Content-Length: {}\r\n", draft.ask.body.len());
    let (lines, draft) = match author.chance.index(5) {
        0 => ("Expect: anything\r\n", draft.either()),
        1 => ("Expect: 100-continue\r\nExpect: 100-continue\r\n", draft.either()),
        _ => ("Expect: 100-continue\r\n", draft),
    };
    let head = draft.head(&[lines.as_bytes(), length.as_bytes()].concat());
    // A server may ignore an unknown expectation, without an interim response.
    let waits = lines.contains("100") && author.chance.percent(60);
    let after = if waits { After::Response } else { After::Nothing };
    let pieces = vec![(After::Nothing, head), (after, draft.ask.body.clone())];
    let mut case = http1(GROUP, "a request that waits to be told to go on", vec![draft], Vec::new());
    case.wire = Wire::Http1 { pieces, ending: Ending::HalfClose };
    case
}

fn body_on_get(author: &mut Author<'_>) -> Case {
    let client = author.client();
    let hidden = author.hidden();
    let rest = hidden.whole();
    let chunks = [format!("{:x}\r\n", rest.len()).as_bytes(), &rest, b"\r\n0\r\n\r\n"].concat();
    let length = format!("Content-Length: {}\r\n", rest.len());
    let draft = author.draft(client, Sort::Read);
    let coding = b"Transfer-Encoding: chunked\r\n";
    match author.chance.index(6) {
        0 => {
            let draft = draft.refused();
            let bytes = [draft.head(length.as_bytes()), rest].concat();
            http1(GROUP, "a GET with a body", vec![draft], bytes).hiding(vec![hidden]).then_half_closed()
        }
        1 => {
            let draft = draft.refused();
            let bytes = [draft.head(coding), chunks].concat();
            let case = http1(GROUP, "a GET with chunks", vec![draft], bytes);
            case.hiding(vec![hidden]).then_half_closed()
        }
        2 => {
            let bytes = draft.head(b"Content-Length: 0\r\n");
            http1(GROUP, "a GET with an empty body", vec![draft], bytes)
        }
        3 => {
            let bytes = [draft.head(coding), b"0\r\n\r\n".to_vec()].concat();
            http1(GROUP, "a GET with an empty body in chunks", vec![draft], bytes)
        }
        _ => {
            let mut draft = author.draft(client, Sort::Search);
            draft.ask.body = rest;
            let bytes = match author.chance.percent(50) {
                true => draft.whole(),
                false => draft.chunked(&mut author.chance, b""),
            };
            http1(GROUP, "a GET that may have a body", vec![draft], bytes).hiding(vec![hidden])
        }
    }
}

fn request_line(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::PLAIN));
    let draft = author.draft(client, sort);
    let bytes = draft.whole();
    let end = bytes.iter().position(|byte| *byte == b'\r').unwrap_or_default();
    let (target, method) = (draft.sent_target(), draft.ask.method.clone().into_bytes());
    let line: Vec<u8> = match author.chance.index(12) {
        0 => {
            let line = [&method[..], b" http://lab", &target, b" HTTP/1.1"].concat();
            let bytes = [&line[..], &bytes[end..]].concat();
            return http1(GROUP, "a target with its host", vec![draft], bytes);
        }
        1 => [&method[..], b" http://other", &target, b" HTTP/1.1"].concat(),
        2 => [&method[..], b" http://user@lab", &target, b" HTTP/1.1"].concat(),
        3 => [&method[..], b" https://lab", &target, b" HTTP/1.1"].concat(),
        4 => [&method[..], b"  ", &target, b" HTTP/1.1"].concat(),
        5 => [&method[..], b"\t", &target, b" HTTP/1.1"].concat(),
        6 => [&method[..], b" ", &target, b"#x HTTP/1.1"].concat(),
        7 => [&method[..], b" ", &target, b" HTTP/1.2"].concat(),
        8 => [&method[..], b" ", &target, b" http/1.1"].concat(),
        9 => [&method[..], b" ", &target, b" HTTP/1.1 HTTP/1.1"].concat(),
        10 => [&b"CONNECT lab:80 HTTP/1.1"[..]].concat(),
        _ => [&method[..], b" ", &target[1..], b" HTTP/1.1"].concat(),
    };
    let bytes = [&line[..], &bytes[end..]].concat();
    http1(GROUP, "a request line that is none", vec![draft.refused()], bytes).then_half_closed()
}

fn hosts(author: &mut Author<'_>) -> Case {
    const HOSTS: [&str; 9] =
        ["", "lab/..", "user@lab", "lab, lab", "lab:x", "la b", "lab\r\nHost: lab", "lab:80:80", "lab#"];
    let (client, sort) = (author.client(), author.chance.pick(&Sort::PLAIN));
    let mut draft = author.draft(client, sort).refused();
    draft.host = author.chance.pick(&HOSTS).into();
    draft.alone(GROUP, "a host that is none").then_half_closed()
}
