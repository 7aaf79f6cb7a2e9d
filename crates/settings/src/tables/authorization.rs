//! Service that authorizes callers: the `authorize_*` settings of `[defaults]` and of each `[[operation]]`.

use std::time::Duration;

use crate::engine::kind::OrOff;
use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Period, WaitTime};
use crate::parts::service::{ServiceAddress, ServiceTls};
use crate::parts::text::FilePath;

/// Service that authorizes callers of an operation, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// The address of the service.
    pub url: Option<ServiceAddress>,
    /// Timeout of an answer.
    pub timeout: Duration,
    /// Time for which a yes is cached.
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

/// Further settings of `[defaults]`, beside [`DEFAULTS`]: the service that authorizes callers.
pub(crate) const AUTHORIZATION: &[Setting<Authorization>] = &[
    setting!(
        "authorize_url",
        OrOff<ServiceAddress>,
        url,
        "Address of the service that authorizes the caller of each command and each replay"
    ),
    setting!("authorize_timeout", Period, timeout, "Timeout of an authorization; after it, nothing runs"),
    setting!(
        "authorize_cache",
        WaitTime,
        cache,
        "Time for which a permission is cached, for a caller and an operation"
    ),
    setting!(
        "authorize_ca",
        OrOff<FilePath>,
        tls.ca,
        "With authorize_url at https://: file with the certificate authorities to trust, instead of the \
         system's"
    ),
    setting!(
        "authorize_certificate",
        OrOff<FilePath>,
        tls.certificate,
        "With authorize_url at https://: file with the gateway's client certificate"
    ),
    setting!(
        "authorize_key",
        OrOff<FilePath>,
        tls.key,
        "With authorize_url at https://: file with the private key of the client certificate"
    ),
];
