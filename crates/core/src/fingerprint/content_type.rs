//! A content type as the fingerprint reads it (RFC 9110, section 8.3).

/// A media type with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContentType {
    /// Type and subtype, in lower case.
    media_type: String,
    /// Parameters in the order sent: names in lower case, values without quotes.
    parameters: Vec<(String, String)>,
}

impl ContentType {
    /// Parses a value; `None` unless it is well-formed in every part.
    pub(super) fn parse(value: &[u8]) -> Option<ContentType> {
        let (media_type, mut rest) = split(str::from_utf8(value).ok()?);
        let (kind, name) = media_type.split_once('/')?;
        if !is_token(kind) || !is_token(name) {
            return None;
        }
        let mut parameters = Vec::new();
        while let Some(text) = rest {
            let (name, value) =
                text.trim_matches(BLANKS).split_once('=').filter(|(name, _)| is_token(name))?;
            let (value, after) = parameter(value)?;
            parameters.push((name.to_ascii_lowercase(), value));
            rest = after;
        }
        Some(ContentType { media_type: media_type.to_ascii_lowercase(), parameters })
    }

    /// Returns true for JSON, by its name or its suffix (RFC 6839, section 3.1).
    pub(super) fn is_json(&self) -> bool {
        self.media_type == "application/json" || has_json_suffix(&self.media_type)
    }

    pub(super) fn is_form(&self) -> bool {
        self.media_type == "application/x-www-form-urlencoded"
    }

    pub(super) fn is_multipart(&self) -> bool {
        self.media_type.starts_with("multipart/")
    }

    pub(super) fn is_message(&self) -> bool {
        self.media_type.starts_with("message/")
    }

    /// Returns true if the text is in UTF-8, as far as the parameters say.
    pub(super) fn is_utf8(&self) -> bool {
        self.only("charset")
            .is_none_or(|charset| charset.is_some_and(|charset| charset.eq_ignore_ascii_case("utf-8")))
    }

    /// Returns the boundary of a multipart body (RFC 2046, section 5.1.1), if there is exactly one and it is
    /// usable.
    pub(super) fn boundary(&self) -> Option<&str> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
        let boundary = self.only("boundary")??;
        let fits = (1..=70).contains(&boundary.len()) && !boundary.ends_with(' ');
        (fits && boundary.bytes().all(allowed)).then_some(boundary)
    }

    /// Returns the canonical text of the type, without a parameter of this name and value if it occurs once.
    pub(super) fn without(&self, name: &str, value: Option<&str>) -> Vec<u8> {
        let once = self.only(name).flatten().is_some();
        let is_left_out = |(other, own): &&(String, String)| {
            once && other == name && value.is_none_or(|value| own.eq_ignore_ascii_case(value))
        };
        let mut text = self.media_type.clone();
        for (name, value) in self.parameters.iter().filter(|parameter| !is_left_out(parameter)) {
            text.push(';');
            text.push_str(name);
            text.push('=');
            match is_token(value) {
                true => text.push_str(value),
                false => text.push_str(&quoted(value)),
            }
        }
        text.into_bytes()
    }

    /// Returns the value of a parameter that occurs; `Some(None)` if it occurs more than once.
    fn only(&self, name: &str) -> Option<Option<&str>> {
        let mut values =
            self.parameters.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str());
        values.next().map(|first| values.next().is_none().then_some(first))
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

/// Returns the media type, and the text after its semicolon.
fn split(value: &str) -> (&str, Option<&str>) {
    match value.split_once(';') {
        Some((media_type, rest)) => (media_type.trim_matches(BLANKS), Some(rest)),
        None => (value.trim_matches(BLANKS), None),
    }
}

