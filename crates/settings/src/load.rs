//! Lays the sources over each other: defaults, file, variables, flags; then operations, which build on them.

use semel_core::policy::StoreResponse;
use semel_core::{OperationName, Policy};

use super::Config;
use super::admin::{self, AdminTable};
use super::advice::{Advice, advice, header};
use super::check;
use super::diagnostic::{Diagnostic, Errors};
use super::encryption::{self, EncryptionTable};
use super::findings::Findings;
use super::identity::IdentityTable;
use super::kind::Kind;
use super::ledger::{self, LedgerTable};
use super::limits;
use super::look_up::LookUpTable;
use super::operation::{self, OperationConfig, OperationTable};
use super::pass;
use super::setting::{Setting, VARIABLE_PREFIX, variable};
use super::settings::{
    ADMIN_TOKEN, AUTHORIZATION, CORS, DEFAULTS, ENCRYPTION, ENCRYPTION_KEY, GENERAL, IDENTITY, LEDGER,
    LIMITS, LOOK_UP, MAINTENANCE, OPERATION, RECONCILE, SERVER, TABLES, TLS, UPSTREAM_TLS, WEBHOOK,
};
use super::show::{Row, Rows};
use super::source::Origin;
use super::sources::{FILE_VARIABLE, Sources};
use super::tls::{self, TlsTable, UpstreamTlsTable};
use super::value::{Content, Entry, Table, Value, parse_file};
use super::warn;
use super::webhook::{WebhookConfig, WebhookName, WebhookTable};

/// A configuration that can be used, and what there is to say about it.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Where a choice weakens the promise, and variables that mean nothing.
    pub warnings: Vec<Diagnostic>,
    /// Every effective setting with its value and where it came from.
    pub rows: Vec<Row>,
    /// The file that was read, if there was one.
    pub file: Option<String>,
}

/// Reads a configuration.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(sources: &Sources) -> Result<Loaded, Errors> {
    let mut loader = Loader::default();
    let file = sources.file.as_ref().map_or_else(|| Ok(Table::new()), parse_file);
    let is_readable = file.is_ok();
    match file {
        Ok(table) => loader.top_level(&table),
        Err(errors) => loader.findings.add_errors(errors),
    }
    sources.variables.iter().for_each(|(name, value)| loader.variable(name, value));
    sources.flags.iter().for_each(|(name, value)| loader.flag(name, value));
    // Of a file that is not TOML nothing is known: what it would have set cannot be compared.
    if is_readable {
        loader.operations();
        loader.check();
    }
    let file = sources.file.as_ref().map(|file| file.name.clone());
    loader.finish().map(|loaded| Loaded { file, ..loaded })
}

#[derive(Default)]
struct Loader {
    config: Config,
    admin: AdminTable,
    identity: IdentityTable,
    ledger: LedgerTable,
    encryption: EncryptionTable,
    tls: TlsTable,
    admin_tls: TlsTable,
    upstream_tls: UpstreamTlsTable,
    /// As written: they are read when the defaults are known.
    operations: Vec<Value>,
    webhooks: Vec<Value>,
    findings: Findings,
}

impl Loader {
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

