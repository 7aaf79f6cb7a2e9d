//! Forms (`application/x-www-form-urlencoded`) by their decoded pairs.

use super::append;

/// Returns the pairs in the order sent, each name and value with its length. A name without `=` differs from
/// one with an empty value. `None` if an escape is malformed.
pub(super) fn canonical(body: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(body.len() + 32);
    if body.is_empty() {
        return Some(text);
    }
    for pair in body.split(|byte| *byte == b'&') {
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = equals.map_or((pair, None), |at| (&pair[..at], Some(&pair[at + 1..])));
        append(&mut text, &decoded(name)?);
        text.push(u8::from(value.is_some()));
        if let Some(value) = value {
            append(&mut text, &decoded(value)?);
        }
    }
    Some(text)
}

fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                bytes.push(digit(high)? * 16 + digit(low)?);
                after
            }
            (b'%', _) => return None,
            (b'+', after) => {
                bytes.push(b' ');
                after
            }
            (plain, after) => {
                bytes.push(*plain);
                after
            }
        };
    }
    Some(bytes)
}
