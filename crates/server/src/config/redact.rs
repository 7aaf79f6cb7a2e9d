//! Hides passwords of URLs in whatever text is shown.

const HIDDEN: &str = "***";

/// The text with the password of a URL (`scheme://user:password@host`, `?password=…`) hidden.
///
/// Made for lines of a file as much as for values, so it rather hides too much: a password may itself hold an
/// `@`, a slash, a quote or a blank.
pub(crate) fn redact(text: &str) -> String {
    redact_parameter(&redact_userinfo(text))
}

fn redact_userinfo(text: &str) -> String {
    let hidden = || {
        // A slip in the scheme or the slashes is no reason to show what follows.
        let (scheme, rest) = text.split_once("://").map_or_else(
            || {
                text.split_once(':')
                    .filter(|(scheme, _)| scheme.contains("postgre") || scheme.contains("mysql"))
            },
            Some,
        )?;
        let (userinfo, host) = rest.rsplit_once('@')?;
        let (user, _password) = userinfo.split_once(':')?;
        let slashes = &text[scheme.len()..text.len() - rest.len()];
        Some(format!("{scheme}{slashes}{user}:{HIDDEN}@{host}"))
    };
    hidden().unwrap_or_else(|| text.to_owned())
}

/// Hides what follows each `password`, up to where a parameter or a quoted value ends.
fn redact_parameter(text: &str) -> String {
    const NAME: &str = "password";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(NAME) {
        let (before, after) = rest.split_at(at + NAME.len());
        shown.push_str(before);
        rest = after;
        let Some(value) = after.trim_start().strip_prefix('=') else { continue };
        let value = value.trim_start();
        let value = value.strip_prefix(['"', '\'']).unwrap_or(value);
        let end = value.find(['&', '"', '\'']).unwrap_or(value.len());
        shown.push_str(&after[..after.len() - value.len()]);
        shown.push_str(HIDDEN);
        rest = &value[end..];
    }
    shown + rest
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
            ("postgres://h/db?password=p&password=q", "postgres://h/db?password=***&password=***"),
            ("store = { password = \"p q\" }", "store = { password = \"***\" }"),
            ("postgres:/u:p@h/db", "postgres:/u:***@h/db"),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("sqlite:a@b:c", "sqlite:a@b:c"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }
}
