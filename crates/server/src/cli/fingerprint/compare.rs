//! Differences of two requests, for people and for programs. The output is bounded for bodies of any size.

use semel_core::fingerprint::{CanonicalBody, Fingerprint};
use semel_core::json::differences;
use serde_json::{Value, json};

use super::explain::{Explained, whole};
use super::shown::{cut, cut_pair, cut_pointer, excerpt_from, line, visible};

/// Largest number of differences that are shown.
const MAX_DIFFERENCES: usize = 50;

/// Difference of two requests. `None` marks a value that one of them lacks.
#[derive(Debug, PartialEq, Eq)]
struct RequestDifference {
    field: &'static str,
    /// Place in a JSON body.
    pointer: Option<String>,
    old: Option<String>,
    new: Option<String>,
}

/// Comparison of two requests.
pub(super) struct RequestComparison {
    fingerprints: [Fingerprint; 2],
    /// Differences that are shown.
    differences: Vec<RequestDifference>,
    /// Number of further differences.
    more: usize,
    /// Notes beside the differences.
    notes: Vec<String>,
}

impl RequestComparison {
    pub(super) fn of(one: &Explained<'_>, other: &Explained<'_>) -> RequestComparison {
        let fingerprints = [one.fingerprint, other.fingerprint];
        let mut comparison =
            RequestComparison { fingerprints, differences: Vec::new(), more: 0, notes: Vec::new() };
        for ((field, old), (_, new)) in one.head().into_iter().zip(other.head()) {
            if old != new {
                let (old, new) = cut_pair(old.as_deref(), new.as_deref());
                comparison.differences.push(RequestDifference { field, pointer: None, old, new });
            }
        }
        comparison.bodies(one, other);
        if comparison.same() {
            comparison.spellings(one, other);
        }
        comparison
    }

    /// Returns true if the two requests are the same command.
    pub(super) fn same(&self) -> bool {
        self.fingerprints[0] == self.fingerprints[1]
    }

    /// Compares the fingerprinted forms of two bodies.
    fn bodies(&mut self, one: &Explained<'_>, other: &Explained<'_>) {
        let field = "body";
        match (&one.fields.body, &other.fields.body) {
            (CanonicalBody::Json(old), CanonicalBody::Json(new)) => {
                // Both are canonical, so both can be parsed.
                let found = differences(old, new, MAX_DIFFERENCES).unwrap_or_default();
                self.more = found.total - found.first.len();
                self.differences.extend(found.first.into_iter().map(|difference| {
                    let (old, new) = cut_pair(difference.old.as_deref(), difference.new.as_deref());
                    RequestDifference { field, pointer: Some(cut_pointer(&difference.pointer)), old, new }
                }));
            }
            (CanonicalBody::Raw(old, _), CanonicalBody::Raw(new, _)) if old == new => {}
            (CanonicalBody::Raw(old, _), CanonicalBody::Raw(new, _)) => {
                let same = old.iter().zip(*new).take_while(|(old, new)| old == new).count();
                let [shown_old, shown_new] = [old, new].map(|body| Some(excerpt_from(body, same)));
                self.differences.push(RequestDifference {
                    field,
                    pointer: None,
                    old: shown_old,
                    new: shown_new,
                });
                let (lengths, from) = (format!("{} and {} bytes", old.len(), new.len()), same + 1);
                self.notes.push(format!("the bodies have {lengths}, and differ from byte {from} on"));
                for (which, request) in [("first", one), ("second", other)] {
                    self.notes.push(format!("the {which} body goes in as {}", request.form()));
                }
            }
            (one, other) if one == other => {}
            (
                CanonicalBody::Json(_)
                | CanonicalBody::Form(_)
                | CanonicalBody::Multipart(_)
                | CanonicalBody::Raw(..),
                _,
            ) => {
                let (old, new) = (Some(one.form()), Some(other.form()));
                self.differences.push(RequestDifference { field, pointer: None, old, new });
            }
        }
    }

