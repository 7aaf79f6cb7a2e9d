//! `[[operation]]`: the rules for the commands of one route.

use semel_core::path::PathException;
use semel_core::policy::StoreResponse;
use semel_core::{JsonPointer, OperationName, Policy};

use crate::engine::findings::Findings;
use crate::engine::kind::{Choice, List, Maybe, Words, quoted};
use crate::engine::setting::{Setting, setting};
use crate::engine::table::{find, names};
use crate::engine::value::{SettingValue, Table, ValueContent};
use crate::parts::route::Route;
use crate::parts::scalar::Switch;
use crate::tables::authorization::{AUTHORIZATION, Authorization};
use crate::tables::defaults::{self, DEFAULTS};
use crate::tables::look_up::{self, LookUpConfig};

/// A rule for the commands of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationConfig {
    /// Name, which is part of the scope of its records.
    pub name: OperationName,
    /// Requests that the rule is for (`match`).
    pub route: Route,
    /// The policy: the defaults, with its own settings over them.
    pub policy: Policy,
    /// The service that authorizes callers: the default, with its own settings over it.
    pub authorization: Authorization,
    /// The member of the body that names the business transaction.
    pub business_reference: Option<JsonPointer>,
    /// Members of the body that are excluded from the fingerprint (`fingerprint_exclude`).
    pub exclude: Vec<JsonPointer>,
    /// Former names: their live records still count.
    pub aliases: Vec<OperationName>,
    /// Exceptions for its paths, which are refused by default.
    pub allow: Vec<PathException>,
    /// True if callers without credentials pass through unprotected when they send no key.
    pub anonymous: bool,
    /// The look-up of a command whose outcome is unknown.
    pub reconcile: Option<LookUpConfig>,
}

impl OperationConfig {
    /// Returns the names of its records: its own, and its former ones.
    pub fn names(&self) -> impl Iterator<Item = &OperationName> {
        std::iter::once(&self.name).chain(&self.aliases)
    }
}

/// Returns the path of an operation's settings. Its name is quoted if it is ambiguous: a name may have dots,
/// but `operation.a.reconcile` is the look-up of `a`.
pub(crate) fn path(name: &OperationName) -> String {
    let name = name.as_str();
    let is_plain = |part: &str| {
        !part.is_empty()
            && part != "reconcile"
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    if name.split('.').all(is_plain) {
        format!("operation.{name}")
    } else {
        format!("operation.{}", quoted(name))
    }
}

/// Settings of an `[[operation]]` beside its policy, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperationTable {
    pub(crate) name: Option<OperationName>,
    pub(crate) route: Option<Route>,
    pub(crate) business_reference: Option<JsonPointer>,
    pub(crate) exclude: Vec<JsonPointer>,
    pub(crate) aliases: Vec<OperationName>,
    pub(crate) allow: Vec<PathException>,
    pub(crate) anonymous: bool,
}

/// `[[operation]]`, beside those of [`DEFAULTS`] and [`AUTHORIZATION`].
pub(crate) const OPERATION: &[Setting<OperationTable>] = &[
    setting!(
        "name",
        Maybe<OperationName>,
        name,
        "Name of the operation in its records: under a new name, live keys look new",
        "\"payments.create\""
    ),
    setting!("match", Maybe<Route>, route, "Method and path of its requests", "\"POST /payments\""),
    setting!(
        "business_reference",
        Maybe<JsonPointer>,
        business_reference,
        "Member of the body whose value only one command may use",
        "\"/externalReference\""
    ),
    setting!(
        "fingerprint_exclude",
        List<JsonPointer>,
        exclude,
        "Members of the body that may differ between retries",
        "[\"/clientTimestamp\"]"
    ),
    setting!(
        "aliases",
        List<OperationName>,
        aliases,
        "Former names of the operation, whose live records still count",
        "[\"POST /payments\"]"
    ),
    setting!(
        "allow",
        List<Choice<PathException>>,
        allow,
        "Path spellings that its requests may have; elsewhere they are refused, because other programs may \
         read them differently",
        "[\"encoded-slash\"]"
    ),
    setting!(
        "anonymous",
        Switch,
        anonymous,
        "Passes on callers without credentials, unprotected and without a name, if they send no key"
    ),
];

