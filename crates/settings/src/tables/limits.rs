//! `[limits]`: the quotas of tenants and callers, and `[[limit]]`: exceptions for single ones.

use std::time::Duration;

use semel_core::quota::{Allowance, Exception, Limits, Rate};

use crate::engine::findings::Findings;
use crate::engine::kind::{Maybe, OrOff, ValueKind, ValueRefusal, quoted};
use crate::engine::setting::{Setting, setting};
use crate::engine::table::read_table;
use crate::engine::units::{MAX_SIZE, parse_duration, parse_size, show_duration, show_size};
use crate::engine::value::{SettingValue, Table, ValueContent};
use crate::parts::text::PrincipalName;

/// `[limits]`.
pub(crate) const LIMITS: &[Setting<Limits>] = &[
    setting!(
        "tenant_new_keys",
        OrOff<PerTime>,
        tenant.new_keys,
        "Rate of commands with new keys, for each tenant"
    ),
    setting!(
        "tenant_lookups",
        OrOff<PerTime>,
        tenant.lookups,
        "Rate of commands and of questions about operations, for each tenant"
    ),
    setting!(
        "tenant_active_keys",
        OrOff<KeyCount>,
        tenant.active_keys,
        "Largest number of live keys, for each tenant"
    ),
    setting!(
        "tenant_stored_bytes",
        OrOff<Volume>,
        tenant.stored_bytes,
        "Largest size of all stored records, for each tenant"
    ),
    setting!(
        "caller_new_keys",
        OrOff<PerTime>,
        caller.new_keys,
        "Rate of commands with new keys, for each caller"
    ),
    setting!(
        "caller_lookups",
        OrOff<PerTime>,
        caller.lookups,
        "Rate of commands and of questions about operations, for each caller"
    ),
    setting!(
        "caller_active_keys",
        OrOff<KeyCount>,
        caller.active_keys,
        "Largest number of live keys, for each caller"
    ),
    setting!(
        "caller_stored_bytes",
        OrOff<Volume>,
        caller.stored_bytes,
        "Largest size of all stored records, for each caller"
    ),
];

/// `[[limit]]`.
pub(crate) const LIMIT: &[Setting<LimitTable>] = &[
    setting!("tenant", Maybe<PrincipalName>, tenant, "Tenant of the limit", "\"acme\""),
    setting!(
        "caller",
        Maybe<PrincipalName>,
        caller,
        "Caller of the limit; without it, all callers of the tenant together",
        "\"batch\""
    ),
    setting!(
        "new_keys",
        Maybe<PerTime>,
        allowance.new_keys,
        "Rate of commands with new keys, in place of [limits]",
        "\"2000/s\""
    ),
    setting!(
        "lookups",
        Maybe<PerTime>,
        allowance.lookups,
        "Rate of commands and of questions about operations, in place of [limits]",
        "\"20000/s\""
    ),
    setting!(
        "active_keys",
        Maybe<KeyCount>,
        allowance.active_keys,
        "Largest number of live keys, in place of [limits]",
        "10000000"
    ),
    setting!(
        "stored_bytes",
        Maybe<Volume>,
        allowance.stored_bytes,
        "Largest size of all stored records, in place of [limits]",
        "\"100GiB\""
    ),
];

/// A `[[limit]]`, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitTable {
    pub(crate) tenant: Option<String>,
    pub(crate) caller: Option<String>,
    pub(crate) allowance: Allowance,
}

impl LimitTable {
    /// Returns the table of an exception.
    pub(crate) fn of(exception: Exception) -> LimitTable {
        let Exception { tenant, caller, allowance } = exception;
        LimitTable { tenant: Some(tenant), caller, allowance }
    }
}

/// Returns the path of an exception's settings.
pub(crate) fn path(tenant: &str, caller: Option<&str>) -> String {
    let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    match caller {
        None if plain(tenant) => format!("limit.{tenant}"),
        Some(caller) if plain(tenant) && plain(caller) => format!("limit.{tenant}.{caller}"),
        None | Some(_) => "limit".to_owned(),
    }
}

/// Reads one `[[limit]]`.
pub(crate) fn read(findings: &mut Findings, value: &SettingValue) -> Option<Exception> {
    let ValueContent::Table(entries) = &value.content else {
        let message = format!("expected a table, written `[[limit]]`, found {}", value.content);
        findings.error(value.origin.clone(), "limit", message);
        return None;
    };
    let tenant = text(entries, "tenant");
    let prefix = tenant.map_or_else(|| "limit".to_owned(), |tenant| path(tenant, text(entries, "caller")));
    let mut table = LimitTable::default();
    read_table(findings, &prefix, LIMIT, &mut table, entries);
    if !entries.iter().any(|entry| entry.name == "tenant") {
        let message = "missing: the tenant of the limit";
        findings.error(value.origin.clone(), &format!("{prefix}.tenant"), message);
    }
    if table.allowance == Allowance::default() {
        let message = "expected at least one of `new_keys`, `lookups`, `active_keys` and `stored_bytes`";
        findings.error(value.origin.clone(), &prefix, message);
    }
    Some(Exception { tenant: table.tenant?, caller: table.caller, allowance: table.allowance })
}

