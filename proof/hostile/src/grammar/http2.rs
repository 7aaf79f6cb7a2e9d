//! HTTP/2 frames: pseudo-fields, hosts, resets, continuations, forbidden fields, ends of connections, windows.

use crate::case::{Case, Client, Ending, Group, RawFrame, Wire};
use crate::draft::{Author, Draft, Sort, http2};
use crate::frames::{self, *};

const GROUP: Option<Group> = Some(Group::Http2);

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn draw(author: &mut Author<'_>) -> Case {
    match author.chance.index(12) {
        0 | 1 => whole(author),
        2 => interleaved(author),
        3 | 4 => fields(author),
        5 => hosts(author),
        6 => lengths(author),
        7 => resets(author),
        8 => leaves(author),
        9 => windows(author),
        10 => broken_frames(author),
        _ => broken_blocks(author),
    }
}

fn draft(author: &mut Author<'_>, sorts: &[Sort]) -> Draft {
    let (client, sort) = (author.client(), author.chance.pick(sorts));
    author.draft(client, sort)
}

/// Splits a valid request into a random number of frames.
fn pieces(author: &mut Author<'_>, draft: &Draft, stream: i32) -> Vec<RawFrame> {
    let block = frames::block(&draft.fields_over_http2());
    let ends = if draft.ask.body.is_empty() { END_STREAM } else { 0 };
    let cuts = author.chance.index(3);
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut rest = &block[..];
    for _ in 0..cuts {
        let (part, left) = rest.split_at(author.chance.index(rest.len()));
        parts.push(part);
        rest = left;
    }
    parts.push(rest);
    let last = parts.len() - 1;
    let mut frames = Vec::new();
    for (number, part) in parts.into_iter().enumerate() {
        let kind = if number == 0 { HEADERS } else { CONTINUATION };
        let ends = if number == 0 { ends } else { 0 };
        frames.push(on(stream, kind, ends | if number == last { END_HEADERS } else { 0 }, part));
    }
    let mut rest = &draft.ask.body[..];
    while !rest.is_empty() {
        let (part, left) = rest.split_at(1 + author.chance.index(rest.len()));
        let ends = if left.is_empty() { END_STREAM } else { 0 };
        frames.push(match author.chance.percent(30) {
            true => on(stream, DATA, PADDED | ends, &[&[3][..], part, &[0; 3]].concat()),
            false => on(stream, DATA, ends, part),
        });
        rest = left;
    }
    frames
}

fn whole(author: &mut Author<'_>) -> Case {
    let draft = draft(author, &Sort::PLAIN);
    let mut step = pieces(author, &draft, 0);
    match author.chance.index(4) {
        0 => step.insert(0, of_connection(0xbe, 0, b"unknown")),
        1 => step.insert(0, of_connection(PING, 0, &[1; 8])),
        2 => step.insert(0, on(0, PRIORITY, 0, &[0, 0, 0, 0, 5])),
        _ => {}
    }
    http2(GROUP, "a request in many frames", vec![draft], vec![step])
}

/// Draws requests of several clients, interleaved frame by frame on one connection.
fn interleaved(author: &mut Author<'_>) -> Case {
    let drafts: Vec<Draft> = (0..2 + author.chance.index(3)).map(|_| draft(author, &Sort::PLAIN)).collect();
    let (mut heads, mut bodies) = (Vec::new(), Vec::new());
    for (number, draft) in drafts.iter().enumerate() {
        let stream = number as i32;
        heads.push(frames::head(stream, &draft.fields_over_http2(), draft.ask.body.is_empty()));
        if !draft.ask.body.is_empty() {
            bodies.insert(author.chance.index(bodies.len() + 1), frames::data(stream, &draft.ask.body, true));
        }
    }
    http2(GROUP, "requests that share a connection", drafts, vec![heads, bodies])
}

fn with_fields(draft: &Draft, fields: &Fields) -> Vec<RawFrame> {
    let head = frames::head(0, fields, draft.ask.body.is_empty());
    let body = (!draft.ask.body.is_empty()).then(|| frames::data(0, &draft.ask.body, true));
    std::iter::once(head).chain(body).collect()
}