    /// Notes the differences in spelling of two requests that are the same command.
    fn spellings(&mut self, one: &Explained<'_>, other: &Explained<'_>) {
        if let (Some(old), Some(new)) = (one.input.content_type, other.input.content_type)
            && old != new
        {
            let [old, new] = [old, new].map(|sent| visible(&cut(&String::from_utf8_lossy(sent), 0)));
            self.notes.push(format!(
                "the content types were sent as {old} and {new}: case, charset=utf-8 of JSON and forms, and the boundary of parts do not \
                 count"
            ));
        }
        if one.input.body == other.input.body {
            return;
        }
        if let (CanonicalBody::Json(old), CanonicalBody::Json(new)) = (whole(one.input), whole(other.input))
            && let Ok(excluded) = differences(&old, &new, MAX_DIFFERENCES)
            && excluded.total > 0
        {
            let pointers: Vec<String> = excluded
                .first
                .iter()
                .map(|difference| visible(&cut_pointer(place(&difference.pointer))))
                .collect();
            let more = excluded.total - pointers.len();
            let more = if more > 0 { format!(" and {more} more places") } else { String::new() };
            self.notes.push(format!("the bodies differ at {}{more}, which is excluded", pointers.join(", ")));
        } else {
            self.notes.push(
                "the bodies are spelled differently: white space, the order of members, escapes and the spelling \
                 of numbers do not count"
                    .to_owned(),
            );
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut lines = Vec::new();
        if self.same() {
            lines.push(format!("the same command: {}", self.fingerprints[0]));
        } else {
            lines.push("two different commands".to_owned());
            lines.extend(self.fingerprints.map(|fingerprint| line("fingerprint", &fingerprint.to_string())));
        }
        for RequestDifference { field, pointer, old, new } in &self.differences {
            let place = match pointer {
                Some(pointer) => format!("{}: ", visible(place(pointer))),
                None => String::new(),
            };
            let told = match (old.as_deref().map(visible), new.as_deref().map(visible)) {
                (Some(old), Some(new)) => format!("{old} became {new}"),
                (Some(old), None) => format!("{old} was removed"),
                (None, Some(new)) => format!("{new} was added"),
                (None, None) => continue,
            };
            lines.push(line(field, &format!("{place}{told}")));
        }
        if self.more > 0 {
            lines.push(line("", &format!("and {} more differences", self.more)));
        }
        lines.extend(self.notes.iter().cloned());
        lines.join("\n")
    }

    pub(super) fn to_json(&self) -> Value {
        let differences = self.differences.iter().map(|RequestDifference { field, pointer, old, new }| {
            json!({ "field": field, "pointer": pointer, "old": old, "new": new })
        });
        json!({
            "same": self.same(),
            "differences": differences.collect::<Vec<_>>(),
            "moreDifferences": self.more,
            "notes": self.notes,
        })
    }
}

/// Returns a JSON Pointer for people: that of the whole document is empty, and would be invisible.
fn place(pointer: &str) -> &str {
    if pointer.is_empty() { "the whole document" } else { pointer }
}

#[cfg(test)]
mod tests {
    use semel_core::{FingerprintInput, JsonPointer};

    use super::super::shown::{LEAD_CHARS, MAX_VALUE_CHARS};
    use super::*;

    fn request(body: &str) -> FingerprintInput<'_> {
        FingerprintInput {
            method: "POST",
            path: "/payments",
            query: None,
            content_type: Some(b"application/json"),
            content_encoding: None,
            body: body.as_bytes(),
            exclude: &[],
        }
    }

    fn compare(one: FingerprintInput<'_>, other: FingerprintInput<'_>) -> RequestComparison {
        RequestComparison::of(&Explained::of(one), &Explained::of(other))
    }

    fn difference(field: &'static str, old: Option<&str>, new: Option<&str>) -> RequestDifference {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        RequestDifference { field, pointer: None, old: owned(old), new: owned(new) }
    }

    #[test]
    fn every_field_that_differs_is_named() {
        let other = FingerprintInput {
            method: "PATCH",
            path: "/payments/1",
            query: Some("a=b"),
            content_type: None,
            content_encoding: Some(b"identity"),
            ..request("{}")
        };
        let comparison = compare(request("{}"), other);
        assert!(!comparison.same());
        let why = "2 bytes as sent, since the content type is not one of JSON, a form or parts \
                   (the body reads as JSON: give --content-type application/json if it is sent so)";
        let expected = [
            difference("method", Some("POST"), Some("PATCH")),
            difference("path", Some("/payments"), Some("/payments/1")),
            difference("query", None, Some("a=b")),
            difference("content type", Some("application/json"), None),
            difference("content encoding", None, Some("identity")),
            difference("body", Some("canonical JSON, 2 bytes of 2 as sent"), Some(why)),
        ];
        assert_eq!(comparison.differences, expected);
    }