fn text<'a>(entries: &'a Table, name: &str) -> Option<&'a str> {
    match entries.iter().find(|entry| entry.name == name).map(|entry| &entry.value.content) {
        Some(ValueContent::Text(text)) => Some(text),
        Some(_) | None => None,
    }
}

/// Checks that each exception occurs once, and warns of more new keys than look-ups.
pub(crate) fn check(findings: &mut Findings, limits: &Limits) {
    let exceptions = &limits.exceptions;
    for (index, exception) in exceptions.iter().enumerate() {
        let is_same =
            |other: &Exception| other.tenant == exception.tenant && other.caller == exception.caller;
        if exceptions[..index].iter().any(is_same) {
            let path = format!("{}.tenant", path(&exception.tenant, exception.caller.as_deref()));
            findings.error(
                findings.origin(&path),
                &path,
                "another `[[limit]]` has the same tenant and caller",
            );
        }
    }
    for (whose, allowance) in [("tenant", limits.tenant), ("caller", limits.caller)] {
        if let (Some(new_keys), Some(lookups)) = (allowance.new_keys, allowance.lookups)
            && per_second(new_keys) > per_second(lookups)
        {
            let message = "a higher rate than that of look-ups: every new key is also a look-up, so it is never \
                 reached";
            findings.warn(&format!("limits.{whose}_new_keys"), message);
        }
    }
}

fn per_second(rate: Rate) -> f64 {
    f64::from(rate.count()) / rate.per().as_secs_f64()
}

/// A rate: a count in a time.
pub(crate) struct PerTime;

impl ValueKind for PerTime {
    type Value = Rate;

    fn expected() -> String {
        "a rate such as \"100/s\", \"6000/m\" or \"50/10s\"".to_owned()
    }

    fn parse(text: &str) -> Result<Rate, ValueRefusal> {
        let (count, per) = text.split_once('/').ok_or(ValueRefusal::Unexpected)?;
        let count = count.trim().parse().map_err(|_| ValueRefusal::Unexpected)?;
        let per = match per.trim() {
            unit @ ("s" | "m" | "h" | "d") => parse_duration(&format!("1{unit}")),
            time => parse_duration(time),
        };
        let per = per.filter(|per| (Duration::from_millis(1)..=LONGEST).contains(per));
        let per = per.ok_or(ValueRefusal::Unexpected)?;
        Rate::new(count, per).ok_or_else(|| {
            ValueRefusal::Because(
                "the count must be at least one, and at most one for each nanosecond".into(),
            )
        })
    }

    fn show(value: &Rate) -> Option<String> {
        let per = match value.per() {
            per if per == Duration::from_secs(1) => "s".to_owned(),
            per if per == Duration::from_secs(60) => "m".to_owned(),
            per if per == Duration::from_secs(3600) => "h".to_owned(),
            per if per == LONGEST => "d".to_owned(),
            per => show_duration(per),
        };
        Some(quoted(&format!("{}/{per}", value.count())))
    }
}

/// Longest period of a rate: use is forgotten after a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A number of keys.
pub(crate) struct KeyCount;

impl ValueKind for KeyCount {
    type Value = u64;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        "an integer of at least 1".to_owned()
    }

    fn parse(text: &str) -> Result<u64, ValueRefusal> {
        text.parse().ok().filter(|keys| (1..=u64::MAX / 2).contains(keys)).ok_or(ValueRefusal::Unexpected)
    }

    fn show(value: &u64) -> Option<String> {
        Some(value.to_string())
    }
}

/// A number of bytes on disk.
pub(crate) struct Volume;

impl ValueKind for Volume {
    type Value = u64;
    const BARE_INTEGER: bool = true;

    fn expected() -> String {
        format!("a size such as \"100MiB\" or \"10GiB\", at most {}", show_size(MAX_SIZE))
    }

    fn parse(text: &str) -> Result<u64, ValueRefusal> {
        parse_size(text).filter(|size| *size > 0).ok_or(ValueRefusal::Unexpected)
    }

    fn show(value: &u64) -> Option<String> {
        Some(quoted(&show_size(*value)))
    }
}
