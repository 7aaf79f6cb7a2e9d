//! Client side of TLS: connections to the upstream. The certificate is always checked, including its name.

use std::sync::Arc;

use anyhow::Context;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use semel_core::Timestamp;
use semel_outgoing::pem::{CertifiedFiles, PemFile};
use semel_outgoing::tls::{client_config, server_name, system_roots};
use semel_settings::{UpstreamProtocol, UpstreamTls};
use tokio_rustls::TlsConnector;

use super::files;
use super::live::Recipe;
use super::{H2, HTTP1, server};

/// TLS settings for the upstream.
pub struct UpstreamTlsSettings {
    /// Files and trusted authorities.
    pub tls: UpstreamTls,
    /// Name or address of the upstream.
    pub host: String,
    /// Protocol of the upstream.
    pub protocol: UpstreamProtocol,
}

/// Contents of the files.
#[derive(PartialEq)]
pub struct UpstreamTlsContents {
    ca: Option<PemFile>,
    own: Option<CertifiedFiles>,
}

/// Current TLS configuration for the upstream.
pub struct Connecting {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
    /// Expiry of the gateway's own certificate, if it presents one.
    pub ends: Option<Timestamp>,
}

impl Recipe for UpstreamTlsSettings {
    type Contents = UpstreamTlsContents;
    type Product = Connecting;

    fn table(&self) -> &'static str {
        "upstream_tls"
    }

    fn read(&self) -> anyhow::Result<UpstreamTlsContents> {
        let UpstreamTls { ca, own } = &self.tls;
        Ok(UpstreamTlsContents {
            ca: files::read_any(self.table(), "ca", ca.as_deref())?,
            own: own.as_ref().map(|own| files::read_own(self.table(), own)).transpose()?,
        })
    }

    fn make(&self, contents: &UpstreamTlsContents) -> anyhow::Result<Connecting> {
        let roots = match &contents.ca {
            Some(file) => file.authorities()?,
            None => system_roots().context("`upstream`")?,
        };
        let name = server_name(&self.host).context("`upstream`")?;
        let config = client_config()?.with_root_certificates(roots);
        let (mut config, ends) = match &contents.own {
            None => (config.with_no_client_auth(), None),
            Some(own) => {
                let own = own.certified()?;
                let ends = server::ends(self.table(), own.end_entity_cert()?);
                (config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))), ends)
            }
        };
        config.alpn_protocols = match self.protocol {
            UpstreamProtocol::Http1 => vec![HTTP1.to_vec()],
            UpstreamProtocol::H2 | UpstreamProtocol::H2c => vec![H2.to_vec()],
        };
        Ok(Connecting { connector: TlsConnector::from(Arc::new(config)), name, ends })
    }
}
