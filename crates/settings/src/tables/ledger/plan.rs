//! Plan of a comparison: checks and combines its settings, from the configuration and from the command line.

use std::borrow::Cow;
use std::path::Path;

use semel_core::ledger::{Format, LedgerColumns};

use crate::engine::addresses::AddressChecks;
use crate::parts::service::{ServiceAddress, TlsFault};
use crate::tables::ledger::comparison::{
    INPUT, LedgerComparison, LedgerSettings, LedgerSide, LedgerSource, LedgerUrl, STORE,
};

/// Largest number of compared values.
const MAX_COMPARED: usize = 32;

/// Setting of a comparison that conflicts with the others.
#[derive(Debug, PartialEq, Eq)]
pub struct LedgerFault {
    /// Setting by its name in the configuration.
    pub setting: Cow<'static, str>,
    /// Fault, and its correction.
    pub message: String,
}

fn refuse<T>(setting: &'static str, message: impl Into<String>) -> Result<T, LedgerFault> {
    Err(LedgerFault { setting: setting.into(), message: message.into() })
}

/// Checks the settings of a comparison, and combines them. `grace_is_set` is false if `grace` is the default.
///
/// # Errors
/// Returns the first fault.
pub fn plan(
    settings: &LedgerSettings,
    grace_is_set: bool,
    checks: &AddressChecks,
) -> Result<LedgerComparison, LedgerFault> {
    let ours_is_store = settings.ours == STORE;
    let Some(their_place) = &settings.theirs else {
        return refuse("theirs", "missing: the other ledger, a file or an address");
    };
    let our_source = our_source(settings)?;
    let their_source = their_source(settings, their_place, checks)?;
    if our_source.is_input() && their_source.is_input() {
        return refuse("theirs", "only one of the two can be the standard input");
    }
    their_credential(settings, &their_source)?;
    their_tls(settings, &their_source)?;
    store_settings(settings, ours_is_store)?;
    let Some(their_reference) = settings.their_reference.as_ref().or(settings.reference.as_ref()) else {
        return refuse("reference", "missing: the column or member that identifies an entry in both ledgers");
    };
    if settings.reference.is_none() && !ours_is_store {
        return refuse(
            "reference",
            "missing: the column or member in our ledger; `their_reference` is for theirs only",
        );
    }
    let their_compare = match &settings.their_compare[..] {
        [] => &settings.compare,
        names if names.len() == settings.compare.len() => &settings.their_compare,
        names => {
            let message = format!(
                "has {} names, and `compare` has {}: both need the same number",
                names.len(),
                settings.compare.len()
            );
            return refuse("their_compare", message);
        }
    };
    if settings.compare.len() > MAX_COMPARED {
        return refuse("compare", format!("more than {MAX_COMPARED} values"));
    }
    let their_time = settings.their_time.as_ref().or(settings.time.as_ref());
    if !ours_is_store && their_time.is_none() {
        let named = [("grace", grace_is_set), ("max_age", settings.max_age.is_some())];
        if let Some((setting, _)) = named.into_iter().find(|(_, is_set)| *is_set) {
            return refuse(
                setting,
                "needs the age of entries: name the column or member with their time in `time`",
            );
        }
    }
    let ours = LedgerSide {
        source: our_source,
        columns: LedgerColumns {
            reference: settings.reference.clone().unwrap_or_default(),
            compare: settings.compare.clone(),
            time: settings.time.clone(),
            filter: settings.our_filter.clone(),
            strip_suffix: None,
        },
    };
    let theirs = LedgerSide {
        source: their_source,
        columns: LedgerColumns {
            reference: their_reference.clone(),
            compare: their_compare.clone(),
            time: their_time.cloned(),
            filter: settings.their_filter.clone(),
            strip_suffix: settings.strip_suffix.clone(),
        },
    };
    Ok(LedgerComparison { ours, theirs, grace: settings.grace, max_age: settings.max_age })
}

impl LedgerSource {
    fn is_input(&self) -> bool {
        matches!(self, LedgerSource::Input(_))
    }
}

fn our_source(settings: &LedgerSettings) -> Result<LedgerSource, LedgerFault> {
    match settings.ours.as_str() {
        STORE => Ok(LedgerSource::Store { operation: settings.operation.clone() }),
        address if is_address(address) => {
            refuse("ours", "an address is for their ledger only: ours is \"store\" or a file")
        }
        place => local(place, settings.format, "ours", "format"),
    }
}

