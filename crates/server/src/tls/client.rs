//! The client's side: how the gateway meets the upstream, and whom it asks something. A certificate is always checked,
//! its name included.

use std::sync::Arc;

use anyhow::{Context, ensure};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use semel_core::Timestamp;
use tokio_rustls::TlsConnector;

use super::files::{File, Own};
use super::live::Recipe;
use super::{H2, HTTP1, provider, server};
use crate::config::UpstreamTls;
use crate::upstream::Protocol;

/// TLS with whom the system trusts.
pub(crate) fn connector() -> anyhow::Result<TlsConnector> {
    let config = config()?.with_root_certificates(roots_of_the_system()?).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Whom a certificate must be for, when it is this host that is asked.
pub(crate) fn server_name(host: &str) -> anyhow::Result<ServerName<'static>> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).with_context(|| format!("no certificate can be for `{host}`"))
}

fn config() -> anyhow::Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>> {
    Ok(ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?)
}

fn roots_of_the_system() -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    ensure!(
        !roots.is_empty(),
        "this system trusts no certificate authority: install its certificates, or name a file of them in SSL_CERT_FILE"
    );
    Ok(roots)
}

/// How the upstream is met, as the settings say it.
pub(crate) struct Settings {
    pub(crate) tls: UpstreamTls,
    /// Its name, or its address.
    pub(crate) host: String,
    /// What it speaks.
    pub(crate) protocol: Protocol,
}

/// What the files hold.
#[derive(PartialEq)]
pub(crate) struct Contents {
    ca: Option<File>,
    own: Option<Own>,
}

/// How the upstream is met now.
pub(crate) struct Connecting {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
    /// When the certificate that it is shown ends, if there is one.
    pub(crate) ends: Option<Timestamp>,
}

impl Recipe for Settings {
    type Contents = Contents;
    type Product = Connecting;

    fn table(&self) -> &'static str {
        "upstream_tls"
    }

    fn read(&self) -> anyhow::Result<Contents> {
        let UpstreamTls { ca, own } = &self.tls;
        Ok(Contents {
            ca: File::read_any(self.table(), "ca", ca.as_deref())?,
            own: own.as_ref().map(|own| Own::read(self.table(), own)).transpose()?,
        })
    }

    fn make(&self, contents: &Contents) -> anyhow::Result<Connecting> {
        let roots = match &contents.ca {
            Some(file) => file.authorities()?,
            None => roots_of_the_system().context("`upstream`")?,
        };
        let name = server_name(&self.host).context("`upstream`")?;
        let config = config()?.with_root_certificates(roots);
        let (mut config, ends) = match &contents.own {
            None => (config.with_no_client_auth(), None),
            Some(own) => {
                let own = own.certified()?;
                let ends = server::ends(self.table(), own.end_entity_cert()?);
                (config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))), ends)
            }
        };
        config.alpn_protocols = match self.protocol {
            Protocol::Http1 => vec![HTTP1.to_vec()],
            Protocol::H2 | Protocol::H2c => vec![H2.to_vec()],
        };
        Ok(Connecting { connector: TlsConnector::from(Arc::new(config)), name, ends })
    }
}
