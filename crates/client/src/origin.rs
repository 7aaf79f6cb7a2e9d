//! Origins: scheme, host and port of an address, in one form. Called wherever two addresses are compared.

use url::Url;

/// Returns the origin of an http or https address; `None` for anything else, and for one with credentials.
pub(crate) fn origin_of(url: &Url) -> Option<String> {
    let is_http = matches!(url.scheme(), "http" | "https");
    if !is_http || !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    Some(format!("{}://{}:{}", url.scheme(), url.host_str()?, url.port_or_known_default()?))
}

/// Returns the origin of a text that is an origin and nothing more.
pub(crate) fn parse_origin(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    if is_bare { origin_of(&url) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_one_form() {
        let origin = |text: &str| origin_of(&Url::parse(text).expect("an address"));
        assert_eq!(origin("HTTPS://Pay.Example/a?b#c").as_deref(), Some("https://pay.example:443"));
        assert_eq!(origin("http://[::1]:8080/").as_deref(), Some("http://[::1]:8080"));
        assert_eq!(origin("http://user:secret@pay.example/"), None);
        assert_eq!(origin("ftp://pay.example/"), None);
    }

    #[test]
    fn a_named_origin_has_no_path() {
        assert_eq!(parse_origin("http://pay.example").as_deref(), Some("http://pay.example:80"));
        assert_eq!(parse_origin("http://pay.example/api"), None);
        assert_eq!(parse_origin("pay.example"), None);
    }
}
