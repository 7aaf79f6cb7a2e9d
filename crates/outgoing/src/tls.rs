//! The client's side of TLS: rustls with aws-lc-rs and no other cryptography, versions 1.2 and 1.3. A certificate is always
//! checked, its name included, unless the settings say [`Trust::Insecure`].

mod insecure;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::WantsClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::pem::{CertifiedFiles, PemError, PemFile};
use insecure::AnyServer;

pub use crate::crypto::provider;

/// The shortest time between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// HTTP/1.1, as a handshake calls it.
const HTTP1: &[u8] = b"http/1.1";

/// TLS with a service: the authorities that it is checked against, and the certificate that it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlsSettings {
    /// The servers that are trusted.
    pub trust: Trust,
    /// The certificate that the service is shown, if any.
    pub own: Option<CertificateFiles>,
}

/// The servers that are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Servers with a certificate of an authority that the system trusts.
    #[default]
    System,
    /// Servers with a certificate of an authority in this file.
    Authorities(PathBuf),
    /// Every server, whatever it shows: an attacker on the network can read and change everything.
    Insecure,
}

impl From<Option<PathBuf>> for Trust {
    fn from(ca: Option<PathBuf>) -> Trust {
        ca.map_or(Trust::System, Trust::Authorities)
    }
}

/// The files of a certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// The certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The reason why TLS cannot be spoken with a service.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The host is no name that a certificate can have.
    #[error("no certificate can be for `{0}`")]
    Name(String),
    /// The system trusts no authority.
    #[error(
        "this system trusts no certificate authority: install its certificates, or name a file of them in SSL_CERT_FILE"
    )]
    NoRoots,
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] PemError),
    /// The settings cannot be used together.
    #[error("{0}")]
    Unusable(String),
}

/// Returns the name that the certificate of this host must have.
///
/// # Errors
/// If no certificate can have it.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

/// Returns the authorities that the system trusts; at least one.
///
/// # Errors
/// If there is none.
pub fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

/// Begins the configuration of a client.
///
/// # Errors
/// If the cryptography does not know the versions.
pub fn client_config() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, TlsError> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(error.to_string()))
}

/// TLS with one host. Files that change are read again; files that cannot be used change nothing.
#[derive(Clone)]
pub(crate) struct Secured(Arc<TlsHost>);

struct TlsHost {
    name: ServerName<'static>,
    settings: TlsSettings,
    made: Mutex<Option<Made>>,
}

/// The connector, and the files that it was made of.
struct Made {
    connector: TlsConnector,
    files: Files,
    looked: Instant,
    complaint: Option<String>,
}

#[derive(PartialEq)]
struct Files {
    ca: Option<PemFile>,
    own: Option<CertifiedFiles>,
}

impl Secured {
    pub(crate) fn new(host: &str, settings: TlsSettings) -> Result<Secured, TlsError> {
        Ok(Secured(Arc::new(TlsHost { name: server_name(host)?, settings, made: Mutex::default() })))
    }

    pub(crate) fn is_insecure(&self) -> bool {
        self.0.settings.trust == Trust::Insecure
    }

    pub(crate) fn check(&self) -> Result<(), TlsError> {
        self.0.current().map(drop)
    }

    pub(crate) async fn connector(&self) -> Result<(TlsConnector, ServerName<'static>), TlsError> {
        let host = self.0.clone();
        let connector = tokio::task::spawn_blocking(move || host.current()).await;
        let connector = connector.map_err(|error| TlsError::Unusable(error.to_string()))??;
        Ok((connector, self.0.name.clone()))
    }
}

impl TlsHost {
    /// Returns the connector for the files as they are now, or as they were when they could last be used. Blocks.
    fn current(&self) -> Result<TlsConnector, TlsError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = &mut *made else {
            let files = self.read()?;
            let connector = self.make(&files)?;
            *made =
                Some(Made { connector: connector.clone(), files, looked: Instant::now(), complaint: None });
            return Ok(connector);
        };
        let has_files = matches!(self.settings.trust, Trust::Authorities(_)) || self.settings.own.is_some();
        if has_files && last.looked.elapsed() >= LOOK_INTERVAL {
            last.looked = Instant::now();
            let changed = self.read().and_then(|files| match files == last.files {
                true => Ok(None),
                false => Ok(Some((self.make(&files)?, files))),
            });
            match changed {
                Ok(Some((connector, files))) => {
                    (last.connector, last.files, last.complaint) = (connector, files, None);
                }
                Ok(None) => last.complaint = None,
                Err(error) => last.complain(error.to_string()),
            }
        }
        Ok(last.connector.clone())
    }

    fn read(&self) -> Result<Files, TlsError> {
        let ca = match &self.settings.trust {
            Trust::Authorities(path) => Some(PemFile::read("ca", path)?),
            Trust::System | Trust::Insecure => None,
        };
        let own = match &self.settings.own {
            Some(own) => Some(CertifiedFiles::read(("certificate", &own.certificate), ("key", &own.key))?),
            None => None,
        };
        Ok(Files { ca, own })
    }

    fn make(&self, files: &Files) -> Result<TlsConnector, TlsError> {
        let config = self.trusting(files)?;
        let mut config = match &files.own {
            None => config.with_no_client_auth(),
            Some(own) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.certified()?))),
        };
        config.alpn_protocols = vec![HTTP1.to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn trusting(&self, files: &Files) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
        let config = client_config()?;
        Ok(match (&self.settings.trust, &files.ca) {
            (Trust::Insecure, _) => {
                config.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer::new(&provider())))
            }
            (_, Some(ca)) => config.with_root_certificates(ca.authorities()?),
            (_, None) => config.with_root_certificates(system_roots()?),
        })
    }
}

impl Made {
    /// Logs once that the files cannot be used.
    fn complain(&mut self, why: String) {
        if self.complaint.as_ref() != Some(&why) {
            tracing::error!(
                error = why,
                "the files for TLS have changed and cannot be used: the old ones stay"
            );
            self.complaint = Some(why);
        }
    }
}