    fn table(&mut self, entry: &Entry) {
        let name = entry.name.as_str();
        let Content::Table(table) = &entry.value.content else {
            let message = format!("expected a table: write `[{name}]`");
            return self.findings.error(entry.value.origin.clone(), name, message);
        };
        let Loader {
            config,
            admin,
            identity,
            ledger,
            encryption,
            tls,
            admin_tls,
            upstream_tls,
            findings,
            ..
        } = self;
        match name {
            "admin" => admin::read(findings, admin, table),
            "server" => read_table(findings, name, SERVER, config, table),
            "cors" => read_table(findings, name, CORS, config, table),
            "identity" => read_table(findings, name, IDENTITY, identity, table),
            "defaults" => read_defaults(findings, config, table),
            "ledger" => read_table(findings, name, LEDGER, ledger, table),
            "encryption" => encryption::read(findings, encryption, table),
            "tls" => read_table(findings, name, TLS, tls, table),
            "admin_tls" => read_table(findings, name, TLS, admin_tls, table),
            "upstream_tls" => read_table(findings, name, UPSTREAM_TLS, upstream_tls, table),
            "reconcile" => read_table(findings, name, RECONCILE, config, table),
            "limits" => read_table(findings, name, LIMITS, config, table),
            _ => read_table(findings, name, MAINTENANCE, config, table),
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
        let value = Value::text(Origin::Variable(name.to_owned()), value);
        if variable(&setting) == name && self.overlay(&setting, &value) {
            return;
        }
        let known = names(GENERAL).chain(names(DEFAULTS)).chain(names(AUTHORIZATION)).chain(["config"]);
        let message = match advice(&setting, known, variable) {
            Advice::Reserved => "reserved: not built yet".to_owned(),
            Advice::BelongsTo(table) if !matches!(table, "" | "defaults") => {
                format!("no such variable; `{setting}` is set in {} of the file only", header(table))
            }
            Advice::Near(near) => format!("no such variable; did you mean {near}?"),
            // Known, but not in this case: variables are upper case.
            Advice::BelongsTo(_) => format!("no such variable; did you mean {}?", variable(&setting)),
            Advice::None => "no such variable".to_owned(),
        };
        self.findings.warn_of_variable(name, message);
    }

    fn flag(&mut self, name: &str, value: &str) {
        let flag = format!("--{name}");
        let setting = name.replace('-', "_");
        let value = Value::text(Origin::Flag(flag.clone()), value);
        if self.overlay(&setting, &value) {
            return;
        }
        let known = names(GENERAL).chain(names(DEFAULTS)).chain(names(AUTHORIZATION));
        let message = match advice(&setting, known, |near| format!("--{}", near.replace('_', "-"))) {
            Advice::Reserved => "reserved: not built yet".to_owned(),
            Advice::BelongsTo(table) => {
                format!("no such flag; `{setting}` is set in {} of the file only", header(table))
            }
            Advice::Near(near) => format!("no such flag; did you mean {near}?"),
            Advice::None => "no such flag".to_owned(),
        };
        self.findings.add_errors(vec![Diagnostic::error(Origin::Flag(flag), None, message)]);
    }

    /// Sets what may be set from outside the file; says whether there is such a setting.
    fn overlay(&mut self, name: &str, value: &Value) -> bool {
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
        follow_profile(&self.findings, &[MIN_LENGTH], &mut self.config.defaults);
        check::policy(&mut self.findings, "defaults", &self.config.defaults);
        for operation in std::mem::take(&mut self.operations) {
            let read = read_operation(&mut self.findings, &self.config, &operation);
            self.config.operations.extend(read);
        }
        for webhook in std::mem::take(&mut self.webhooks) {
            let read = read_webhook(&mut self.findings, &webhook);
            self.config.webhooks.extend(read);
        }
    }

    fn check(&mut self) {
        if let Some(identity) = check::identity(&mut self.findings, &self.identity) {
            self.config.identity = identity;
        }
        self.config.ledger = ledger::check(&mut self.findings, &self.ledger);
        self.config.encryption = encryption::check(&mut self.findings, &self.encryption);
        self.config.tls = tls::check(&mut self.findings, "tls", &self.tls);
        self.config.admin_tls = tls::check(&mut self.findings, "admin_tls", &self.admin_tls);
        self.config.upstream_tls = tls::check_upstream(&mut self.findings, &self.upstream_tls, &self.config);
        self.config.admin_tokens = admin::check(&mut self.findings, &self.admin, self.config.admin_listen);
        check::config(&mut self.findings, &self.config, self.identity.source);
        warn::config(&mut self.findings, &self.config);
    }

    fn finish(self) -> Result<Loaded, Errors> {
        let mut rows = Rows::new(&self.findings);
        rows.add("", GENERAL, &self.config);
        self.admin.tokens.iter().for_each(|token| rows.add(&token.path(), ADMIN_TOKEN, token));
        rows.add("server", SERVER, &self.config);
        rows.add("cors", CORS, &self.config);
        rows.add("identity", IDENTITY, &self.identity);
        rows.add("defaults", DEFAULTS, &self.config.defaults);
        rows.add("defaults", AUTHORIZATION, &self.config.authorization);
        self.config.operations.iter().for_each(|operation| rows.add_operation(operation));
        self.config.pass.iter().for_each(|rule| rows.add_pass(rule));
        self.config.webhooks.iter().for_each(|webhook| rows.add_webhook(webhook));
        rows.add("limits", LIMITS, &self.config);
        self.config.limits.exceptions.iter().for_each(|exception| rows.add_limit(exception));
        rows.add("reconcile", RECONCILE, &self.config);
        rows.add("maintenance", MAINTENANCE, &self.config);
        rows.add("ledger", LEDGER, &self.ledger);
        rows.add("encryption", ENCRYPTION, &self.encryption);
        self.encryption.keys.iter().for_each(|key| rows.add(&key.path(), ENCRYPTION_KEY, key));
        rows.add("tls", TLS, &self.tls);
        rows.add("admin_tls", TLS, &self.admin_tls);
        rows.add("upstream_tls", UPSTREAM_TLS, &self.upstream_tls);
        let rows = rows.finish();
        let (errors, warnings) = self.findings.finish();
        errors.map(|()| Loaded { config: self.config, warnings, rows, file: None })
    }
}

pub(super) fn find<'a, T>(settings: &'a [Setting<T>], name: &str) -> Option<&'a Setting<T>> {
    settings.iter().find(|setting| setting.name == name)
}

pub(super) fn names<T>(settings: &[Setting<T>]) -> impl Iterator<Item = &'static str> {
    settings.iter().map(|setting| setting.name)
}

