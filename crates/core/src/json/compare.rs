//! Compares two JSON documents member by member, and shows why their canonical forms differ.

use std::cmp::Ordering;

use super::{JsonValue, Member, NotCanonical, Numbers, number, parse, utf16_order};
use crate::pointer;

/// Differences of two documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// The first differences, in the order of the canonical form.
    pub first: Vec<JsonDifference>,
    /// Number of all differences.
    pub total: usize,
}

/// One place where two documents differ, with the canonical value of each. At least one has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonDifference {
    /// JSON Pointer (RFC 6901) of the place; empty for the whole document.
    pub pointer: String,
    /// Value in the old document; `None` if it was added.
    pub old: Option<String>,
    /// Value in the new document; `None` if it was removed.
    pub new: Option<String>,
}

/// Compares two JSON texts as the fingerprint does: spelling does not count, and no number is rounded. At most
/// `limit` differences are kept, and all are counted; there are none if, and only if, the two have the same
/// canonical form with [`Numbers::Exact`]. Elements of arrays are compared by their places.
///
/// # Errors
/// [`NotCanonical`] says why one of them has no canonical form.
pub fn differences(old: &[u8], new: &[u8], limit: usize) -> Result<Differences, NotCanonical> {
    let (old, new) = (parse::document(old)?, parse::document(new)?);
    let mut comparison = JsonComparison { pointer: String::new(), limit, found: Differences::default() };
    comparison.values(&old, &new)?;
    Ok(comparison.found)
}

struct JsonComparison {
    /// Pointer of the current place.
    pointer: String,
    limit: usize,
    found: Differences,
}

impl JsonComparison {
    fn values(&mut self, old: &JsonValue<'_>, new: &JsonValue<'_>) -> Result<(), NotCanonical> {
        let same = match (old, new) {
            (JsonValue::Object(old), JsonValue::Object(new)) => return self.objects(old, new),
            (JsonValue::Array(old), JsonValue::Array(new)) => return self.arrays(old, new),
            (JsonValue::Null, JsonValue::Null) => true,
            (JsonValue::Bool(old), JsonValue::Bool(new)) => old == new,
            (JsonValue::String(old), JsonValue::String(new)) => old == new,
            (JsonValue::Number(old), JsonValue::Number(new)) => spelled(old)? == spelled(new)?,
            (
                JsonValue::Null
                | JsonValue::Bool(_)
                | JsonValue::Number(_)
                | JsonValue::String(_)
                | JsonValue::Array(_)
                | JsonValue::Object(_),
                _,
            ) => false,
        };
        if same { Ok(()) } else { self.note(Some(old), Some(new)) }
    }

    /// Compares two objects. Both are sorted, so one walk along the two finds members that only one has.
    fn objects(&mut self, old: &[Member<'_>], new: &[Member<'_>]) -> Result<(), NotCanonical> {
        let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => utf16_order(&old.name, &new.name),
            };
            let before = (order != Ordering::Greater).then(|| old.next()).flatten();
            let after = (order != Ordering::Less).then(|| new.next()).flatten();
            let Some(name) = before.or(after).map(|member| &member.name) else { return Ok(()) };
            self.place(name, before.map(|member| &member.value), after.map(|member| &member.value))?;
        }
    }

    fn arrays(&mut self, old: &[JsonValue<'_>], new: &[JsonValue<'_>]) -> Result<(), NotCanonical> {
        for index in 0..old.len().max(new.len()) {
            self.place(&index.to_string(), old.get(index), new.get(index))?;
        }
        Ok(())
    }

    /// Compares the values of both under one name or index.
    fn place(
        &mut self,
        token: &str,
        old: Option<&JsonValue<'_>>,
        new: Option<&JsonValue<'_>>,
    ) -> Result<(), NotCanonical> {
        let length = self.pointer.len();
        pointer::push_token(&mut self.pointer, token);
        let compared = match (old, new) {
            (Some(old), Some(new)) => self.values(old, new),
            (old, new) => self.note(old, new),
        };
        self.pointer.truncate(length);
        compared
    }

    fn note(&mut self, old: Option<&JsonValue<'_>>, new: Option<&JsonValue<'_>>) -> Result<(), NotCanonical> {
        self.found.total += 1;
        if self.found.first.len() < self.limit {
            let (old, new) = (old.map(text).transpose()?, new.map(text).transpose()?);
            self.found.first.push(JsonDifference { pointer: self.pointer.clone(), old, new });
        }
        Ok(())
    }
}

fn text(value: &JsonValue<'_>) -> Result<String, NotCanonical> {
    let mut out = String::new();
    value.write(Numbers::Exact, &mut out)?;
    Ok(out)
}

fn spelled(number: &str) -> Result<String, NotCanonical> {
    let mut out = String::new();
    number::write(number, Numbers::Exact, &mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(old: &str, new: &str) -> Vec<JsonDifference> {
        let differences = differences(old.as_bytes(), new.as_bytes(), 100).expect("both are JSON");
        assert_eq!(differences.first.len(), differences.total);
        differences.first
    }

    fn difference(pointer: &str, old: Option<&str>, new: Option<&str>) -> JsonDifference {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        JsonDifference { pointer: pointer.to_owned(), old: owned(old), new: owned(new) }
    }

    #[test]
    fn each_json_difference_is_named_by_its_pointer_and_values() {
        let old = r#"{"a": 1.0, "b": {"x/y": [1, 2, {"~": null}]}, "gone": [true]}"#;
        let new = r#"{"new": "é", "b": {"x/y": [1, 3, {"~": {}}, 4]}, "a": 1}"#;
        let expected = [
            difference("/b/x~1y/1", Some("2"), Some("3")),
            difference("/b/x~1y/2/~0", Some("null"), Some("{}")),
            difference("/b/x~1y/3", None, Some("4")),
            difference("/gone", Some("[true]"), None),
            difference("/new", None, Some("\"é\"")),
        ];
        assert_eq!(found(old, new), expected);
    }

    #[test]
    fn another_type_is_a_change_of_the_whole_value() {
        assert_eq!(found("[]", "{}"), [difference("", Some("[]"), Some("{}"))]);
        assert_eq!(found(r#"{"a":"1"}"#, r#"{"a":1}"#), [difference("/a", Some("\"1\""), Some("1"))]);
        assert_eq!(found("9007199254740993", "9007199254740992").len(), 1, "nothing is rounded");
    }

    #[test]
    fn member_order_and_number_spelling_are_no_json_difference() {
        assert_eq!(found(r#" {"b": 1e0, "a": "\u0041\/"} "#, r#"{"a":"A/","b":1}"#), []);
    }

    #[test]
    fn listed_differences_are_bounded_and_the_total_is_exact() {
        let (old, new) = (format!("[{}0]", "0,".repeat(999)), format!("[{}1]", "1,".repeat(999)));
        let differences = differences(old.as_bytes(), new.as_bytes(), 3).expect("both are JSON");
        assert_eq!((differences.first.len(), differences.total), (3, 1000));
    }

    #[test]
    fn documents_without_a_canonical_form_cannot_be_compared() {
        assert_eq!(differences(b"{", b"{}", 1), Err(NotCanonical::Syntax { offset: 1 }));
        assert_eq!(differences(b"{}", br#"{"a":1,"a":1}"#, 1), Err(NotCanonical::DuplicateMember));
    }
}
