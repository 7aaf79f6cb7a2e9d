//! Combines the sources: defaults, file, variables, flags; then operations, which build on them.

use crate::catalogue::{KNOWN, TABLES};
use crate::check;
use crate::configuration::{Config, GENERAL};
use crate::engine::addresses::AddressChecks;
use crate::engine::diagnostic::{Diagnostic, Errors};
use crate::engine::findings::Findings;
use crate::engine::known::Advice;
use crate::engine::setting::{VARIABLE_PREFIX, variable};
use crate::engine::source::Origin;
use crate::engine::table::{collected, find, names, read_table};
use crate::engine::value::{NamedValue, SettingValue, Table, ValueContent, parse_file};
use crate::show::{EffectiveSetting, Rows};
use crate::sources::{FILE_VARIABLE, Sources};
use crate::tables::admin::{self, ADMIN_TOKEN, AdminTable};
use crate::tables::authorization::AUTHORIZATION;
use crate::tables::cors::CORS;
use crate::tables::defaults::{self, DEFAULTS};
use crate::tables::encryption::{self, ENCRYPTION, ENCRYPTION_KEY, EncryptionTable};
use crate::tables::identity::{self, IDENTITY, IdentityTable};
use crate::tables::ledger::{self, LEDGER, LedgerTable};
use crate::tables::limits::{self, LIMITS};
use crate::tables::maintenance::MAINTENANCE;
use crate::tables::operation;
use crate::tables::pass;
use crate::tables::reconcile::RECONCILE;
use crate::tables::server::SERVER;
use crate::tables::sso::{self, ADMIN_SSO};
use crate::tables::tls::{self, TLS, TlsTable, UPSTREAM_TLS, UpstreamTlsTable};
use crate::tables::traces::{self, TRACES, TraceTable};
use crate::tables::webhook;
use crate::warn;

/// A configuration that can be used, with its warnings and its origins.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Choices that weaken a guarantee, and variables without effect.
    pub warnings: Vec<Diagnostic>,
    /// Every effective setting with its value and its origin.
    pub rows: Vec<EffectiveSetting>,
    /// The file that was read, if there was one.
    pub file: Option<String>,
}

/// Reads a configuration; addresses are checked by the rules of whoever uses them.
///
/// # Errors
/// Returns every error.
pub fn load(sources: &Sources, checks: AddressChecks) -> Result<Loaded, Errors> {
    let mut loader = Loader::new(checks);
    let file = sources.file.as_ref().map_or_else(|| Ok(Table::new()), parse_file);
    let is_readable = file.is_ok();
    match file {
        Ok(table) => loader.top_level(&table),
        Err(errors) => loader.findings.add_errors(errors),
    }
    sources.variables.iter().for_each(|(name, value)| loader.variable(name, value));
    sources.flags.iter().for_each(|(name, value)| loader.flag(name, value));
    // The settings of a file that is not TOML are unknown, and cannot be compared.
    if is_readable {
        loader.operations();
        loader.check();
    }
    let file = sources.file.as_ref().map(|file| file.name.clone());
    loader.finish().map(|loaded| Loaded { file, ..loaded })
}

/// Combines the sources, one after the other.
struct Loader {
    config: Config,
    admin: AdminTable,
    identity: IdentityTable,
    ledger: LedgerTable,
    traces: TraceTable,
    encryption: EncryptionTable,
    tls: TlsTable,
    admin_tls: TlsTable,
    upstream_tls: UpstreamTlsTable,
    /// Unread tables: they are read once the defaults are known.
    operations: Vec<SettingValue>,
    webhooks: Vec<SettingValue>,
    findings: Findings,
}

impl Loader {
    fn new(checks: AddressChecks) -> Loader {
        Loader {
            config: Config::default(),
            admin: AdminTable::default(),
            identity: IdentityTable::default(),
            ledger: LedgerTable::default(),
            traces: TraceTable::default(),
            encryption: EncryptionTable::default(),
            tls: TlsTable::default(),
            admin_tls: TlsTable::default(),
            upstream_tls: UpstreamTlsTable::default(),
            operations: Vec::new(),
            webhooks: Vec::new(),
            findings: Findings::new(KNOWN, checks),
        }
    }

    fn top_level(&mut self, table: &Table) {
        for entry in table {
            if let Some(setting) = find(GENERAL, &entry.name) {
                self.findings.read(setting, &mut self.config, setting.name, &entry.value);
            } else if entry.name == "operation" {
                self.operations = collected(&mut self.findings, &entry.name, entry);
            } else if entry.name == "webhook" {
                self.webhooks = collected(&mut self.findings, &entry.name, entry);
            } else if entry.name == "limit" {
                for value in collected(&mut self.findings, &entry.name, entry) {
                    let read = limits::read(&mut self.findings, &value);
                    self.config.limits.exceptions.extend(read);
                }
            } else if entry.name == "pass" {
                for value in collected(&mut self.findings, &entry.name, entry) {
                    let read = pass::read(&mut self.findings, &value);
                    self.config.pass.extend(read);
                }
            } else if TABLES.contains(&entry.name.as_str()) {
                self.table(entry);
            } else {
                self.findings.unknown(entry, &entry.name, names(GENERAL).chain(TABLES));
            }
        }
    }

