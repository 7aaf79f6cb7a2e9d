//! Every table and every setting. Help, `config show`, `config init` and the reader all follow this list.

use crate::configuration::{Config, GENERAL};
use crate::engine::known::KnownNames;
use crate::engine::setting::{Setting, SettingInfo};
use crate::tables::admin::{ADMIN_TOKEN, TokenTable};
use crate::tables::authorization::AUTHORIZATION;
use crate::tables::cors::CORS;
use crate::tables::defaults::DEFAULTS;
use crate::tables::encryption::{ENCRYPTION, ENCRYPTION_KEY, EncryptionTable, KeyTable};
use crate::tables::identity::{IDENTITY, IdentityTable};
use crate::tables::ledger::{LEDGER, LedgerTable};
use crate::tables::limits::{LIMIT, LIMITS, LimitTable};
use crate::tables::look_up::{LOOK_UP, LookUpTable};
use crate::tables::maintenance::MAINTENANCE;
use crate::tables::operation::{OPERATION, OperationTable};
use crate::tables::pass::{PASS, PassTable};
use crate::tables::reconcile::RECONCILE;
use crate::tables::server::SERVER;
use crate::tables::sso::{ADMIN_SSO, SsoTable};
use crate::tables::tls::{TLS, TlsTable, UPSTREAM_TLS, UpstreamTlsTable};
use crate::tables::traces::{TRACES, TraceTable};
use crate::tables::webhook::{WEBHOOK, WebhookTable};

/// Names of tables, in the order they are shown.
pub(crate) const TABLES: [&str; 18] = [
    "admin",
    "server",
    "cors",
    "identity",
    "defaults",
    "operation",
    "pass",
    "webhook",
    "limits",
    "limit",
    "reconcile",
    "maintenance",
    "ledger",
    "traces",
    "encryption",
    "tls",
    "admin_tls",
    "upstream_tls",
];

/// The names that the engine gives advice about.
pub(crate) const KNOWN: KnownNames = KnownNames {
    settings,
    reserved: &["outbox"],
    lists: &["operation", "pass", "webhook", "limit", "encryption.key", "admin.token"],
};

/// Returns every setting, in the order they are shown.
pub fn settings() -> Vec<SettingInfo> {
    fn infos<T>(table: &'static str, settings: &[Setting<T>], default: &T) -> Vec<SettingInfo> {
        settings.iter().map(|setting| SettingInfo::new(table, setting, default)).collect()
    }
    let config = Config::default();
    [
        infos("", GENERAL, &config),
        infos("admin.token", ADMIN_TOKEN, &TokenTable::default()),
        infos("admin.sso", ADMIN_SSO, &SsoTable::default()),
        infos("server", SERVER, &config.server),
        infos("cors", CORS, &config.cors),
        infos("identity", IDENTITY, &IdentityTable::default()),
        infos("defaults", DEFAULTS, &config.defaults),
        infos("defaults", AUTHORIZATION, &config.authorization),
        infos("operation", OPERATION, &OperationTable::default()),
        infos("operation.reconcile", LOOK_UP, &LookUpTable::default()),
        infos("pass", PASS, &PassTable::default()),
        infos("webhook", WEBHOOK, &WebhookTable::default()),
        infos("limits", LIMITS, &config.limits),
        infos("limit", LIMIT, &LimitTable::default()),
        infos("reconcile", RECONCILE, &config.reconcile),
        infos("maintenance", MAINTENANCE, &config.maintenance),
        infos("ledger", LEDGER, &LedgerTable::default()),
        infos("traces", TRACES, &TraceTable::default()),
        infos("encryption", ENCRYPTION, &EncryptionTable::default()),
        infos("encryption.key", ENCRYPTION_KEY, &KeyTable::default()),
        infos("tls", TLS, &TlsTable::default()),
        infos("admin_tls", TLS, &TlsTable::default()),
        infos("upstream_tls", UPSTREAM_TLS, &UpstreamTlsTable::default()),
    ]
    .concat()
}
