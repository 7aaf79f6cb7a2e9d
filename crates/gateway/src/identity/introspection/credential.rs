//! Token or session in a request.

use http::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use http::request::Parts;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use semel_settings::IntrospectionSettings;
use sha2::{Digest as _, Sha256};

use crate::identity::jwt::bearer;

/// Digest of a credential, which does not reveal it.
pub(super) type Digest = [u8; 32];

/// Bearer token, or cookie with its name.
#[derive(PartialEq, Eq)]
pub(super) enum Credential {
    Bearer(String),
    Session { cookie: String, value: String },
}

impl Credential {
    /// Returns the credential of a request; `None` if it has none.
    ///
    /// # Errors
    /// Returns the failed check. With two credentials, the upstream may use the other one.
    pub(super) fn of(
        parts: &Parts,
        settings: &IntrospectionSettings,
    ) -> Result<Option<Credential>, &'static str> {
        let bearer = bearer(parts)?;
        let session = match &settings.cookie {
            Some(name) => session(parts, name)?,
            None => None,
        };
        let is_beside = parts.headers.contains_key(AUTHORIZATION);
        let credential = match (bearer, session) {
            // Also beside a credential of another scheme: the upstream may use that one.
            (_, Some(_)) if is_beside => return Err("several"),
            (Some(_), Some(_)) => return Err("several"),
            (Some(token), None) => Credential::Bearer(token.to_owned()),
            (None, Some((cookie, value))) => Credential::Session { cookie, value },
            (None, None) => return Ok(None),
        };
        let text = credential.text();
        if text.len() > settings.max_token {
            return Err("length");
        }
        // Visible characters only, and none that would end a cookie.
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';') {
            true => Ok(Some(credential)),
            false => Err("form"),
        }
    }

    fn text(&self) -> &str {
        match self {
            Credential::Bearer(token) => token,
            Credential::Session { value, .. } => value,
        }
    }

    pub(super) fn digest(&self) -> Digest {
        // A token and a session of equal bytes are different credentials.
        let tag: &[u8] = match self {
            Credential::Bearer(_) => b"bearer\0",
            Credential::Session { .. } => b"session\0",
        };
        Sha256::new().chain_update(tag).chain_update(self.text()).finalize().into()
    }

    /// Returns the form body of RFC 7662, section 2.1.
    pub(super) fn form(&self) -> String {
        let token = utf8_percent_encode(self.text(), NON_ALPHANUMERIC);
        match self {
            Credential::Bearer(_) => format!("token={token}&token_type_hint=access_token"),
            Credential::Session { .. } => format!("token={token}"),
        }
    }

    /// Returns the header field that carries the credential like the client's.
    pub(super) fn field(&self) -> http::Result<(HeaderName, HeaderValue)> {
        let (name, text) = match self {
            Credential::Bearer(token) => (AUTHORIZATION, format!("Bearer {token}")),
            Credential::Session { cookie, value } => (COOKIE, format!("{cookie}={value}")),
        };
        let mut value = HeaderValue::try_from(text)?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// Returns the only cookie of this name, with its name.
fn session(parts: &Parts, name: &str) -> Result<Option<(String, String)>, &'static str> {
    let mut found = None;
    for pair in
        parts.headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
    {
        let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (own, value) = pair.split_at(equals);
        // Some readers trim names, and some take a name without a value.
        if own.trim_ascii() != name.as_bytes() {
            continue;
        }
        let value = value.strip_prefix(b"=").unwrap_or(value).trim_ascii();
        let value = str::from_utf8(value).map_err(|_| "cookie")?;
        if found.replace((name.to_owned(), value.to_owned())).is_some() {
            return Err("several");
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::introspection::tests::settings;

    fn credential(lines: &[(HeaderName, &'static str)]) -> Result<Option<Credential>, &'static str> {
        let mut request = http::Request::new(());
        for (name, value) in lines {
            request.headers_mut().append(name, HeaderValue::from_static(value));
        }
        let settings = IntrospectionSettings { cookie: Some("sid".to_owned()), max_token: 10, ..settings() };
        Credential::of(&request.into_parts().0, &settings)
    }

    #[test]
    fn exactly_one_bearer_token_or_session_cookie_is_accepted() {
        let bearer = |text: &str| Ok(Some(Credential::Bearer(text.to_owned())));
        let session =
            |value: &str| Ok(Some(Credential::Session { cookie: "sid".to_owned(), value: value.to_owned() }));
        for (lines, expected) in [
            (&[][..], Ok(None)),
            (&[(AUTHORIZATION, "Bearer a.b")], bearer("a.b")),
            (&[(COOKIE, "a=b; sid=x=y; c=d")], session("x=y")),
            (&[(COOKIE, "a=b"), (COOKIE, "sid=x")], session("x")),
            (&[(COOKIE, "SID=x"), (AUTHORIZATION, "Basic YTpi")], Ok(None)),
            (&[(COOKIE, "sid=x"), (AUTHORIZATION, "Basic YTpi")], Err("several")),
            (&[(COOKIE, "sid =x; sid=y")], Err("several")),
            (&[(COOKIE, "sid =x")], session("x")),
            (&[(COOKIE, "sid")], Err("form")),
            (&[(AUTHORIZATION, "Bearer\ta"), (COOKIE, "sid=x")], Err("several")),
            (&[(COOKIE, "sid=x; sid=y")], Err("several")),
            (&[(COOKIE, "sid=x"), (COOKIE, "sid=x")], Err("several")),
            (&[(AUTHORIZATION, "Bearer a"), (COOKIE, "sid=x")], Err("several")),
            (&[(AUTHORIZATION, "Bearer a"), (AUTHORIZATION, "Bearer a")], Err("several_authorization_lines")),
            (&[(AUTHORIZATION, "Bearer 12345678901")], Err("length")),
            (&[(AUTHORIZATION, "Bearer a b")], Err("form")),
            (&[(AUTHORIZATION, "Bearer ")], Err("form")),
            (&[(COOKIE, "sid=")], Err("form")),
        ] {
            assert!(credential(lines) == expected, "{lines:?}");
        }
        let mut request = http::Request::new(());
        request.headers_mut().append(COOKIE, HeaderValue::from_static("sid=x"));
        let foreign = HeaderValue::from_bytes(b"lang=\xe4").expect("it is a value");
        request.headers_mut().append(COOKIE, foreign);
        let settings = IntrospectionSettings { cookie: Some("sid".to_owned()), max_token: 10, ..settings() };
        assert!(
            Credential::of(&request.into_parts().0, &settings) == session("x"),
            "the others do not matter"
        );
    }

    #[test]
    fn a_token_and_a_session_of_the_same_bytes_are_two() {
        let (token, session) = (
            Credential::Bearer("x".to_owned()),
            Credential::Session { cookie: "sid".to_owned(), value: "x".to_owned() },
        );
        assert_ne!(token.digest(), session.digest());
        assert_eq!(
            Credential::Bearer("a+/=&".to_owned()).form(),
            "token=a%2B%2F%3D%26&token_type_hint=access_token"
        );
        assert_eq!(session.form(), "token=x");
    }
}