    fn table(&mut self, entry: &NamedValue) {
        let name = entry.name.as_str();
        let ValueContent::Table(table) = &entry.value.content else {
            let message = format!("expected a table: write `[{name}]`");
            return self.findings.error(entry.value.origin.clone(), name, message);
        };
        let Loader {
            config,
            admin,
            identity,
            ledger,
            traces,
            encryption,
            tls,
            admin_tls,
            upstream_tls,
            findings,
            ..
        } = self;
        match name {
            "admin" => admin::read(findings, admin, table),
            "server" => read_table(findings, name, SERVER, &mut config.server, table),
            "cors" => read_table(findings, name, CORS, &mut config.cors, table),
            "identity" => read_table(findings, name, IDENTITY, identity, table),
            "defaults" => read_defaults(findings, config, table),
            "ledger" => read_table(findings, name, LEDGER, ledger, table),
            "traces" => read_table(findings, name, TRACES, traces, table),
            "encryption" => encryption::read(findings, encryption, table),
            "tls" => read_table(findings, name, TLS, tls, table),
            "admin_tls" => read_table(findings, name, TLS, admin_tls, table),
            "upstream_tls" => read_table(findings, name, UPSTREAM_TLS, upstream_tls, table),
            "reconcile" => read_table(findings, name, RECONCILE, &mut config.reconcile, table),
            "limits" => read_table(findings, name, LIMITS, &mut config.limits, table),
            _ => read_table(findings, name, MAINTENANCE, &mut config.maintenance, table),
        }
    }

    fn variable(&mut self, name: &str, value: &str) {
        let Some(rest) = name.strip_prefix(VARIABLE_PREFIX) else { return };
        if name == FILE_VARIABLE
            || rest == "VECTORS"
            || rest.starts_with("TEST_")
            || self.encryption.takes(name)
            || self.admin.takes(name)
        {
            return;
        }
        let setting = rest.to_ascii_lowercase();
        let value = SettingValue::text(Origin::Variable(name.to_owned()), value);
        if variable(&setting) == name && self.overlay(&setting, &value) {
            return;
        }
        let known = names(GENERAL).chain(names(DEFAULTS)).chain(names(AUTHORIZATION)).chain(["config"]);
        let message = match self.findings.known().advice(&setting, known, variable) {
            Advice::Reserved => "reserved: not built yet".to_owned(),
            Advice::BelongsTo(table) if !matches!(table, "" | "defaults") => {
                format!(
                    "no such variable; `{setting}` is set in {} of the file only",
                    self.findings.known().header(table)
                )
            }
            Advice::Near(near) => format!("no such variable; did you mean {near}?"),
            // Known, but in the wrong case: variables are upper case.
            Advice::BelongsTo(_) => format!("no such variable; did you mean {}?", variable(&setting)),
            Advice::None => "no such variable".to_owned(),
        };
        self.findings.warn_of_variable(name, message);
    }

    fn flag(&mut self, name: &str, value: &str) {
        let flag = format!("--{name}");
        let setting = name.replace('-', "_");
        let value = SettingValue::text(Origin::Flag(flag.clone()), value);
        if self.overlay(&setting, &value) {
            return;
        }
        let known = names(GENERAL).chain(names(DEFAULTS)).chain(names(AUTHORIZATION));
        let message = match self
            .findings
            .known()
            .advice(&setting, known, |near| format!("--{}", near.replace('_', "-")))
        {
            Advice::Reserved => "reserved: not built yet".to_owned(),
            Advice::BelongsTo(table) => {
                format!(
                    "no such flag; `{setting}` is set in {} of the file only",
                    self.findings.known().header(table)
                )
            }
            Advice::Near(near) => format!("no such flag; did you mean {near}?"),
            Advice::None => "no such flag".to_owned(),
        };
        self.findings.add_errors(vec![Diagnostic::error(Origin::Flag(flag), None, message)]);
    }

    /// Sets a setting from outside the file; returns false if no setting has this name.
    fn overlay(&mut self, name: &str, value: &SettingValue) -> bool {
        if let Some(setting) = find(GENERAL, name) {
            self.findings.read(setting, &mut self.config, name, value);
        } else if let Some(setting) = find(DEFAULTS, name) {
            let path = format!("defaults.{name}");
            self.findings.read(setting, &mut self.config.defaults, &path, value);
        } else if let Some(setting) = find(AUTHORIZATION, name) {
            let path = format!("defaults.{name}");
            self.findings.read(setting, &mut self.config.authorization, &path, value);
        } else {
            return false;
        }
        true
    }

