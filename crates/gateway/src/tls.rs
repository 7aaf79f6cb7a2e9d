//! TLS: with clients on both listeners, and with the upstream. The services that the gateway asks are `semel-outgoing`'s.
//!
//! rustls does it, with aws-lc-rs and no other cryptography: versions 1.2 and 1.3, no early data. `files` reads what the
//! settings name, `server` and `client` make of it what a side of a connection needs, `live` makes it again when a file
//! has changed, and `certificate` reads what stands in a certificate.

pub(crate) mod certificate;
pub mod client;
mod files;
pub mod live;
pub mod server;

use semel_settings::{Config, Identity, is_encrypted};

/// HTTP/2, as it is called in a handshake.
const H2: &[u8] = b"h2";
/// HTTP/1.1, as it is called in a handshake.
const HTTP1: &[u8] = b"http/1.1";

/// How clients meet the listener for clients, if they speak TLS there.
pub fn for_clients(config: &Config) -> Option<server::Settings> {
    let identity = matches!(config.identity, Identity::ClientCertificate(_));
    let tls = config.tls.clone()?;
    Some(server::Settings { table: "tls", tls, without_certificate: identity })
}

/// How operators meet the admin listener, if they speak TLS there.
pub fn for_admins(config: &Config) -> Option<server::Settings> {
    let tls = config.admin_tls.clone()?;
    Some(server::Settings { table: "admin_tls", tls, without_certificate: false })
}

/// How the upstream is met, if it speaks TLS.
pub fn for_upstream(config: &Config) -> Option<client::Settings> {
    is_encrypted(&config.upstream).then(|| client::Settings {
        tls: config.upstream_tls.clone(),
        host: config.upstream.host().unwrap_or_default().to_owned(),
        protocol: config.upstream_protocol,
    })
}