/// Returns a parameter's value, and the text after the next semicolon.
fn parameter(text: &str) -> Option<(String, Option<&str>)> {
    let Some(inside) = text.strip_prefix('"') else {
        let (value, rest) = text.split_once(';').map_or((text, None), |(value, rest)| (value, Some(rest)));
        let value = value.trim_end_matches(BLANKS);
        return is_token(value).then(|| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut letters = inside.char_indices();
    loop {
        match letters.next()? {
            (end, '"') => {
                let after = inside[end + 1..].trim_start_matches(BLANKS);
                return match after.strip_prefix(';') {
                    Some(rest) => Some((value, Some(rest))),
                    None => after.is_empty().then_some((value, None)),
                };
            }
            (_, '\\') => {
                value.push(letters.next().map(|(_, letter)| letter).filter(|letter| !letter.is_control())?);
            }
            (_, letter) if letter.is_control() && letter != '\t' => return None,
            (_, letter) => value.push(letter),
        }
    }
}

fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for letter in value.chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
    text
}

pub(super) fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

/// Returns true if a value, which may be malformed otherwise, begins with a media type of JSON.
pub(super) fn has_json_media_type(value: &[u8]) -> bool {
    let media_type =
        str::from_utf8(value).map(|value| split(value).0.to_ascii_lowercase()).unwrap_or_default();
    ContentType { media_type, parameters: Vec::new() }.is_json()
}

/// Returns true for `type/name+json`, both parts of characters that RFC 6838 allows.
fn has_json_suffix(media_type: &str) -> bool {
    let restricted = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    media_type
        .strip_suffix("+json")
        .and_then(|prefix| prefix.split_once('/'))
        .is_some_and(|(kind, name)| restricted(kind) && restricted(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Option<ContentType> {
        ContentType::parse(value.as_bytes())
    }

    #[test]
    fn application_json_and_json_suffix_types_are_json_and_others_are_not() {
        for (content_type, expected) in [
            ("application/json", true),
            (" Application/JSON ; charset=UTF-8", true),
            ("application/problem+json;v=1", true),
            ("application/vnd.acme.v2+JSON", true),
            ("application/jsonl", false),
            ("text/json", false),
            ("+json", false),
            ("application/+json", false),
            ("text/plain, application/a+json", false),
            ("", false),
        ] {
            let is_json = parsed(content_type).is_some_and(|read| read.is_json());
            assert_eq!(is_json, expected, "{content_type}");
        }
    }

    #[test]
    fn equal_spellings_of_a_content_type_share_one_normalized_text() {
        let text = |value: &str| {
            let read = parsed(value).unwrap_or_else(|| panic!("{value} is well-formed"));
            String::from_utf8(read.without("charset", Some("utf-8"))).expect("it is text")
        };
        for (value, expected) in [
            ("Application/JSON", "application/json"),
            ("application/json; charset=utf-8", "application/json"),
            ("application/json;Charset=\"UTF-8\"", "application/json"),
            ("application/json; charset=utf-16", "application/json;charset=utf-16"),
            (
                "application/json; charset=utf-8; charset=utf-8",
                "application/json;charset=utf-8;charset=utf-8",
            ),
            ("application/json ; Version=1", "application/json;version=1"),
            ("application/json; version=\"1\" ;a=B", "application/json;version=1;a=B"),
            ("application/json; p=\"a \\\"b;c\"", "application/json;p=\"a \\\"b;c\""),
        ] {
            assert_eq!(text(value), expected, "{value}");
        }
        for malformed in [
            "",
            "json",
            "a/b;",
            "a/b; c",
            "a/b;c=",
            "a/b;c=d e",
            "a/b;c=\"d",
            "a/b;c=\"d\"e",
            "a/b;;c=d",
            "a/ b",
        ] {
            assert_eq!(parsed(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn empty_malformed_repeated_or_long_boundaries_are_refused() {
        let boundary = |parameters: &str| {
            parsed(&format!("multipart/form-data{parameters}"))?.boundary().map(str::to_owned)
        };
        assert_eq!(boundary("; boundary=abc").as_deref(), Some("abc"));
        assert_eq!(boundary("; Boundary=\"a b?\"").as_deref(), Some("a b?"));
        let long = format!("; boundary={}", "a".repeat(71));
        for unusable in [
            "",
            "; boundary=\"\"",
            "; boundary=\"a \"",
            "; boundary=\"a;\"",
            "; boundary=a; boundary=a",
            &long,
        ] {
            assert_eq!(boundary(unusable), None, "{unusable}");
        }
    }
}
