//! Callers whom a proxy in front of the admin listener has signed in: `[admin.sso]`.
//!
//! Invariant: a header counts only if its connection comes from a trusted proxy, and only if it can mean one name.

use std::net::IpAddr;

use http::HeaderName;
use http::header::HeaderMap;
use semel_core::text::steers;
use semel_settings::{AdminSso, Role, SsoMember};

use super::caller::{Caller, UnknownCaller};

/// Largest length of a user's name and of a group's, in bytes.
const MAX_NAME: usize = 256;

/// Identifies the caller by the headers of a trusted proxy. Returns `None` if no such proxy names a user.
pub(super) fn identify(
    sso: &AdminSso,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
) -> Result<Option<Caller>, UnknownCaller> {
    let is_trusted = peer.is_some_and(|peer| sso.proxies.iter().any(|proxy| proxy.contains(peer)));
    if !is_trusted || !headers.contains_key(&sso.user_header) {
        return Ok(None);
    }
    let user = line(headers, &sso.user_header)?.unwrap_or_default();
    let user = name(user)?;
    let groups = match &sso.groups_header {
        Some(header) => line(headers, header)?.unwrap_or_default(),
        None => "",
    };
    let groups: Vec<&str> = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).collect();
    // A quoted name may have a comma, which would make it two.
    if groups.iter().any(|group| group.contains('"')) {
        return Err(UnknownCaller::Unnamed);
    }
    groups.iter().try_for_each(|group| name(group).map(drop))?;
    let is_in = |members: &[SsoMember]| {
        members.iter().any(|member| match member {
            SsoMember::User(name) => name == user,
            SsoMember::Group(name) => groups.contains(&name.as_str()),
            SsoMember::Everybody => true,
        })
    };
    let role = match (is_in(&sso.operators), is_in(&sso.viewers)) {
        (true, _) => Role::Operator,
        (false, true) => Role::Viewer,
        (false, false) => return Err(UnknownCaller::NoRole),
    };
    Ok(Some(Caller { who: format!("sso:{user}"), role }))
}

/// Returns the only line of a header. Of two lines, one may be the client's.
fn line<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Result<Option<&'a str>, UnknownCaller> {
    let mut lines = headers.get_all(header).iter();
    let (first, None) = (lines.next(), lines.next()) else { return Err(UnknownCaller::Unnamed) };
    let text = first.map(|line| std::str::from_utf8(line.as_bytes())).transpose();
    text.map_err(|_| UnknownCaller::Unnamed)
}

/// Checks that a name says something and is safe to show.
fn name(text: &str) -> Result<&str, UnknownCaller> {
    let is_name = !text.trim().is_empty() && text.len() <= MAX_NAME && !text.chars().any(steers);
    if is_name { Ok(text) } else { Err(UnknownCaller::Unnamed) }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use semel_settings::ProxyRange;

    use super::*;

    const PROXY: [u8; 4] = [10, 0, 0, 1];

    fn sso() -> AdminSso {
        let user = |name: &str| SsoMember::User(name.to_owned());
        let group = |name: &str| SsoMember::Group(name.to_owned());
        AdminSso {
            proxies: vec![ProxyRange::new(PROXY.into(), 32)],
            user_header: HeaderName::from_static("x-user"),
            groups_header: Some(HeaderName::from_static("x-groups")),
            operators: vec![user("olga"), group("oncall")],
            viewers: vec![user("vera"), group("support")],
        }
    }

    fn of(lines: &[(&'static str, &[u8])], peer: [u8; 4]) -> Result<Option<Caller>, UnknownCaller> {
        of_sso(&sso(), lines, peer)
    }

    fn of_sso(
        sso: &AdminSso,
        lines: &[(&'static str, &[u8])],
        peer: [u8; 4],
    ) -> Result<Option<Caller>, UnknownCaller> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value).expect("it is a value"));
        }
        identify(sso, &headers, Some(peer.into()))
    }

    #[test]
    fn a_proxy_names_the_user_and_the_lists_give_the_role() {
        for (user, groups, role) in [
            ("olga", "", Role::Operator),
            ("vera", "", Role::Viewer),
            ("vera", "support, oncall", Role::Operator),
            ("emil", "x,,support ,", Role::Viewer),
            ("Zoë", "oncall", Role::Operator),
        ] {
            let caller = of(&[("x-user", user.as_bytes()), ("x-groups", groups.as_bytes())], PROXY);
            let caller = caller.expect("it is a name").expect("the proxy is trusted");
            assert_eq!((caller.who, caller.role), (format!("sso:{user}"), role), "{groups}");
        }
        let everybody = AdminSso { viewers: vec![SsoMember::Everybody], ..sso() };
        let emil = of_sso(&everybody, &[("x-user", b"emil")], PROXY).expect("it is a name");
        assert_eq!(emil.map(|caller| caller.role), Some(Role::Viewer));
    }

    #[test]
    fn a_signed_in_user_in_no_list_has_no_role_and_a_group_is_no_user() {
        for (user, groups) in
            [("emil", ""), ("emil", "Oncall"), ("oncall", ""), ("group:oncall", ""), ("OLGA", "")]
        {
            let caller = of(&[("x-user", user.as_bytes()), ("x-groups", groups.as_bytes())], PROXY);
            assert_eq!(caller, Err(UnknownCaller::NoRole), "{user} {groups}");
        }
    }

    #[test]
    fn a_header_from_anybody_but_a_trusted_proxy_is_ignored() {
        assert_eq!(of(&[("x-user", b"olga")], [10, 0, 0, 2]), Ok(None));
        assert_eq!(of(&[("x-user", b"olga"), ("x-user", b"vera")], [127, 0, 0, 1]), Ok(None));
        assert_eq!(of(&[("x-groups", b"oncall")], PROXY), Ok(None), "groups alone name nobody");
        let mut headers = HeaderMap::new();
        headers.insert("x-user", HeaderValue::from_static("olga"));
        assert_eq!(identify(&sso(), &headers, None), Ok(None), "the peer is not known");
    }

    #[test]
    fn a_header_that_does_not_mean_one_name_is_refused() {
        let (long, right) = ("o".repeat(MAX_NAME + 1), "\u{202e}aglo");
        for lines in [
            &[("x-user", &b"olga"[..]), ("x-user", b"vera")][..],
            &[("x-user", b"olga"), ("x-user", b"olga")],
            &[("x-user", b"olga"), ("x-groups", b"a"), ("x-groups", b"oncall")],
            &[("x-user", b"")],
            &[("x-user", b" ")],
            &[("x-user", b"ol\tga")],
            &[("x-user", b"ol\xffga")],
            &[("x-user", right.as_bytes())],
            &[("x-user", long.as_bytes())],
            &[("x-user", b"olga"), ("x-groups", long.as_bytes())],
            &[("x-user", b"olga"), ("x-groups", b"on\xffcall")],
        ] {
            assert_eq!(of(lines, PROXY), Err(UnknownCaller::Unnamed), "{lines:?}");
        }
        assert!(
            of(&[("x-user", &b"v".repeat(MAX_NAME))], PROXY).is_err_and(|why| why == UnknownCaller::NoRole)
        );
    }
}
