//! Parser of the header `Idempotency-Key`: a quoted string, as the draft standard requires, or the bare text.

use axum::http::HeaderMap;

use super::refusal::Refusal;

/// Maximum length of a key, in characters.
const MAX_LENGTH: usize = 255;

/// Returns the key of a request, if it has one.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = |why: &str| Refusal::bad_request(format!("Idempotency-Key: {why}"));
    if values.next().is_some() {
        return Err(wrong("there is more than one"));
    }
    let text = value.to_str().map_err(|_| wrong("it has characters that are not ASCII"))?.trim();
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted).ok_or_else(|| wrong("its quotes do not match"))?,
        None => text.to_owned(),
    };
    match key.len() {
        0 => Err(wrong("it is empty")),
        length if length > MAX_LENGTH => Err(wrong(&format!("it is longer than {MAX_LENGTH} characters"))),
        _ => Ok(Some(key)),
    }
}

/// Returns the text before the closing quote, which must be the end.
fn unquote(text: &str) -> Option<String> {
    let mut key = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '"' => return characters.next().is_none().then_some(key),
            '\\' => key.push(characters.next().filter(|next| matches!(next, '"' | '\\'))?),
            character => key.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", value.parse().expect("it can be sent"));
        read(&headers).ok().flatten()
    }

    #[test]
    fn a_key_is_the_same_with_quotes_and_without() {
        assert_eq!(key("\"order-1\"").as_deref(), Some("order-1"));
        assert_eq!(key("order-1").as_deref(), Some("order-1"));
        assert_eq!(key(r#""a \"b\" \\ c""#).as_deref(), Some(r#"a "b" \ c"#));
    }

    #[test]
    fn an_invalid_key_is_refused() {
        for wrong in ["", "\"\"", "\"open", "\"a\"b", r#""\n""#, &"x".repeat(256)] {
            assert_eq!(key(wrong), None, "{wrong:?}");
        }
        assert!(matches!(read(&HeaderMap::new()), Ok(None)), "none is not wrong");
    }
}
