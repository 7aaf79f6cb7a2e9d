//! Settings of the gateway: their sources, their tables, and the messages about them.
//!
//! Later sources override earlier ones: built-in defaults, a file, variables, flags. [`load`] reads them all
//! and either reports every error with its place, or returns a [`Config`] with warnings and the origin of
//! every value. A flag or variable of a `[defaults]` setting changes the defaults; an operation's own
//! settings stay.
//!
//! From the lowest: `engine` reads one table by the list of its settings, `parts` are values that tables share, `tables` has
//! one module for each table, `configuration` holds them all, `catalogue` lists them; `check` and `warn` are rules across
//! tables, `show` prints, `load` puts everything together.

mod catalogue;
mod check;
mod configuration;
mod engine;
mod init;
mod load;
mod parts;
mod show;
mod sources;
mod tables;
#[cfg(test)]
mod tests;
mod warn;

pub use catalogue::settings;
pub use configuration::{Config, LogFormat};
pub use engine::addresses::AddressChecks;
pub use engine::diagnostic::{Diagnostic, Errors, Severity};
pub use engine::nearest::nearest;
pub use engine::setting::SettingInfo;
pub use engine::source::{Location, Origin};
pub use engine::units::parse_duration;
pub use init::init;
pub use load::{Loaded, load};
pub use parts::proxies::{ForwardedMode, ProxyRange};
pub use parts::route::Route;
pub use parts::secret::SecretSource;
pub use parts::service::{ServiceAddress, ServiceTls};
pub use parts::text::VariableName;
pub use semel_core::StoreLocation;
pub use semel_core::redact::redact;
pub use show::EffectiveSetting;
pub use sources::{DEFAULT_FILE, Sources};
pub use tables::admin::{AdminToken, Role};
pub use tables::authorization::Authorization;
pub use tables::client_certificate::{CertificateField, CertificateTenant, ClientCertificates};
pub use tables::cors::{CorsOrigin, CorsSettings, Preflight};
pub use tables::encryption::{Encryption, EncryptionKey};
pub use tables::hosts::ServiceHost;
pub use tables::identity::PrincipalSource;
pub use tables::introspection::{IntrospectionSettings, Presentation, TenantSource};
pub use tables::jwt::{JwtClaim, JwtSettings, KeySource, SigningAlgorithm};
pub use tables::ledger::{
    LedgerComparison, LedgerFault, LedgerSettings, LedgerSide, LedgerSource, LedgerUrl, LedgerWatch,
    parse_condition, plan as plan_ledger,
};
pub use tables::look_up::{LookUpConfig, LookUpUrl};
pub use tables::maintenance::MaintenanceSettings;
pub use tables::operation::OperationConfig;
pub use tables::pass::{Exemption, PassConfig, has_no_body, path_exceptions};
pub use tables::server::{Server, TunnelLimits, UpgradeProtocol};
pub use tables::sso::{AdminSso, SsoMember};
pub use tables::tls::{CertifiedKey, ListenerTls, UpstreamTls};
pub use tables::traces::TraceSettings;
pub use tables::upstream::{UpstreamProtocol, UpstreamReuse};
pub use tables::upstream::{is_encrypted, port_of};
pub use tables::webhook::{WebhookConfig, WebhookName};
pub use tables::witness::WitnessPlace;