fn their_source(
    settings: &LedgerSettings,
    place: &str,
    checks: &AddressChecks,
) -> Result<LedgerSource, LedgerFault> {
    let format = settings.their_format.or(settings.format);
    match place {
        STORE => refuse("theirs", "the store is our ledger; a file of that name is \"./store\""),
        address if is_address(address) => Ok(LedgerSource::Url(Box::new(LedgerUrl {
            address: parse_address(address, checks)?,
            format,
            authorization_env: settings.authorization_env.clone(),
            timeout: settings.timeout,
            max_size: settings.max_size,
            tls: settings.tls.clone(),
        }))),
        place => local(place, format, "theirs", "their_format"),
    }
}

fn is_address(place: &str) -> bool {
    place.contains("://")
}

fn parse_address(text: &str, checks: &AddressChecks) -> Result<ServiceAddress, LedgerFault> {
    let address = ServiceAddress::new(text);
    if address.as_ref().is_some_and(|address| address.authority().contains('@')) {
        return refuse(
            "theirs",
            "credentials do not belong in the address: `authorization_env` names a variable for them",
        );
    }
    let expected = "expected an address such as \"https://provider.example/charges.ndjson\"";
    match ((checks.service)(text), address) {
        (Ok(()), Some(address)) => Ok(address),
        (Err(why), _) => refuse("theirs", format!("{expected}: {why}")),
        (Ok(()), None) => refuse("theirs", expected),
    }
}

fn local(
    place: &str,
    format: Option<Format>,
    setting: &'static str,
    format_setting: &'static str,
) -> Result<LedgerSource, LedgerFault> {
    if place == INPUT {
        return match format {
            Some(format) => Ok(LedgerSource::Input(format)),
            None => refuse(format_setting, "missing: the format of the standard input: csv, ndjson or json"),
        };
    }
    if place.is_empty() {
        return refuse(setting, "expected the name of a file");
    }
    let path = Path::new(place);
    match format.or_else(|| Format::of_path(path)) {
        Some(format) => Ok(LedgerSource::File(path.to_owned(), format)),
        None => {
            let message =
                format!("missing: the name {place:?} does not show the format: csv, ndjson or json");
            refuse(format_setting, message)
        }
    }
}

fn their_credential(settings: &LedgerSettings, source: &LedgerSource) -> Result<(), LedgerFault> {
    match (&settings.authorization_env, source) {
        (Some(_), LedgerSource::Store { .. } | LedgerSource::File(..) | LedgerSource::Input(_)) => {
            refuse("authorization_env", "goes with an address only, and `theirs` is not an address")
        }
        (Some(name), LedgerSource::Url(_)) if name.contains(['=', '\0']) => {
            refuse("authorization_env", "expected the name of a variable")
        }
        (Some(_) | None, _) => Ok(()),
    }
}

/// Checks that TLS files are given with an https:// address only.
fn their_tls(settings: &LedgerSettings, source: &LedgerSource) -> Result<(), LedgerFault> {
    let is_encrypted = matches!(source, LedgerSource::Url(url) if url.address.is_encrypted());
    match settings.tls.faults("", is_encrypted).into_iter().next() {
        Some(TlsFault { setting, message }) => Err(LedgerFault { setting: setting.into(), message }),
        None => Ok(()),
    }
}

