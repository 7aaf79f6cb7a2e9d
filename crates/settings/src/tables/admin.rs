//! `[[admin.token]]`: the tokens of the admin listener: their names, roles and sources, never the tokens themselves. `sso` has
//! `[admin.sso]`.

use std::net::{IpAddr, SocketAddr};

use crate::engine::findings::Findings;
use crate::engine::kind::{Choice, Maybe, ValueKind, ValueRefusal, Words, quoted};
use crate::engine::setting::{Setting, setting};
use crate::engine::source::Origin;
use crate::engine::table::{collected, read_table};
use crate::engine::value::{NamedValue, SettingValue, Table, ValueContent};
use crate::parts::secret::{SecretSource, SecretTable, one_source};
use crate::parts::text::{CommandLine, FilePath, VariableName};
use crate::tables::sso::{self, ADMIN_SSO, SsoTable};

/// A token that opens the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// The name of its owner in logs and notes.
    pub name: String,
    /// The role of its owner.
    pub role: Role,
    /// The source of the token.
    pub source: SecretSource,
}

impl AdminToken {
    /// Returns the path of the setting that names its source.
    pub fn setting(&self) -> String {
        format!("admin.token.{}.{}", self.name, self.source.setting())
    }
}

/// The rights of a caller at the admin listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// May view everything except bodies.
    Viewer,
    /// May view everything, and act.
    Operator,
}

impl Role {
    /// Returns its name in the configuration and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
        }
    }
}

impl Words for Role {
    const WORDS: &'static [(&'static str, Self)] = &[("viewer", Role::Viewer), ("operator", Role::Operator)];
}

/// The `[admin]` table, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdminTable {
    pub(crate) tokens: Vec<TokenTable>,
    /// `[admin.sso]`, and where it begins; `None` without it.
    pub(crate) sso: Option<(Origin, SsoTable)>,
    /// True if some tokens, or `[admin.sso]`, could not be read.
    are_more: bool,
}

/// One `[[admin.token]]`, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenTable {
    pub(crate) name: Option<String>,
    pub(crate) role: Option<Role>,
    pub(crate) secret: SecretTable,
}

/// `[[admin.token]]`: exactly one of `file`, `env` and `command`.
pub(crate) const ADMIN_TOKEN: &[Setting<TokenTable>] = &[
    setting!("name", Maybe<TokenName>, name, "Name of the token's holder, in logs and notes", "\"alice\""),
    setting!(
        "role",
        Maybe<Choice<Role>>,
        role,
        "Rights of the token (to read all but bodies, or to read everything and act)",
        "\"viewer\""
    ),
    setting!(
        "file",
        Maybe<FilePath>,
        secret.file,
        "The file that holds the token: at least 32 characters",
        "\"/etc/semel/alice.token\""
    ),
    setting!(
        "env",
        Maybe<VariableName>,
        secret.env,
        "Or the environment variable that holds the token",
        "\"ADMIN_TOKEN_ALICE\""
    ),
    setting!(
        "command",
        Maybe<CommandLine>,
        secret.command,
        "Or the program that prints the token, with its arguments; run once at the start, without a shell",
        "[\"pass\", \"show\", \"semel/alice\"]"
    ),
];

impl AdminTable {
    /// Returns true if a token comes from this variable, which is no setting then.
    pub(crate) fn takes(&self, variable: &str) -> bool {
        self.tokens.iter().any(|token| token.secret.takes(variable))
    }
}

impl TokenTable {
    /// Returns the path of its settings: by its name, if that is usable.
    pub(crate) fn path(&self) -> String {
        self.name.as_ref().map_or_else(|| "admin.token".to_owned(), |name| format!("admin.token.{name}"))
    }
}

/// Reads the table.
pub(crate) fn read(findings: &mut Findings, target: &mut AdminTable, table: &Table) {
    for entry in table {
        let path = format!("admin.{}", entry.name);
        match entry.name.as_str() {
            "token" => {}
            "sso" => {
                read_sso(findings, target, entry);
                continue;
            }
            _ => {
                findings.unknown(entry, &path, ["token", "sso"]);
                continue;
            }
        }
        target.are_more |= !matches!(entry.value.content, ValueContent::List(_));
        for value in collected(findings, &path, entry) {
            match read_token(findings, &value) {
                Some(token) => target.tokens.push(token),
                None => target.are_more = true,
            }
        }
    }
}

