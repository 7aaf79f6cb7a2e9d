//! Looks up JSON Pointers in a document. Each call reads the document once.

use super::{JsonValue, NotCanonical, Numbers, number, parse};
use crate::pointer::{JsonPointer, array_index};

/// The value that [`find`] finds at a pointer, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundValue {
    /// There is no such member.
    Nothing,
    /// `null`.
    Null,
    /// A string, or a number or a boolean as it was written.
    Text(String),
    /// An array or an object.
    Nested,
}

/// The value that [`JsonPointer::point`] finds, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pointed {
    /// The value, in canonical form.
    Value(String),
    /// No value, although the parent object or array exists.
    Missing,
    /// No value and no parent: the document has another shape.
    NoPlace,
}

/// Finds the value at each of `pointers` in a JSON text, which is read once.
///
/// # Errors
/// [`NotCanonical`] says why the text is not JSON without ambiguity: another reader may find something else.
pub fn find(text: &[u8], pointers: &[JsonPointer]) -> Result<Vec<FoundValue>, NotCanonical> {
    let mut document = parse::document(text)?;
    let found = pointers.iter().map(|pointer| match document.descend(pointer.tokens()) {
        None => FoundValue::Nothing,
        Some(JsonValue::Null) => FoundValue::Null,
        Some(JsonValue::Bool(value)) => FoundValue::Text(value.to_string()),
        Some(JsonValue::Number(number)) => FoundValue::Text((*number).to_owned()),
        Some(JsonValue::String(string)) => FoundValue::Text(string.to_string()),
        Some(JsonValue::Array(_) | JsonValue::Object(_)) => FoundValue::Nested,
    });
    Ok(found.collect())
}

impl JsonPointer {
    /// Returns the text of the string or number at this pointer in a JSON body; `None` if there is no such member, or if it is
    /// of another type. A number has its [`Numbers::Exact`] spelling: 7, however it is written, and "7" have one text.
    ///
    /// # Errors
    /// [`NotCanonical`] says why the body is not JSON without ambiguity: another reader may find something else.
    pub fn scalar(&self, body: &[u8]) -> Result<Option<String>, NotCanonical> {
        let mut document = parse::document(body)?;
        match document.descend(self.tokens()) {
            Some(JsonValue::String(string)) => Ok(Some(string.to_string())),
            Some(JsonValue::Number(number)) => {
                let mut out = String::new();
                number::write(number, Numbers::Exact, &mut out)?;
                Ok(Some(out))
            }
            Some(JsonValue::Null | JsonValue::Bool(_) | JsonValue::Array(_) | JsonValue::Object(_))
            | None => Ok(None),
        }
    }

    /// Returns the value of any type at this pointer in a JSON body, in canonical form and with every number exact.
    ///
    /// # Errors
    /// As for [`scalar`](Self::scalar).
    pub fn point(&self, body: &[u8]) -> Result<Pointed, NotCanonical> {
        let mut document = parse::document(body)?;
        if let Some(value) = document.descend(self.tokens()) {
            let mut out = String::new();
            value.write(Numbers::Exact, &mut out)?;
            return Ok(Pointed::Value(out));
        }
        let place = self.tokens().split_last().and_then(|(last, path)| Some((last, document.descend(path)?)));
        Ok(match place {
            // An object instead of an array is another shape, although it could have a member of that name.
            Some((last, JsonValue::Object(_))) if array_index(last).is_none() => Pointed::Missing,
            Some((last, JsonValue::Array(_))) if array_index(last).is_some() => Pointed::Missing,
            Some(_) | None => Pointed::NoPlace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(text: &str) -> JsonPointer {
        JsonPointer::parse(text).expect("a valid pointer")
    }

    #[test]
    fn json_pointers_find_scalars_with_their_exact_text() {
        let pointers: Vec<_> = ["/n", "/s", "/t", "/z", "/o", "/o/0/x", "/no"]
            .map(|text| JsonPointer::parse(text).expect("it is a pointer"))
            .into();
        let text = br#"{"n": 12.00, "s": "\u0061", "t": true, "z": null, "o": [{"x": 1e2}]}"#;
        let text_of = |text: &str| FoundValue::Text(text.to_owned());
        assert_eq!(
            find(text, &pointers),
            Ok(vec![
                text_of("12.00"),
                text_of("a"),
                text_of("true"),
                FoundValue::Null,
                FoundValue::Nested,
                text_of("1e2"),
                FoundValue::Nothing,
            ])
        );
        assert_eq!(find(br#"{"n":1,"n":2}"#, &pointers), Err(NotCanonical::DuplicateMember));
    }

    #[test]
    fn a_scalar_is_found_by_its_pointer() {
        let body = br#"{"a": [{"b/c": "x\u0079"}, 1.50], "0": 7, "t": true}"#;
        for (text, found) in [
            ("/a/0/b~1c", Some("xy")),
            ("/a/1", Some("1.5")),
            ("/0", Some("7")),
            ("/t", None),
            ("/a", None),
            ("/a/2", None),
            ("/a/01", None),
            ("/0/0", None),
        ] {
            assert_eq!(pointer(text).scalar(body), Ok(found.map(str::to_owned)), "{text}");
        }
        assert_eq!(pointer("/a").scalar(br#"{"a":"1","a":"2"}"#), Err(NotCanonical::DuplicateMember));
    }

    #[test]
    fn pointer_tells_a_missing_value_from_a_different_shape() {
        let body = br#"{"data": [{"b": 1.10, "a": 12345678901234567890}], "none": null, "n": 1}"#;
        let value = |text: &str| Pointed::Value(text.to_owned());
        for (text, found) in [
            ("/data/0", value(r#"{"a":12345678901234567890,"b":1.1}"#)),
            ("/none", value("null")),
            ("/data/1", Pointed::Missing),
            ("/other", Pointed::Missing),
            ("/data/x", Pointed::NoPlace),
            ("/other/0", Pointed::NoPlace),
            ("/n/0", Pointed::NoPlace),
            ("/none/0", Pointed::NoPlace),
        ] {
            assert_eq!(pointer(text).point(body), Ok(found), "{text}");
        }
        assert_eq!(pointer("/0").point(b"[]"), Ok(Pointed::Missing));
        assert_eq!(pointer("/0").point(br#"{"error": 1}"#), Ok(Pointed::NoPlace), "there is no list");
        assert!(pointer("/0").point(b"<html>").is_err());
    }
}
