//! Queries of addresses in shown text: their values may be credentials, so none is shown.

/// Text in place of a value.
const HIDDEN: &str = "***";
/// Beginnings of addresses that can have a query.
const SCHEMES: [&str; 2] = ["http://", "https://"];
/// Parts of a parameter's name that tell of a credential.
const CREDENTIALS: [&str; 5] = ["token", "key", "secret", "password", "signature"];

/// Returns a text, such as a value or a line of a file, with the values in the query of each address hidden. A value that is
/// a placeholder, such as `{operation_id}`, stays.
pub(crate) fn hide_queries(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((begin, end)) = next_query(rest) {
        shown.push_str(&rest[..begin]);
        let pairs: Vec<String> = rest[begin..end].split('&').map(hide).collect();
        shown.push_str(&pairs.join("&"));
        rest = &rest[end..];
    }
    shown + rest
}

/// Returns the name of a query's parameter that looks like a credential, if an address in this text has one.
pub(crate) fn credential(text: &str) -> Option<&str> {
    let (begin, end) = next_query(text)?;
    let is_credential = |(name, value): &(&str, &str)| {
        let name = name.to_ascii_lowercase();
        !value.is_empty() && !is_placeholder(value) && CREDENTIALS.iter().any(|part| name.contains(part))
    };
    let mut pairs = text[begin..end].split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(is_credential).map(|(name, _)| name).or_else(|| credential(&text[end..]))
}

/// Returns the place of the first query that an address in this text has.
fn next_query(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let found = SCHEMES.iter().filter_map(|scheme| text[from..].find(scheme)).min()?;
        let address = from + found;
        let length = text[address..].find(['"', '\'']).unwrap_or(text.len() - address);
        let end = address + length;
        match text[address..end].find('?') {
            Some(mark) => return Some((address + mark + 1, end)),
            None => from = end,
        }
    }
}

fn hide(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, value)) if value.is_empty() || is_placeholder(value) => format!("{name}={value}"),
        Some((name, _)) => format!("{name}={HIDDEN}"),
        // A query that is no list of parameters may be a token.
        None if pair.is_empty() || is_placeholder(pair) => pair.to_owned(),
        None => HIDDEN.to_owned(),
    }
}

fn is_placeholder(value: &str) -> bool {
    let name = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_queries_are_hidden_and_placeholders_stay() {
        for (text, shown) in [
            ("https://a/x?token=s3cret&id={operation_id}", "https://a/x?token=***&id={operation_id}"),
            ("url = \"https://a/x?k=v&w\"  # why?x=y", "url = \"https://a/x?k=***&***\"  # why?x=y"),
            ("[\"http://a/?a=1\", \"http://b/?b=2\"]", "[\"http://a/?a=***\", \"http://b/?b=***\"]"),
            ("[\"http://a/x\", \"http://b/?b={x}y\"]", "[\"http://a/x\", \"http://b/?b=***\"]"),
            ("https://a/x?empty=&{key_hash}", "https://a/x?empty=&{key_hash}"),
            ("postgres://h/db?sslmode=require", "postgres://h/db?sslmode=require"),
            ("is it? a=b", "is it? a=b"),
        ] {
            assert_eq!(hide_queries(text), shown);
        }
    }

    #[test]
    fn a_parameter_with_the_name_of_a_credential_is_found() {
        for (text, name) in [
            ("https://a/x?a=1&API_Key=s", Some("API_Key")),
            ("https://a/x?access_token=s", Some("access_token")),
            ("[\"http://a/?a=1\", \"http://b/?X-Signature=2\"]", Some("X-Signature")),
            ("https://a/x?key={operation_id}", None),
            ("https://a/x?token=&a=1", None),
            ("https://a/token=x", None),
        ] {
            assert_eq!(credential(text), name, "{text}");
        }
    }
}