pub(super) fn read_table<T>(
    findings: &mut Findings,
    name: &str,
    settings: &[Setting<T>],
    target: &mut T,
    table: &Table,
) {
    for entry in table {
        let path = format!("{name}.{}", entry.name);
        match find(settings, &entry.name) {
            Some(setting) => findings.read(setting, target, &path, &entry.value),
            None => findings.unknown(entry, &path, names(settings)),
        }
    }
}

/// The tables of a list such as `[[operation]]`, as they were written.
pub(super) fn collected(findings: &mut Findings, name: &str, entry: &Entry) -> Vec<Value> {
    match &entry.value.content {
        Content::List(tables) => return tables.clone(),
        Content::Table(_) => {
            let message = format!("expected a list of tables: write `[[{name}]]`, in double brackets");
            findings.error(entry.origin.clone(), name, message);
        }
        other => {
            let message = format!("expected tables, each written `[[{name}]]`, found {other}");
            findings.error(entry.value.origin.clone(), name, message);
        }
    }
    Vec::new()
}

/// What an operation may set for itself: its policy, and who is asked whether a caller may.
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

/// The setting that every operation has its shortest key from, unless it sets it itself.
const MIN_LENGTH: &str = "defaults.key_min_length";

/// Gives a policy the shortest key of its profile, unless one of these settings says otherwise.
fn follow_profile(findings: &Findings, paths: &[&str], policy: &mut Policy) {
    if !paths.iter().any(|path| findings.is_set(path)) {
        policy.follow(policy.profile);
    }
}

fn read_operation(findings: &mut Findings, config: &Config, value: &Value) -> Option<OperationConfig> {
    let Content::Table(entries) = &value.content else {
        let message = format!("expected a table, written `[[operation]]`, found {}", value.content);
        findings.error(value.origin.clone(), "operation", message);
        return None;
    };
    let prefix = operation_path(entries);
    let (mut policy, mut authorization) = (config.defaults.clone(), config.authorization.clone());
    let mut table = OperationTable::default();
    let mut look_up = None;
    for entry in entries {
        let path = format!("{prefix}.{}", entry.name);
        if entry.name == "reconcile" {
            look_up = read_look_up(findings, &path, entry);
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
    follow_profile(findings, &[MIN_LENGTH, &format!("{prefix}.key_min_length")], &mut policy);
    check::policy(findings, &prefix, &policy);
    let OperationTable { name, route, business_reference, exclude, aliases, allow, anonymous } = table;
    let max_response = match policy.store_response {
        StoreResponse::Full => policy.max_stored_response,
        // What a provider shows has no address here that it could be fetched from.
        StoreResponse::Headers | StoreResponse::Reference => 0,
    };
    let reconcile = look_up.and_then(|look_up| look_up.finish(max_response));
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

fn read_look_up(findings: &mut Findings, path: &str, entry: &Entry) -> Option<LookUpTable> {
    let Content::Table(entries) = &entry.value.content else {
        let message = "expected a table: write `[operation.reconcile]` below its `[[operation]]`";
        findings.error(entry.value.origin.clone(), path, message);
        return None;
    };
    let mut table = LookUpTable::default();
    read_table(findings, path, LOOK_UP, &mut table, entries);
    if !entries.iter().any(|entry| entry.name == "url") {
        let message = "missing: it says where the provider is asked";
        findings.error(entry.origin.clone(), &format!("{path}.url"), message);
    }
    check::look_up(findings, path, &table);
    Some(table)
}

fn read_webhook(findings: &mut Findings, value: &Value) -> Option<WebhookConfig> {
    let Content::Table(entries) = &value.content else {
        let message = format!("expected a table, written `[[webhook]]`, found {}", value.content);
        findings.error(value.origin.clone(), "webhook", message);
        return None;
    };
    let prefix = webhook_path(entries);
    let mut table = WebhookTable::default();
    read_table(findings, &prefix, WEBHOOK, &mut table, entries);
    for required in ["name", "secret_env", "operations", "operation_id", "verdict"] {
        if !entries.iter().any(|entry| entry.name == required) {
            let path = format!("{prefix}.{required}");
            findings.error(value.origin.clone(), &path, "missing: every webhook has it");
        }
    }
    check::webhook(findings, &prefix, &table, &value.origin);
    table.finish()
}

/// What the settings of a webhook are called: by its name, if it has one that can be used.
fn webhook_path(entries: &Table) -> String {
    let name = entries.iter().find(|entry| entry.name == "name").map(|entry| &entry.value.content);
    match name {
        Some(Content::Text(name)) if WebhookName::parse(name).is_ok() => format!("webhook.{name}"),
        _ => "webhook".to_owned(),
    }
}

/// What the settings of an operation are called: by its name, if it has one that can be used.
fn operation_path(entries: &Table) -> String {
    let name = entries.iter().find(|entry| entry.name == "name").map(|entry| &entry.value.content);
    let name = match name {
        Some(Content::Text(name)) => OperationName::new(name).ok(),
        _ => None,
    };
    name.map_or_else(|| "operation".to_owned(), |name| operation::path(&name))
}