    fn operations(&mut self) {
        defaults::follow_profile(&self.findings, &[defaults::MIN_LENGTH], &mut self.config.defaults);
        defaults::check(&mut self.findings, "defaults", &self.config.defaults);
        for value in std::mem::take(&mut self.operations) {
            let defaults = (&self.config.defaults, &self.config.authorization);
            let read = operation::read(&mut self.findings, defaults, &value);
            self.config.operations.extend(read);
        }
        for value in std::mem::take(&mut self.webhooks) {
            let read = webhook::read(&mut self.findings, &value);
            self.config.webhooks.extend(read);
        }
    }

    fn check(&mut self) {
        if let Some(identity) = identity::check(&mut self.findings, &self.identity) {
            self.config.identity = identity;
        }
        self.config.ledger = ledger::check(&mut self.findings, &self.ledger);
        self.config.traces = traces::check(&mut self.findings, &self.traces);
        self.config.encryption = encryption::check(&mut self.findings, &self.encryption);
        self.config.tls = tls::check(&mut self.findings, "tls", &self.tls);
        self.config.admin_tls = tls::check(&mut self.findings, "admin_tls", &self.admin_tls);
        self.config.upstream_tls =
            tls::check_upstream(&mut self.findings, &self.upstream_tls, &self.config.upstream);
        self.config.admin_tokens = admin::check(&mut self.findings, &self.admin, self.config.admin_listen);
        let sso = self.admin.sso.as_ref();
        self.config.admin_sso = sso.and_then(|(origin, table)| sso::check(&mut self.findings, table, origin));
        check::config(&mut self.findings, &self.config, self.identity.source);
        warn::config(&mut self.findings, &self.config);
    }

    fn finish(mut self) -> Result<Loaded, Errors> {
        let mut rows = Rows::new(&self.findings);
        rows.add("", GENERAL, &self.config);
        self.admin.tokens.iter().for_each(|token| rows.add(&token.path(), ADMIN_TOKEN, token));
        if let Some((_, sso)) = &self.admin.sso {
            rows.add(sso::PATH, ADMIN_SSO, sso);
        }
        rows.add("server", SERVER, &self.config.server);
        rows.add("cors", CORS, &self.config.cors);
        rows.add("identity", IDENTITY, &self.identity);
        rows.add("defaults", DEFAULTS, &self.config.defaults);
        rows.add("defaults", AUTHORIZATION, &self.config.authorization);
        self.config.operations.iter().for_each(|operation| rows.add_operation(operation));
        self.config.pass.iter().for_each(|rule| rows.add_pass(rule));
        self.config.webhooks.iter().for_each(|webhook| rows.add_webhook(webhook));
        rows.add("limits", LIMITS, &self.config.limits);
        self.config.limits.exceptions.iter().for_each(|exception| rows.add_limit(exception));
        rows.add("reconcile", RECONCILE, &self.config.reconcile);
        rows.add("maintenance", MAINTENANCE, &self.config.maintenance);
        rows.add("ledger", LEDGER, &self.ledger);
        rows.add("traces", TRACES, &self.traces);
        rows.add("encryption", ENCRYPTION, &self.encryption);
        self.encryption.keys.iter().for_each(|key| rows.add(&key.path(), ENCRYPTION_KEY, key));
        rows.add("tls", TLS, &self.tls);
        rows.add("admin_tls", TLS, &self.admin_tls);
        rows.add("upstream_tls", UPSTREAM_TLS, &self.upstream_tls);
        let (rows, credentials) = rows.finish();
        for (path, parameter) in credentials {
            warn::credential(&mut self.findings, &path, &parameter);
        }
        let (errors, warnings) = self.findings.finish();
        errors.map(|()| Loaded { config: self.config, warnings, rows, file: None })
    }
}

/// Reads `[defaults]`: the policy of operations, and the service that authorizes their callers.
fn read_defaults(findings: &mut Findings, config: &mut Config, table: &Table) {
    for entry in table {
        let path = format!("defaults.{}", entry.name);
        if let Some(setting) = find(DEFAULTS, &entry.name) {
            findings.read(setting, &mut config.defaults, &path, &entry.value);
        } else if let Some(setting) = find(AUTHORIZATION, &entry.name) {
            findings.read(setting, &mut config.authorization, &path, &entry.value);
        } else {
            findings.unknown(entry, &path, names(DEFAULTS).chain(names(AUTHORIZATION)));
        }
    }
}
