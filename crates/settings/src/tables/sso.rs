//! `[admin.sso]`: people whom a proxy in front of the admin listener has signed in, by the headers that it sets.

use http::{HeaderName, header};

use crate::engine::findings::Findings;
use crate::engine::kind::{List, Maybe, ValueKind, ValueRefusal, quoted};
use crate::engine::setting::{Setting, setting};
use crate::engine::source::Origin;
use crate::parts::proxies::ProxyRange;

/// Prefix of a group in a list of people.
const GROUP: &str = "group:";
/// Word for everybody.
const EVERYBODY: &str = "*";

/// Single sign-on at the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSso {
    /// Peers whose headers are believed; never empty.
    pub proxies: Vec<ProxyRange>,
    /// The header that names the user.
    pub user_header: HeaderName,
    /// The header that lists the user's groups, separated by commas, if there is one.
    pub groups_header: Option<HeaderName>,
    /// People who may act.
    pub operators: Vec<SsoMember>,
    /// People who may look.
    pub viewers: Vec<SsoMember>,
}

/// People in a list of `[admin.sso]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SsoMember {
    /// The user of this name.
    User(String),
    /// Every user in the group of this name.
    Group(String),
    /// Every user.
    Everybody,
}

impl ValueKind for SsoMember {
    type Value = SsoMember;

    fn expected() -> String {
        "a user, a group as \"group:NAME\", or \"*\" for every user".to_owned()
    }

    fn parse(text: &str) -> Result<SsoMember, ValueRefusal> {
        if text == EVERYBODY {
            return Ok(SsoMember::Everybody);
        }
        let group = text.strip_prefix(GROUP);
        let name = group.unwrap_or(text);
        if name.is_empty() || name.trim() != name || name.contains(char::is_control) {
            return Err(ValueRefusal::Unexpected);
        }
        if group.is_some() && name.contains(',') {
            return Err(ValueRefusal::Because("a comma separates groups, and is in no name".to_owned()));
        }
        Ok(group.map_or_else(|| SsoMember::User(name.to_owned()), |group| SsoMember::Group(group.to_owned())))
    }

    fn show(value: &SsoMember) -> Option<String> {
        Some(quoted(&match value {
            SsoMember::User(name) => name.clone(),
            SsoMember::Group(name) => format!("{GROUP}{name}"),
            SsoMember::Everybody => EVERYBODY.to_owned(),
        }))
    }
}

/// The `[admin.sso]` table, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct SsoTable {
    trusted_proxies: Option<Vec<ProxyRange>>,
    user_header: Option<HeaderName>,
    groups_header: Option<HeaderName>,
    operators: Option<Vec<SsoMember>>,
    viewers: Option<Vec<SsoMember>>,
}

/// `[admin.sso]`.
pub(crate) const ADMIN_SSO: &[Setting<SsoTable>] = &[
    setting!(
        "trusted_proxies",
        Maybe<List<ProxyRange>>,
        trusted_proxies,
        "Proxies that sign people in; the headers of any other peer are ignored",
        "[\"127.0.0.1\"]"
    ),
    setting!(
        "user_header",
        Maybe<HeaderName>,
        user_header,
        "The header that names the user; the proxy must replace it in every request",
        "\"X-Forwarded-User\""
    ),
    setting!(
        "groups_header",
        Maybe<HeaderName>,
        groups_header,
        "The header that lists the user's groups, separated by commas; the proxy must replace it, too",
        "\"X-Forwarded-Groups\""
    ),
    setting!(
        "operators",
        Maybe<List<SsoMember>>,
        operators,
        "Users and groups that may look at everything, and act",
        "[\"alice@example.com\", \"group:payments-oncall\"]"
    ),
    setting!(
        "viewers",
        Maybe<List<SsoMember>>,
        viewers,
        "Users and groups that may look at all but bodies",
        "[\"*\"]"
    ),
];

