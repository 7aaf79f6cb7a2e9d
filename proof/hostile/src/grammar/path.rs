//! Spellings of a path: those with a canonical form, and those without.

use crate::case::{Case, Client, Group};
use crate::draft::{Author, Draft, Sort};

const GROUP: Option<Group> = Some(Group::Path);

pub(super) fn draw(author: &mut Author<'_>) -> Case {
    let (client, sort) = (author.client(), author.chance.pick(&Sort::PLAIN));
    let mut draft = author.draft(client, sort);
    let plain = sort.path();
    let (what, draft) = match author.chance.index(8) {
        0..=2 => {
            draft.path = escaped(author, plain);
            ("a path in another spelling", draft)
        }
        3 | 4 => {
            draft.path = without_form(author, plain);
            ("a path without a form", draft.refused())
        }
        5 => generous(author, draft, sort),
        6 => {
            let spelled = author.chance.pick(&[
                "/.well-known/semel/operations/x",
                "/.well-known/semel/problems/x",
                "/.well-known/SEMEL/operations/x",
                "/%2ewell-known/semel/operations/x",
                "/.well%2dknown/s%65mel/operations/x",
                "//.well-known/semel/operations/x",
            ]);
            draft.path = spelled.into();
            ("a path of the gateway itself", draft.refused())
        }
        _ => {
            let (sent, form) = author.chance.pick(&[
                ("/%c3%a9/7", "/%C3%A9/7"),
                ("/a%20b", "/a%20b"),
                ("/a%7eb", "/a~b"),
                ("/%e2%82%ac", "/%E2%82%AC"),
                ("/a+b,c=d", "/a+b,c=d"),
            ]);
            let sort = author.chance.pick(&[Sort::Read, Sort::Note, Sort::Store]);
            draft = author.draft(client, sort);
            draft.path = sent.into();
            draft.ask.target = format!("{form}?m={}", draft.ask.mark);
            ("a path with escapes", draft)
        }
    };
    if author.chance.percent(40) { draft.alone_over_http2(GROUP, what) } else { over_http1(draft, what) }
}

/// Makes a case over HTTP/1. A path without a canonical form may not be HTTP/1 either: it is the last on its
/// connection.
fn over_http1(draft: Draft, what: &'static str) -> Case {
    let is_refused = draft.ask.expectation == crate::case::Expectation::Refused;
    let case = draft.alone(GROUP, what);
    if is_refused { case.then_half_closed() } else { case }
}

/// Spells the path with some of its letters and digits as escapes.
fn escaped(author: &mut Author<'_>, path: &str) -> Vec<u8> {
    let mut spelled = String::new();
    for letter in path.chars() {
        match letter.is_ascii_alphanumeric() && author.chance.percent(30) {
            true if author.chance.percent(50) => spelled.push_str(&format!("%{:02x}", u32::from(letter))),
            true => spelled.push_str(&format!("%{:02X}", u32::from(letter))),
            false => spelled.push(letter),
        }
    }
    spelled.into_bytes()
}

/// Spells the path with a part that is ambiguous for two readers.
fn without_form(author: &mut Author<'_>, path: &str) -> Vec<u8> {
    let (first, rest) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let rest = if rest.is_empty() { String::new() } else { format!("/{rest}") };
    let spelled = match author.chance.index(18) {
        0 => format!("//{first}{rest}"),
        1 => format!("/{first}/{rest}/x"),
        2 => format!("/./{first}{rest}"),
        3 => format!("/x/../{first}{rest}"),
        4 => format!("/x/%2e%2E/{first}{rest}"),
        5 => format!("/x%2f..%2f{first}{rest}"),
        6 => format!("/x/..;/{first}{rest}"),
        7 => format!("/{first};v=1{rest}"),
        8 => format!("/{first}%2F{}", rest.trim_start_matches('/')),
        9 => format!("/{first}%5c{}", rest.trim_start_matches('/')),
        10 => format!("/%25{:02x}{}{rest}", first.as_bytes()[0], &first[1..]),
        11 => format!("/{first}%00{rest}"),
        12 => format!("/{first}%0a{rest}"),
        13 => format!("/{first}%{rest}"),
        14 => format!("/{first}%zz{rest}"),
        15 => format!("/{first}%c0%af{rest}"),
        16 => format!("/{first}%ff{rest}"),
        _ => format!("/{first}{rest}/%2e"),
    };
    escaped_less(author, &spelled)
}

/// Spells some letters as escapes, unless the path has escapes already.
fn escaped_less(author: &mut Author<'_>, path: &str) -> Vec<u8> {
    if path.contains('%') || author.chance.percent(60) {
        return path.as_bytes().to_vec();
    }
    escaped(author, path)
}

/// Draws a path that some routers take for a route of ours: refused where there is a rule.
fn generous(author: &mut Author<'_>, mut draft: Draft, sort: Sort) -> (&'static str, Draft) {
    let path = sort.path();
    let other = match author.chance.index(3) {
        0 => format!("{path}/"),
        1 => path.to_ascii_uppercase(),
        _ => format!("/{}{}", path[1..2].to_ascii_uppercase(), &path[2..]),
    };
    draft.path = other.clone().into_bytes();
    draft.ask.target = format!("{other}?m={}", draft.ask.mark);
    let has_rule = matches!(sort, Sort::Create | Sort::Replace | Sort::Remove);
    let draft = if has_rule { draft.refused() } else { draft };
    // A client without credentials never gets around a rule.
    let draft = if draft.ask.client == Client::Guest && has_rule { draft.refused() } else { draft };
    ("a path that differs by a slash or by case", draft)
}
