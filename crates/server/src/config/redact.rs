//! Hides passwords of URLs in whatever text is shown.

const HIDDEN: &str = "***";

/// The text with the password of a URL (`scheme://user:password@host`, `?password=…`) hidden.
///
/// Made for lines of a file as much as for values, so it rather hides too much: a password may itself hold an
/// `@`, a slash, a quote or a blank.
pub(super) fn redact(text: &str) -> String {
    redact_parameter(&redact_userinfo(text))
}

fn redact_userinfo(text: &str) -> String {
    let hidden = || {
        let (scheme, rest) = text.split_once("://")?;
        let (userinfo, host) = rest.rsplit_once('@')?;
        let (user, _password) = userinfo.split_once(':')?;
        Some(format!("{scheme}://{user}:{HIDDEN}@{host}"))
    };
    hidden().unwrap_or_else(|| text.to_owned())
}

fn redact_parameter(text: &str) -> String {
    const NAME: &str = "password=";
    let Some(start) = text.find(NAME).map(|at| at + NAME.len()) else { return text.to_owned() };
    let end = text[start..].find(['&', '"', '\'']).map_or(text.len(), |length| start + length);
    format!("{}{HIDDEN}{}", &text[..start], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn passwords_are_hidden_and_nothing_else() {
        for (text, shown) in [
            ("postgres://u:p@h/db", "postgres://u:***@h/db"),
            ("mysql://u:p@ss/w\"o rd@h:1/db", "mysql://u:***@h:1/db"),
            ("store = \"postgres://u:p@h/db\" # x", "store = \"postgres://u:***@h/db\" # x"),
            ("postgres://h/db?password=p&x=1", "postgres://h/db?password=***&x=1"),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("sqlite:a@b:c", "sqlite:a@b:c"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }
}