/// The path of the table.
pub(crate) const PATH: &str = "admin.sso";
const REQUIRED: [&str; 2] = ["admin.sso.trusted_proxies", "admin.sso.user_header"];
const OPERATORS: &str = "admin.sso.operators";
const VIEWERS: &str = "admin.sso.viewers";
const GROUPS_HEADER: &str = "admin.sso.groups_header";

/// Headers that are no names: credentials, and the address of the request.
const OTHER_HEADERS: [HeaderName; 4] =
    [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION, header::HOST];

/// Checks the table, and returns it if its settings are consistent. The table itself begins at `origin`.
pub(crate) fn check(findings: &mut Findings, table: &SsoTable, origin: &Origin) -> Option<AdminSso> {
    for path in REQUIRED.into_iter().filter(|path| !findings.is_set(path)).collect::<Vec<_>>() {
        findings.error(origin.clone(), path, "missing: single sign-on needs it");
    }
    if table.trusted_proxies.as_ref().is_some_and(Vec::is_empty) {
        let message = "is empty, so nobody could sign in: list the address of at least one proxy";
        findings.error(findings.origin(REQUIRED[0]), REQUIRED[0], message);
    }
    for (path, header) in [(REQUIRED[1], &table.user_header), (GROUPS_HEADER, &table.groups_header)] {
        if let Some(header) = header.as_ref().filter(|header| OTHER_HEADERS.contains(header)) {
            let message =
                format!("`{header}` has another meaning: expected a header that only the proxy sets");
            findings.error(findings.origin(path), path, message);
        }
    }
    if table.groups_header.is_some() && table.groups_header == table.user_header {
        findings.error(findings.origin(GROUPS_HEADER), GROUPS_HEADER, "is the same header as `user_header`");
    }
    let [operators, viewers] =
        [&table.operators, &table.viewers].map(|list| list.clone().unwrap_or_default());
    people(findings, [&operators, &viewers], origin);
    Some(AdminSso {
        proxies: table.trusted_proxies.clone()?,
        user_header: table.user_header.clone()?,
        groups_header: table.groups_header.clone(),
        operators,
        viewers,
    })
}

/// Checks the lists of people: of operators, and of viewers.
fn people(findings: &mut Findings, [operators, viewers]: [&[SsoMember]; 2], origin: &Origin) {
    if operators.contains(&SsoMember::Everybody) {
        let message =
            "\"*\" would make every user an operator: name users and groups, or put \"*\" into `viewers`";
        findings.error(findings.origin(OPERATORS), OPERATORS, message);
    }
    if operators.is_empty() && viewers.is_empty() && findings.are_readable(&[OPERATORS, VIEWERS]) {
        let message = "missing: without `operators` and `viewers` nobody could sign in";
        findings.error(origin.clone(), OPERATORS, message);
    }
    let is_group = |member: &SsoMember| matches!(member, SsoMember::Group(_));
    for (path, members) in [(OPERATORS, operators), (VIEWERS, viewers)] {
        if members.iter().any(is_group) && !findings.is_set(GROUPS_HEADER) {
            findings.error(findings.origin(path), path, "names a group, which needs `groups_header`");
        }
    }
}

/// Warns of proxies that are everybody.
pub(crate) fn warn(findings: &mut Findings, sso: &AdminSso) {
    if let Some(range) = sso.proxies.iter().find(|range| range.is_everybody()) {
        let message = format!(
            "{range} includes every address: anybody who reaches `admin_listen` can claim to be anybody"
        );
        findings.warn(REQUIRED[0], message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_a_user_a_group_or_everybody() {
        for (text, member) in [
            ("alice@example.com", SsoMember::User("alice@example.com".to_owned())),
            ("group:on call", SsoMember::Group("on call".to_owned())),
            ("*", SsoMember::Everybody),
            ("group:*", SsoMember::Group("*".to_owned())),
        ] {
            assert_eq!(SsoMember::parse(text).ok(), Some(member.clone()), "{text}");
            assert_eq!(SsoMember::show(&member), Some(quoted(text)));
        }
        for text in ["", "group:", " alice", "group: a", "a\nb", "group:a,b"] {
            assert!(SsoMember::parse(text).is_err(), "{text:?}");
        }
    }
}