    #[test]
    fn requests_that_differ_only_in_spelling_are_the_same_with_a_note() {
        let retry = FingerprintInput {
            content_type: Some(b"Application/JSON; charset=utf-8"),
            ..request(r#"{ "to": "\u00e4", "amount": 1.0 }"#)
        };
        let comparison = compare(request(r#"{"amount":1,"to":"ä"}"#), retry);
        assert!(comparison.same() && comparison.differences.is_empty());
        let text = comparison.to_text();
        assert!(
            text.contains("the content types were sent as") && text.contains("spelled differently"),
            "{text}"
        );
        let identical = compare(request("{}"), request("{}"));
        assert!(identical.same() && identical.notes.is_empty());
    }

    #[test]
    fn requests_that_differ_only_in_excluded_members_compare_as_the_same() {
        let exclude =
            [JsonPointer::parse("/meta").expect("a pointer"), JsonPointer::parse("/no").expect("a pointer")];
        let [one, other] = [r#"{"a":1,"meta":{"at":1}}"#, r#"{"a":1,"meta":{"at":2}}"#]
            .map(|body| FingerprintInput { exclude: &exclude, ..request(body) });
        let comparison = compare(one, other);
        assert!(comparison.same());
        assert_eq!(comparison.notes, ["the bodies differ at /meta/at, which is excluded"]);
        let present: Vec<bool> = Explained::of(one).excluded().map(|(_, present)| present).collect();
        assert_eq!(present, [true, false]);
    }

    #[test]
    fn raw_bodies_are_compared_byte_by_byte() {
        let raw = |body| FingerprintInput { content_type: Some(b"text/plain"), ..request(body) };
        let comparison = compare(raw("the same beginning, one end"), raw("the same beginning, another end"));
        assert_eq!(comparison.differences[0].old.as_deref(), Some("…same beginning, one end"));
        assert!(
            comparison.notes[0].ends_with("27 and 31 bytes, and differ from byte 21 on"),
            "{:?}",
            comparison.notes
        );
        let longer = compare(raw("ab"), raw("abc"));
        assert!(longer.notes[0].ends_with("differ from byte 3 on"), "{:?}", longer.notes);
        let twice = compare(request(r#"{"a":1,"a":1}"#), request(r#"{"a":1,"a":2}"#));
        assert!(twice.notes[1].contains("two members of the same name"), "{:?}", twice.notes);
    }

    #[test]
    fn shown_differences_are_bounded() {
        let list = |value: &str| format!("[{}]", vec![value; 10_000].join(","));
        let many = compare(request(&list("0")), request(&list("1")));
        assert_eq!((many.differences.len(), many.more), (MAX_DIFFERENCES, 10_000 - MAX_DIFFERENCES));
        let [one, other] = ["x", "y"]
            .map(|end| format!("{{\"a\":\"{}{end}{}\"}}", "é".repeat(1 << 16), "z".repeat(1 << 16)));
        let long = compare(request(&one), request(&other));
        let expected = |end: &str| {
            format!("…{}{end}{}…", "é".repeat(LEAD_CHARS), "z".repeat(MAX_VALUE_CHARS - LEAD_CHARS - 1))
        };
        assert_eq!(long.differences[0].old, Some(expected("x")));
        assert_eq!(long.differences[0].new, Some(expected("y")));
        assert!(Explained::of(request(&one)).to_text().chars().count() < 1000);
        let name = "n".repeat(1 << 16);
        let deep = compare(request(&format!("{{\"{name}\":1}}")), request("{}")).to_json().to_string();
        assert!(deep.len() < 1000, "{deep}");
    }

    #[test]
    fn shown_differences_have_no_hidden_characters() {
        let text = compare(request("{\"a\":\"x\"}"), request("{\"a\":\"x\u{200b}\\u001b[2J\"}")).to_text();
        assert!(text.contains(r#""x" became "x\u{200b}\u001b[2J""#), "{text}");
        let composed = compare(request("\"é\""), request("\"e\u{301}\"")).to_text();
        assert!(composed.contains(r#"the whole document: "é" became "e\u{301}""#), "{composed}");
    }
}