/// Checks the settings for the store, which has only operation ids and times that a provider could know.
fn store_settings(settings: &LedgerSettings, ours_is_store: bool) -> Result<(), LedgerFault> {
    if !ours_is_store {
        return match &settings.operation {
            Some(_) => refuse("operation", "goes with `ours = \"store\"` only"),
            None => Ok(()),
        };
    }
    let only_files = [
        ("compare", !settings.compare.is_empty()),
        ("their_compare", !settings.their_compare.is_empty()),
        ("our_filter", !settings.our_filter.is_empty()),
    ];
    match only_files.into_iter().find(|(_, is_set)| *is_set) {
        Some((setting, _)) => {
            refuse(setting, "our ledger is the store, which is compared by operation id only: remove it")
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use semel_core::ledger::Condition;

    use super::*;
    use crate::parts::service::ServiceTls;
    use crate::tests::CHECKS;

    fn files() -> LedgerSettings {
        let text = |text: &str| Some(text.to_owned());
        LedgerSettings {
            ours: "a.csv".into(),
            theirs: text("b.json"),
            reference: text("id"),
            ..LedgerSettings::default()
        }
    }

    fn files_for_tls() -> ServiceTls {
        ServiceTls { ca: Some("ca.crt".into()), ..ServiceTls::default() }
    }

    #[test]
    fn the_other_ledger_has_our_column_names_unless_set() {
        let names = vec!["amount".to_owned()];
        let settings = LedgerSettings { compare: names.clone(), time: Some("at".to_owned()), ..files() };
        let plan = plan(&settings, false, &CHECKS).expect("it goes together");
        assert_eq!(plan.theirs.columns, plan.ours.columns);
        assert_eq!(plan.ours.source, LedgerSource::File("a.csv".into(), Format::Csv));
        assert_eq!(plan.theirs.source, LedgerSource::File("b.json".into(), Format::Json));
        let settings = LedgerSettings {
            their_reference: Some("key".to_owned()),
            their_compare: vec!["value".to_owned()],
            their_time: Some("created".to_owned()),
            ..settings
        };
        let plan = super::plan(&settings, true, &CHECKS).expect("it goes together");
        assert_eq!((plan.ours.columns.reference, plan.theirs.columns.reference), ("id".into(), "key".into()));
        assert_eq!(plan.theirs.columns.compare, ["value"]);
        assert_eq!(plan.theirs.columns.time.as_deref(), Some("created"));
    }

    #[test]
    fn contradicting_ledger_settings_are_refused() {
        let text = |text: &str| Some(text.to_owned());
        let names = |count: usize| vec!["x".to_owned(); count];
        let store = || LedgerSettings { ours: "store".into(), ..files() };
        let at = |theirs: &str| LedgerSettings { theirs: text(theirs), ..files() };
        let condition = Condition { name: "a".to_owned(), value: "b".to_owned() };
        for (settings, setting, part) in [
            (LedgerSettings { theirs: None, ..files() }, "theirs", "missing"),
            (LedgerSettings { reference: None, ..files() }, "reference", "missing"),
            (
                LedgerSettings { reference: None, their_reference: text("x"), ..files() },
                "reference",
                "in our ledger",
            ),
            (at("store"), "theirs", "./store"),
            (at("ftp://a/b"), "theirs", "expected an address"),
            (at("http:///b"), "theirs", "expected an address"),
            (at("http://u:p@a/b"), "theirs", "credentials"),
            (at(""), "theirs", "the name of a file"),
            (at("b.txt"), "their_format", "does not show the format"),
            (at("-"), "their_format", "standard input"),
            (LedgerSettings { ours: "http://a/b.csv".into(), ..files() }, "ours", "for their ledger only"),
            (LedgerSettings { ours: "-".into(), format: Some(Format::Csv), ..at("-") }, "theirs", "only one"),
            (
                LedgerSettings { compare: names(2), their_compare: names(1), ..files() },
                "their_compare",
                "has 1 names",
            ),
            (LedgerSettings { compare: names(33), ..files() }, "compare", "more than 32"),
            (
                LedgerSettings { max_age: Some(Duration::ZERO), ..files() },
                "max_age",
                "needs the age of entries",
            ),
            (LedgerSettings { operation: text("a"), ..files() }, "operation", "goes with"),
            (LedgerSettings { authorization_env: text("A"), ..files() }, "authorization_env", "address only"),
            (
                LedgerSettings { authorization_env: text("A=b"), ..at("http://a/b") },
                "authorization_env",
                "name of a variable",
            ),
            (LedgerSettings { tls: files_for_tls(), ..at("http://a/b") }, "ca", "https://"),
            (LedgerSettings { tls: files_for_tls(), ..files() }, "ca", "https://"),
            (LedgerSettings { compare: names(1), ..store() }, "compare", "by operation id only"),
            (LedgerSettings { our_filter: vec![condition], ..store() }, "our_filter", "by operation id only"),
        ] {
            let refusal = plan(&settings, false, &CHECKS).expect_err(part);
            assert_eq!(refusal.setting, setting, "{refusal:?}");
            assert!(refusal.message.contains(part), "{refusal:?}");
        }
        assert_eq!(plan(&files(), true, &CHECKS).expect_err("nothing has an age").setting, "grace");
        assert!(plan(&store(), true, &CHECKS).is_ok(), "records have an age");
        assert!(plan(&LedgerSettings { tls: files_for_tls(), ..at("https://a/b") }, false, &CHECKS).is_ok());
    }
}
