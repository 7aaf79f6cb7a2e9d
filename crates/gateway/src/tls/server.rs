//! Server side of TLS: handshakes of a listener.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use metrics::{counter, gauge};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use semel_core::{Clock, SystemClock, Timestamp};
use semel_outgoing::pem::{CertifiedFiles, PemFile};
use semel_outgoing::tls::provider;
use semel_settings::ListenerTls;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::Certificate;
use super::files;
use super::live::{Live, Recipe};
use super::{H2, HTTP1};

/// TLS settings of a listener.
pub struct ListenerTlsSettings {
    /// Name of the settings table.
    pub table: &'static str,
    /// Contents of the table.
    pub tls: ListenerTls,
    /// True if clients without a certificate are accepted, although one is requested: other checks decide
    /// what they may do.
    pub without_certificate: bool,
}

/// Contents of the files.
#[derive(PartialEq)]
pub struct ListenerTlsContents {
    own: CertifiedFiles,
    client_ca: Option<PemFile>,
    client_crl: Option<PemFile>,
}

/// Current TLS configuration of a listener.
pub struct Accepting {
    config: Arc<ServerConfig>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Expiry of the listener's own certificate, if it can be read.
    pub ends: Option<Timestamp>,
}

impl Recipe for ListenerTlsSettings {
    type Contents = ListenerTlsContents;
    type Product = Accepting;

    fn table(&self) -> &'static str {
        self.table
    }

    fn read(&self) -> anyhow::Result<ListenerTlsContents> {
        let ListenerTls { own, client_ca, client_crl } = &self.tls;
        Ok(ListenerTlsContents {
            own: files::read_own(self.table, own)?,
            client_ca: files::read_any(self.table, "client_ca", client_ca.as_deref())?,
            client_crl: files::read_any(self.table, "client_crl", client_crl.as_deref())?,
        })
    }

    fn make(&self, contents: &ListenerTlsContents) -> anyhow::Result<Accepting> {
        let own = contents.own.certified()?;
        let verifier = match &contents.client_ca {
            Some(file) => Some(self.verifier(file, contents.client_crl.as_ref())?),
            None => None,
        };
        let ends = ends(self.table, own.end_entity_cert()?);
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let config = match &verifier {
            Some(verifier) => config.with_client_cert_verifier(verifier.clone()),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
        if verifier.is_some() {
            // A resumed session brings the certificate of its first handshake, which is not checked again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Accepting { config: Arc::new(config), verifier, ends })
    }
}

impl ListenerTlsSettings {
    fn verifier(&self, ca: &PemFile, crl: Option<&PemFile>) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(ca.authorities()?), provider());
        if let Some(crl) = crl {
            // The CA of the clients must have a revocation list: a certificate of unknown status is refused.
            builder = builder.with_crls(crl.revoked()?).only_check_end_entity_revocation();
        }
        if self.without_certificate {
            builder = builder.allow_unauthenticated();
        }
        builder.build().with_context(|| crl.unwrap_or(ca).name().to_owned())
    }
}

/// Returns the expiry of the gateway's own certificate, and reports it as a metric.
pub(super) fn ends(table: &'static str, certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let ends = Certificate::read(certificate).ok()?.ends;
    gauge!("tls_certificate_end_timestamp_seconds", "table" => table).set(ends.as_millis() as f64 / 1000.0);
    if ends < SystemClock.now() {
        tracing::warn!(table, %ends, "the certificate has expired: peers that check it refuse the connection");
    }
    Some(ends)
}

/// Accepts the handshakes of a listener.
#[derive(Clone)]
pub struct Acceptor {
    live: Arc<Live<ListenerTlsSettings>>,
    /// Name of the listener in metrics.
    listener: &'static str,
    /// Timeout of a handshake.
    patience: Duration,
}

/// Certificates that a client presented, with the configuration that checked them.
pub struct PresentedCertificates {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) checked_by: Arc<Accepting>,
}

impl Acceptor {
    /// Makes an acceptor for the connections of a listener; `patience` is the timeout of a handshake.
    pub fn new(live: Arc<Live<ListenerTlsSettings>>, listener: &'static str, patience: Duration) -> Acceptor {
        Acceptor { live, listener, patience }
    }

    /// Performs the handshake within its timeout; returns `None` if it fails.
    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> Option<(TlsStream<TcpStream>, Option<PresentedCertificates>)> {
        let accepting = self.live.current();
        let handshake = TlsAcceptor::from(accepting.config.clone()).accept(stream);
        let (outcome, accepted) = match tokio::time::timeout(self.patience, handshake).await {
            Ok(Ok(stream)) => ("done", Some(stream)),
            Ok(Err(error)) => {
                tracing::debug!(%error, listener = self.listener, "a handshake failed");
                ("failed", None)
            }
            Err(_) => {
                tracing::debug!(listener = self.listener, "a handshake took too long");
                ("timed_out", None)
            }
        };
        counter!("tls_handshakes_total", "listener" => self.listener, "outcome" => outcome).increment(1);
        let stream = accepted?;
        let chain = stream.get_ref().1.peer_certificates().map(|chain| {
            let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
            PresentedCertificates { chain, checked_by: accepting }
        });
        Some((stream, chain))
    }

    /// Returns the current configuration.
    pub(crate) fn current(&self) -> Arc<Accepting> {
        self.live.current()
    }
}

impl Accepting {
    /// Returns true if a client with this certificate chain is accepted now.
    pub(crate) fn accepts(&self, chain: &[CertificateDer<'_>]) -> bool {
        let (Some(verifier), Some((first, others))) = (&self.verifier, chain.split_first()) else {
            return false;
        };
        let now = u64::try_from(SystemClock.now().as_millis()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_millis(now));
        verifier.verify_client_cert(first, others, now).is_ok()
    }
}
