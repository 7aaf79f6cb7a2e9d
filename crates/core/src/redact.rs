//! Hides passwords of URLs in shown text.

const HIDDEN: &str = "***";

/// Returns the text with the password of a URL (`scheme://user:password@host`, `?password=…`) hidden.
///
/// Made for lines of a file as much as for values, so it rather hides too much: a password may itself hold an
/// `@`, a slash, a quote or a blank.
pub fn redact(text: &str) -> String {
    redact_parameter(&redact_userinfo(text))
}

fn redact_userinfo(text: &str) -> String {
    let hidden = || {
        // A typing mistake in the scheme or the slashes must not reveal a password, nor must slashes in the
        // password.
        let is_known = |scheme: &str| scheme.contains("postgre") || scheme.contains("mysql");
        let known = text.split_once(':').filter(|(scheme, _)| is_known(scheme));
        let (_, rest) = known.or_else(|| text.split_once("://"))?;
        let rest = rest.trim_start_matches('/');
        let (userinfo, host) = rest.rsplit_once('@')?;
        let (user, password) = userinfo.split_once(':')?;
        // An `@` may belong to a parameter with a password: then the text after it does, too.
        let end = host.find(['&', '"', '\'']).unwrap_or(host.len());
        let host =
            if has_parameter(password) { format!("{HIDDEN}{}", &host[end..]) } else { host.to_owned() };
        let before = &text[..text.len() - rest.len()];
        Some(format!("{before}{user}:{HIDDEN}@{host}"))
    };
    hidden().unwrap_or_else(|| text.to_owned())
}

/// Returns true if there is a `password=` in the text.
fn has_parameter(text: &str) -> bool {
    text.to_ascii_lowercase().split("password").skip(1).any(|rest| rest.trim_start().starts_with('='))
}

/// Hides the text after each `password`, up to the end of a parameter or a quoted value.
fn redact_parameter(text: &str) -> String {
    const NAME: &str = "password";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    // Case-insensitive: the driver may not know the name, but a reader does.
    while let Some(at) = rest.to_ascii_lowercase().find(NAME) {
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
    fn redact_hides_passwords_and_keeps_the_rest_of_the_text() {
        for (text, shown) in [
            ("postgres://u:p@h/db", "postgres://u:***@h/db"),
            ("mysql://u:p@ss/w\"o rd@h:1/db", "mysql://u:***@h:1/db"),
            ("store = \"postgres://u:p@h/db\" # x", "store = \"postgres://u:***@h/db\" # x"),
            ("postgres://h/db?password=p&x=1", "postgres://h/db?password=***&x=1"),
            ("postgres://h/db?password=p&password=q", "postgres://h/db?password=***&password=***"),
            ("store = { password = \"p q\" }", "store = { password = \"***\" }"),
            ("postgres://h/db?PASSWORD=p&Password=q", "postgres://h/db?PASSWORD=***&Password=***"),
            ("postgres:/u:p@h/db", "postgres:/u:***@h/db"),
            ("postgres://u:p@q@h/db", "postgres://u:***@h/db"),
            ("postgres://u:p@h/db?password=q@r", "postgres://u:***@***"),
            ("postgres://h:1/db?password=q@r&x=1", "postgres://h:***@***&x=1"),
            ("store = \"postgres://u:p@h/db?password=q@r\" # x", "store = \"postgres://u:***@***\" # x"),
            ("postgres://u:password@h/db", "postgres://u:***@h/db"),
            ("http://u:p@q@h:80/x", "http://u:***@h:80/x"),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("sqlite:a@b:c", "sqlite:a@b:c"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }
}