impl Words for PathException {
    const WORDS: &'static [(&'static str, Self)] = &[
        (PathException::EncodedDot.as_str(), PathException::EncodedDot),
        (PathException::EncodedSlash.as_str(), PathException::EncodedSlash),
        (PathException::EncodedBackslash.as_str(), PathException::EncodedBackslash),
        (PathException::EncodedPercent.as_str(), PathException::EncodedPercent),
        (PathException::Semicolon.as_str(), PathException::Semicolon),
        (PathException::EmptySegment.as_str(), PathException::EmptySegment),
    ];
}

/// Reads one `[[operation]]`, which builds on the defaults.
pub(crate) fn read(
    findings: &mut Findings,
    (policy, authorization): (&Policy, &Authorization),
    value: &SettingValue,
) -> Option<OperationConfig> {
    let ValueContent::Table(entries) = &value.content else {
        let message = format!("expected a table, written `[[operation]]`, found {}", value.content);
        findings.error(value.origin.clone(), "operation", message);
        return None;
    };
    let prefix = path_of(entries);
    let (mut policy, mut authorization) = (policy.clone(), authorization.clone());
    let mut table = OperationTable::default();
    let mut asked = None;
    for entry in entries {
        let path = format!("{prefix}.{}", entry.name);
        if entry.name == "reconcile" {
            asked = look_up::read(findings, &path, entry);
        } else if let Some(setting) = find(OPERATION, &entry.name) {
            findings.read(setting, &mut table, &path, &entry.value);
        } else if let Some(setting) = find(DEFAULTS, &entry.name) {
            findings.read(setting, &mut policy, &path, &entry.value);
        } else if let Some(setting) = find(AUTHORIZATION, &entry.name) {
            findings.read(setting, &mut authorization, &path, &entry.value);
        } else {
            let known =
                names(OPERATION).chain(names(DEFAULTS)).chain(names(AUTHORIZATION)).chain(["reconcile"]);
            findings.unknown(entry, &path, known);
        }
    }
    for required in ["name", "match"] {
        let path = format!("{prefix}.{required}");
        if !entries.iter().any(|entry| entry.name == required) {
            let message = "missing: every operation has a `name` and a `match`";
            findings.error(value.origin.clone(), &path, message);
        }
    }
    defaults::follow_profile(
        findings,
        &[defaults::MIN_LENGTH, &format!("{prefix}.key_min_length")],
        &mut policy,
    );
    defaults::check(findings, &prefix, &policy);
    let OperationTable { name, route, business_reference, exclude, aliases, allow, anonymous } = table;
    let max_response = match policy.store_response {
        StoreResponse::Full => policy.max_stored_response,
        // A provider's result has no address here that it could be fetched from.
        StoreResponse::Headers | StoreResponse::Reference => 0,
    };
    let reconcile = asked.and_then(|asked| asked.finish(max_response));
    Some(OperationConfig {
        name: name?,
        route: route?,
        policy,
        authorization,
        business_reference,
        exclude,
        aliases: aliases.iter().map(OperationName::as_former).collect(),
        allow,
        anonymous,
        reconcile,
    })
}

/// Returns the path of the settings of an operation: by its name, if that is usable.
fn path_of(entries: &Table) -> String {
    let name = entries.iter().find(|entry| entry.name == "name").map(|entry| &entry.value.content);
    let name = match name {
        Some(ValueContent::Text(name)) => OperationName::new(name).ok(),
        _ => None,
    };
    name.map_or_else(|| "operation".to_owned(), |name| path(&name))
}