/// Draws fields that no request may have.
fn fields(author: &mut Author<'_>) -> Case {
    let draft = draft(author, &Sort::PLAIN).refused();
    let mut fields = draft.fields_over_http2();
    let value = |text: &[u8]| text.to_vec();
    let forbidden: [(&[u8], &[u8]); 20] = [
        (b"connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-connection", b"close"),
        (b"te", b"gzip"),
        (b"X-Upper", b"1"),
        (b":status", b"200"),
        (b":unknown", b"1"),
        (b":method", b"GET"),
        (b":path", b"/payments"),
        (b":protocol", b"websocket"),
        (b"x-line", b"1\r\nsemel-tenant: acme"),
        (b"x-feed", b"1\n2"),
        (b"x-null", b"\x00"),
        (b"x y", b"1"),
        (b"", b"1"),
        (b"x-http-method-override", b"DELETE"),
        (b"content_length", b"5"),
        (b"x-name\r\nsemel-tenant", b"acme"),
    ];
    match author.chance.index(8) {
        0 => fields.retain(|(name, _)| name != b":method"),
        1 => fields.retain(|(name, _)| name != b":path"),
        2 => fields.retain(|(name, _)| name != b":scheme"),
        3 => set(
            &mut fields,
            b":path",
            author.chance.pick(&[&b""[..], b"*", b"payments", b"/a b", b"/a\r\nx", b"http://lab/"]),
        ),
        4 => set(
            &mut fields,
            b":method",
            author.chance.pick(&[&b""[..], b"CONNECT", b"PO ST", b"GET /x HTTP/1.1\r\n"]),
        ),
        5 => set(&mut fields, b":scheme", author.chance.pick(&[&b""[..], b"ftp", b"http://x/?", b"1"])),
        6 => fields.rotate_left(1),
        _ => {
            let (name, text) = author.chance.pick(&forbidden);
            fields.push((value(name), value(text)));
        }
    }
    let steps = vec![with_fields(&draft, &fields)];
    http2(GROUP, "fields that no request has", vec![draft], steps)
}

fn set(fields: &mut Fields, name: &[u8], value: &[u8]) {
    for field in fields.iter_mut().filter(|field| field.0 == name) {
        field.1 = value.to_vec();
    }
}

fn hosts(author: &mut Author<'_>) -> Case {
    let draft = draft(author, &Sort::PLAIN);
    let mut fields = draft.fields_over_http2();
    let draft = match author.chance.index(8) {
        0 => {
            fields.push((b"host".to_vec(), b"lab".to_vec()));
            draft
        }
        1 => {
            fields.retain(|(name, _)| name != b":authority");
            fields.push((b"host".to_vec(), b"lab".to_vec()));
            draft
        }
        2 => {
            fields.push((b"host".to_vec(), b"other".to_vec()));
            draft.refused()
        }
        3 => {
            fields.retain(|(name, _)| name != b":authority");
            draft.refused()
        }
        4 => {
            fields.extend([(b"host".to_vec(), b"lab".to_vec()), (b"host".to_vec(), b"lab".to_vec())]);
            draft.refused()
        }
        5 => {
            fields.retain(|(name, _)| name != b":authority");
            let host = author.chance.pick(&[&b"lab/../x?"[..], b"a@b", b"", b"a b", b"lab:x"]);
            fields.push((b"host".to_vec(), host.to_vec()));
            draft.refused()
        }
        _ => {
            let host =
                author.chance.pick(&[&b"lab/../x?"[..], b"a@b", b"a b", b"lab:x", b"lab\r\nx: y", b"\xff"]);
            set(&mut fields, b":authority", host);
            draft.refused()
        }
    };
    let steps = vec![with_fields(&draft, &fields)];
    http2(GROUP, "hosts", vec![draft], steps)
}

fn lengths(author: &mut Author<'_>) -> Case {
    let draft = draft(author, &Sort::WITH_BODY);
    let mut fields = draft.fields_over_http2();
    let length = draft.ask.body.len();
    let announced = match author.chance.index(7) {
        0 => vec![length.to_string()],
        1 => vec![(length + 1).to_string()],
        2 => vec![(length - 1).to_string()],
        3 => vec![format!("0{length}")],
        4 => vec![length.to_string(), length.to_string()],
        5 => vec![format!("+{length}")],
        _ => vec![format!("{length}, {length}")],
    };
    let is_right = announced == [length.to_string()];
    fields.extend(announced.into_iter().map(|length| (b"content-length".to_vec(), length.into_bytes())));
    let draft = if is_right { draft } else { draft.refused() };
    let steps = vec![with_fields(&draft, &fields)];
    http2(GROUP, "lengths beside frames", vec![draft], steps)
}

/// Draws a request that is reset, with every code, before its end or behind it.
fn resets(author: &mut Author<'_>) -> Case {
    let code = author.chance.index(14) as u32;
    let draft = draft(author, &Sort::WITH_BODY);
    let other = self::draft(author, &Sort::PLAIN);
    let mut step = vec![frames::head(0, &draft.fields_over_http2(), false)];
    let draft = match author.chance.index(3) {
        0 => draft.refused(),
        1 => {
            step.push(frames::data(0, &draft.ask.body, false));
            draft.refused()
        }
        _ => {
            step.push(frames::data(0, &draft.ask.body, true));
            draft.either()
        }
    };
    step.push(frames::reset(0, code));
    let steps = match author.chance.percent(50) {
        true => vec![step, other.frames(1)],
        false => vec![step.into_iter().chain(other.frames(1)).collect()],
    };
    let mut case = http2(GROUP, "a request that is reset", vec![draft, other], steps);
    abandon(&mut case, vec![0], Ending::Keep);
    case
}

fn abandon(case: &mut Case, streams: Vec<usize>, ends: Ending) {
    if let Wire::Http2 { abandoned, ending, .. } = &mut case.wire {
        (*abandoned, *ending) = (streams, ends);
    }
}