fn read_sso(findings: &mut Findings, target: &mut AdminTable, entry: &NamedValue) {
    let ValueContent::Table(table) = &entry.value.content else {
        target.are_more = true;
        let message = format!("expected a table, written `[{}]`, found {}", sso::PATH, entry.value.content);
        return findings.error(entry.value.origin.clone(), sso::PATH, message);
    };
    let mut read = SsoTable::default();
    read_table(findings, sso::PATH, ADMIN_SSO, &mut read, table);
    target.sso = Some((entry.origin.clone(), read));
}

fn read_token(findings: &mut Findings, value: &SettingValue) -> Option<TokenTable> {
    let ValueContent::Table(entries) = &value.content else {
        let message = format!("expected a table, written `[[admin.token]]`, found {}", value.content);
        findings.error(value.origin.clone(), "admin.token", message);
        return None;
    };
    let name = entries.iter().find(|entry| entry.name == "name").map(|entry| &entry.value.content);
    let prefix = match name {
        Some(ValueContent::Text(name)) if TokenName::parse(name).is_ok() => format!("admin.token.{name}"),
        _ => "admin.token".to_owned(),
    };
    let mut token = TokenTable::default();
    read_table(findings, &prefix, ADMIN_TOKEN, &mut token, entries);
    for required in ["name", "role"] {
        if !entries.iter().any(|entry| entry.name == required) {
            let message = "missing: every token needs a `name`, which logs and notes show, and a `role`";
            findings.error(value.origin.clone(), &format!("{prefix}.{required}"), message);
        }
    }
    one_source(findings, &prefix, "the token", entries, &value.origin);
    Some(token)
}

/// Checks the tokens and returns them. Reports a public listener without tokens and single sign-on.
pub(crate) fn check(findings: &mut Findings, table: &AdminTable, listen: SocketAddr) -> Vec<AdminToken> {
    for (index, token) in table.tokens.iter().enumerate() {
        if token.name.is_some() && table.tokens[..index].iter().any(|other| other.name == token.name) {
            let path = format!("{}.name", token.path());
            findings.error(findings.origin(&path), &path, "another token has this name already");
        }
    }
    let is_open = table.tokens.is_empty() && table.sso.is_none() && !table.are_more;
    if is_open && !listen.ip().is_loopback() && findings.are_readable(&["admin_listen"]) {
        let message = format!(
            "{listen} is reachable from other machines, and without tokens anybody could use it: add an \
             `[[admin.token]]` or `[admin.sso]`, or listen on a loopback address such as 127.0.0.1"
        );
        findings.error(findings.origin("admin_listen"), "admin_listen", message);
    }
    let token = |token: &TokenTable| {
        Some(AdminToken { name: token.name.clone()?, role: token.role?, source: token.secret.source()? })
    };
    table.tokens.iter().filter_map(token).collect()
}

/// The name of a token.
pub(crate) struct TokenName;

impl ValueKind for TokenName {
    type Value = String;

    fn expected() -> String {
        "a name of 1 to 64 letters, digits, dots, dashes or underscores, such as \"alice\"".to_owned()
    }

    fn parse(text: &str) -> Result<String, ValueRefusal> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_name = (1..=64).contains(&text.len()) && text.chars().all(allowed);
        if is_name { Ok(text.to_owned()) } else { Err(ValueRefusal::Unexpected) }
    }

    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

/// A host as a browser names it, without a port.
pub(crate) struct HostName;

impl ValueKind for HostName {
    type Value = String;

    fn expected() -> String {
        "the name or the address of a host, without a port, such as \"admin.internal\"".to_owned()
    }

    fn parse(text: &str) -> Result<String, ValueRefusal> {
        if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Ok(address.to_string());
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > 253 || !text.chars().all(allowed) {
            return Err(ValueRefusal::Unexpected);
        }
        Ok(text.to_ascii_lowercase())
    }

    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_no_port() {
        for (text, host) in
            [("Admin.Internal", "admin.internal"), ("10.0.0.1", "10.0.0.1"), ("[::1]", "::1"), ("::1", "::1")]
        {
            assert_eq!(HostName::parse(text).ok().as_deref(), Some(host), "{text}");
        }
        for text in ["", "admin:9090", "http://admin", "a b", "admin/", "[admin]"] {
            assert!(HostName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn roles_are_in_order() {
        assert!(Role::Viewer < Role::Operator);
    }
}
