//! The service that is asked whether a caller may use an operation: the `authorize_*` settings of `[defaults]` and of each
//! `[[operation]]`.

use std::time::Duration;

use semel_outgoing::Address;

use super::outgoing::ServiceTls;

/// The service that is asked about an operation, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// The address of the service.
    pub url: Option<Address>,
    /// The longest that an answer may take.
    pub timeout: Duration,
    /// The lifetime of a yes in memory.
    pub cache: Duration,
    /// TLS with the service.
    pub tls: ServiceTls,
}

impl Default for Authorization {
    fn default() -> Authorization {
        Authorization {
            url: None,
            timeout: Duration::from_secs(2),
            cache: Duration::ZERO,
            tls: ServiceTls::default(),
        }
    }
}