/// Draws a client that ends its connection within a request, or behind it.
fn leaves(author: &mut Author<'_>) -> Case {
    let draft = draft(author, &Sort::WITH_BODY);
    let go_away = |code: u32| of_connection(GOAWAY, 0, &[[0_u8; 4], code.to_be_bytes()].concat());
    let code = author.chance.pick(&[0, 2, 11]);
    let head = frames::head(0, &draft.fields_over_http2(), false);
    let body = |ends| frames::data(0, &draft.ask.body, ends);
    let ending = author.chance.pick(&[Ending::HalfClose, Ending::Leave]);
    let (step, draft) = match author.chance.index(4) {
        0 => (vec![head], draft.refused()),
        1 => (vec![head, body(false)], draft.refused()),
        2 => (vec![head, body(false), go_away(code)], draft.refused()),
        _ => (vec![head, body(true), go_away(code)], draft.either()),
    };
    let mut case = http2(GROUP, "a client that leaves", vec![draft], vec![step]);
    abandon(&mut case, vec![0], ending);
    case
}

fn windows(author: &mut Author<'_>) -> Case {
    let draft = draft(author, &Sort::PLAIN);
    let frames = pieces(author, &draft, 0);
    match author.chance.index(4) {
        0 => {
            let steps = vec![
                vec![initial_window(0)],
                frames,
                vec![window_update(Some(0), 70_000), initial_window(65_535)],
            ];
            http2(GROUP, "a window that opens late", vec![draft], steps)
        }
        1 => {
            let steps = vec![vec![initial_window(1)], frames, vec![initial_window(65_535)]];
            http2(GROUP, "a window that opens late", vec![draft], steps)
        }
        2 => {
            let bad = author.chance.pick(&[0, 0x7fff_ffff]);
            let case = http2(
                GROUP,
                "a window that overflows",
                vec![draft.either()],
                vec![vec![window_update(None, bad)], frames],
            );
            case.then_half_closed()
        }
        _ => {
            let case = http2(
                GROUP,
                "a window that is too large",
                vec![draft.either()],
                vec![vec![initial_window(0x8000_0000)], frames],
            );
            case.then_half_closed()
        }
    }
}

/// Draws frames in an invalid order or form, which end a stream or a connection.
fn broken_frames(author: &mut Author<'_>) -> Case {
    let draft = draft(author, &Sort::PLAIN).refused();
    let block = frames::block(&draft.fields_over_http2());
    let cut = block.len() / 2;
    let (first, rest) = block.split_at(cut);
    let head = |flags| on(0, HEADERS, flags, first);
    let ends = if draft.ask.body.is_empty() { END_STREAM } else { 0 };
    let step = match author.chance.index(9) {
        0 => vec![head(ends), frames::data(0, b"x", false), on(0, CONTINUATION, END_HEADERS, rest)],
        1 => vec![head(ends), of_connection(PING, 0, &[1; 8]), on(0, CONTINUATION, END_HEADERS, rest)],
        2 => vec![head(ends), on(1, CONTINUATION, END_HEADERS, rest)],
        3 => vec![head(ends)],
        4 => vec![on(0, CONTINUATION, END_HEADERS, &block)],
        5 => vec![frames::data(0, b"x", true)],
        6 => vec![on(0, PUSH_PROMISE, END_HEADERS, &[&2_u32.to_be_bytes()[..], &block].concat())],
        7 => vec![on(
            0,
            HEADERS,
            END_HEADERS | ends | PADDED,
            &[&[255][..], &block[..100.min(block.len())]].concat(),
        )],
        _ => vec![on(0, HEADERS, END_HEADERS | ends | PADDED, &[])],
    };
    let case = http2(GROUP, "frames in a wrong order", vec![draft], vec![step]);
    case.then_half_closed()
}

/// Draws field sections that cannot be decoded.
fn broken_blocks(author: &mut Author<'_>) -> Case {
    let draft = author.draft(Client::Guest, Sort::Read).refused();
    let block = frames::block(&draft.fields_over_http2());
    let broken: Vec<u8> = match author.chance.index(6) {
        // An index that does not exist, a table that is too large, a length beyond the end, an invalid code.
        0 => [&block[..], &[0xff, 0xff, 0x7f]].concat(),
        1 => [&[0x3f, 0xff, 0xff, 0xff, 0x7f][..], &block].concat(),
        2 => [&block[..], &[0, 1, b'a', 100, b'b']].concat(),
        3 => [&block[..], &[0, 0x84, 0xff, 0xff, 0xff, 0xff, 1, b'b']].concat(),
        4 => [&block[..], &[0x80]].concat(),
        _ => block[..block.len() - 1].to_vec(),
    };
    let step = vec![on(0, HEADERS, END_HEADERS | END_STREAM, &broken)];
    http2(GROUP, "fields that cannot be decoded", vec![draft], vec![step]).then_half_closed()
}
