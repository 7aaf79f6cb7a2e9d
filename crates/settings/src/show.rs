//! The effective settings, for `semel config show`.

use std::fmt;

use semel_core::quota::Exception;

use crate::engine::address_query::{credential, hide_queries};
use crate::engine::findings::Findings;
use crate::engine::setting::Setting;
use crate::tables::authorization::AUTHORIZATION;
use crate::tables::defaults::DEFAULTS;
use crate::tables::limits::{self, LIMIT, LimitTable};
use crate::tables::look_up::{LOOK_UP, LookUpTable};
use crate::tables::operation::{self, OPERATION, OperationConfig, OperationTable};
use crate::tables::pass::{self, PASS, PassConfig, PassTable};
use crate::tables::webhook::{WEBHOOK, WebhookConfig, WebhookTable};

/// One effective setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Its path, such as `defaults.ttl` or `operation.payments.create.ttl`.
    pub name: String,
    /// Its value as TOML; a password inside is hidden, and so are the values in the query of an address.
    pub value: String,
    /// The origin of the value: `default`, `semel.toml:12`, `SEMEL_TTL`, `--ttl`.
    pub source: String,
}

impl EffectiveSetting {
    /// Returns its value as JSON. The TOML of a setting is a text, a number, a boolean or a list, which is JSON as well.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.value).unwrap_or_else(|_| self.value.as_str().into())
    }
}

impl fmt::Display for EffectiveSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}  # {}", self.name, self.value, self.source)
    }
}

/// Collects the rows.
pub(crate) struct Rows<'a> {
    findings: &'a Findings,
    rows: Vec<EffectiveSetting>,
    /// Settings with a credential in the query of an address, and the name of its parameter.
    credentials: Vec<(String, String)>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(findings: &'a Findings) -> Rows<'a> {
        Rows { findings, rows: Vec::new(), credentials: Vec::new() }
    }

    /// Adds every setting that has a value.
    pub(crate) fn add<T>(&mut self, table: &str, settings: &[Setting<T>], holder: &T) {
        for setting in settings {
            let path =
                if table.is_empty() { setting.name.to_owned() } else { format!("{table}.{}", setting.name) };
            self.push(path, setting, holder);
        }
    }

    /// Adds an operation's own settings; the rest follows the defaults.
    pub(crate) fn add_operation(&mut self, operation: &OperationConfig) {
        let OperationConfig {
            name,
            route,
            policy,
            authorization,
            business_reference,
            exclude,
            aliases,
            allow,
            anonymous,
            reconcile,
        } = operation.clone();
        let prefix = operation::path(&name);
        let (name, route) = (Some(name), Some(route));
        let table = OperationTable { name, route, business_reference, exclude, aliases, allow, anonymous };
        self.add_set(&prefix, OPERATION, &table);
        self.add_set(&prefix, DEFAULTS, &policy);
        self.add_set(&prefix, AUTHORIZATION, &authorization);
        if let Some(look_up) = reconcile {
            self.add(&format!("{prefix}.reconcile"), LOOK_UP, &LookUpTable::of(look_up));
        }
    }

    /// Adds the settings of a `[[pass]]`.
    pub(crate) fn add_pass(&mut self, rule: &PassConfig) {
        self.add(&pass::path(&rule.route.to_string()), PASS, &PassTable::of(rule.clone()));
    }

    /// Adds the settings of a webhook.
    pub(crate) fn add_webhook(&mut self, webhook: &WebhookConfig) {
        let table = WebhookTable::of(webhook.clone());
        self.add(&format!("webhook.{}", webhook.name), WEBHOOK, &table);
    }

    /// Adds the settings of a `[[limit]]`.
    pub(crate) fn add_limit(&mut self, exception: &Exception) {
        let path = limits::path(&exception.tenant, exception.caller.as_deref());
        self.add(&path, LIMIT, &LimitTable::of(exception.clone()));
    }

    fn add_set<T>(&mut self, prefix: &str, settings: &[Setting<T>], holder: &T) {
        for setting in settings {
            let path = format!("{prefix}.{}", setting.name);
            if self.findings.is_set(&path) {
                self.push(path, setting, holder);
            }
        }
    }

    fn push<T>(&mut self, name: String, setting: &Setting<T>, holder: &T) {
        if let Some(value) = (setting.show)(holder) {
            let source = self.findings.origin(&name).to_string();
            if self.findings.is_set(&name)
                && let Some(parameter) = credential(&value)
            {
                self.credentials.push((name.clone(), parameter.to_owned()));
            }
            let value = hide_queries(&value);
            self.rows.push(EffectiveSetting { name, value, source });
        }
    }

    /// Returns the rows, and the settings with a credential in the query of an address.
    pub(crate) fn finish(self) -> (Vec<EffectiveSetting>, Vec<(String, String)>) {
        (self.rows, self.credentials)
    }
}
