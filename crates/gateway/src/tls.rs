//! TLS with clients on both listeners, and with the upstream. `semel-outgoing` has the services that the
//! gateway asks.
//!
//! It uses rustls with aws-lc-rs and no other cryptography: versions 1.2 and 1.3, no early data. `files`
//! reads the files of the settings, `server` and `client` make the configuration of one side, `live` reloads
//! it when a file has changed, and `certificate` reads certificates.

pub(crate) mod certificate;
pub mod client;
mod files;
pub mod live;
pub mod server;

use semel_settings::{Config, PrincipalSource, is_encrypted};

/// Name of HTTP/2 in a handshake.
const H2: &[u8] = b"h2";
/// Name of HTTP/1.1 in a handshake.
const HTTP1: &[u8] = b"http/1.1";

/// Returns the TLS settings of the listener for clients, if it has TLS.
pub fn for_clients(config: &Config) -> Option<server::ListenerTlsSettings> {
    let identity = matches!(config.identity, PrincipalSource::ClientCertificate(_));
    let tls = config.tls.clone()?;
    Some(server::ListenerTlsSettings { table: "tls", tls, without_certificate: identity })
}

/// Returns the TLS settings of the admin listener, if it has TLS.
pub fn for_admins(config: &Config) -> Option<server::ListenerTlsSettings> {
    let tls = config.admin_tls.clone()?;
    Some(server::ListenerTlsSettings { table: "admin_tls", tls, without_certificate: false })
}

/// Returns the TLS settings for the upstream, if it has TLS.
pub fn for_upstream(config: &Config) -> Option<client::UpstreamTlsSettings> {
    is_encrypted(&config.upstream).then(|| client::UpstreamTlsSettings {
        tls: config.upstream_tls.clone(),
        host: config.upstream.host().unwrap_or_default().to_owned(),
        protocol: config.upstream_protocol,
    })
}
