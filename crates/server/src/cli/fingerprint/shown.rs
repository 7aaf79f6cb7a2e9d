//! Shortened values without hidden characters, and without characters that steer a terminal.

/// Largest number of characters shown of a body.
const MAX_BODY_CHARS: usize = 200;
/// Largest number of characters shown of any other value.
pub(super) const MAX_VALUE_CHARS: usize = 80;
/// Largest number of characters shown of a JSON Pointer.
const MAX_POINTER_CHARS: usize = 300;
/// Number of characters shown before the first difference of two values that are too long.
pub(super) const LEAD_CHARS: usize = 16;

/// Returns a line with a field and its value, for people.
pub(super) fn line(name: &str, text: &str) -> String {
    format!("{name:16}  {text}").trim_end().to_owned()
}

/// Returns both values from shortly before their first difference, if they are too long.
pub(super) fn cut_pair(old: Option<&str>, new: Option<&str>) -> (Option<String>, Option<String>) {
    let start = match (old, new) {
        (Some(old), Some(new))
            if [old, new].iter().any(|text| text.chars().nth(MAX_VALUE_CHARS).is_some()) =>
        {
            let common = old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count();
            common.saturating_sub(LEAD_CHARS)
        }
        _ => 0,
    };
    (old.map(|text| cut(text, start)), new.map(|text| cut(text, start)))
}

/// Returns part of a text, with a mark at each omission.
pub(super) fn cut(text: &str, start: usize) -> String {
    cut_to(text, start, MAX_VALUE_CHARS)
}

/// Returns a JSON Pointer, shortened if it is too long.
pub(super) fn cut_pointer(pointer: &str) -> String {
    cut_to(pointer, 0, MAX_POINTER_CHARS)
}

fn cut_to(text: &str, start: usize, length: usize) -> String {
    let mut rest = text.chars().skip(start);
    let shown: String = rest.by_ref().take(length).collect();
    let [before, after] = [start > 0, rest.next().is_some()].map(|left_out| if left_out { "…" } else { "" });
    format!("{before}{shown}{after}")
}

/// Returns the beginning of a body.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    // A character has at most four bytes: no more of a large body is needed.
    let start = bytes.get(..4 * (MAX_BODY_CHARS + 1)).unwrap_or(bytes);
    cut_to(&String::from_utf8_lossy(start), 0, MAX_BODY_CHARS)
}

/// Returns a body from shortly before this byte.
pub(super) fn excerpt_from(bytes: &[u8], at: usize) -> String {
    let start = at.saturating_sub(LEAD_CHARS);
    let end = bytes.len().min(start + MAX_VALUE_CHARS);
    let [before, after] = [start > 0, end < bytes.len()].map(|left_out| if left_out { "…" } else { "" });
    format!("{before}{}{after}", String::from_utf8_lossy(&bytes[start.min(end)..end]))
}

/// Returns the text with hidden characters escaped, so that every difference is visible and nothing steers a
/// terminal.
pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    out
}
