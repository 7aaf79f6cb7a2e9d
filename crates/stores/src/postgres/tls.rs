//! TLS to the database, by rustls, with the checks of `sslmode`.
//!
//! Invariant: a certificate that fails a required check ends the connection before anything is sent over it.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::client::TlsStream;

use super::address::{DatabaseAddress, Verification};

/// Makes TLS connections.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads the authorities that this address trusts.
    pub(super) fn new(address: &DatabaseAddress) -> Result<Tls, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = CertificateVerifier::new(
            address.verification,
            address.root_certificate.as_deref(),
            provider.signature_verification_algorithms,
        )?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Tls(Arc::new(config)))
    }
}

/// Checks certificates as far as `sslmode` requires.
#[derive(Debug)]
struct CertificateVerifier {
    verification: Verification,
    roots: RootCertStore,
    /// Certificates of `sslrootcert`: a server may present one of them itself.
    given: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl CertificateVerifier {
    fn new(
        verification: Verification,
        root_certificate: Option<&Path>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<CertificateVerifier, String> {
        let (mut roots, mut given) = (RootCertStore::empty(), Vec::new());
        match root_certificate {
            _ if verification == Verification::Nothing => {}
            Some(path) => {
                let unreadable =
                    |why: &dyn std::fmt::Display| format!("sslrootcert {}: {why}", path.display());
                let file = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?;
                for certificate in file {
                    let certificate = certificate.map_err(|error| unreadable(&error))?;
                    roots.add(certificate.clone()).map_err(|error| unreadable(&error))?;
                    given.push(certificate);
                }
                if given.is_empty() {
                    return Err(unreadable(&"it holds no certificate"));
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        Ok(CertificateVerifier { verification, roots, given, algorithms })
    }

    /// Checks the certificate's signature and dates. A self-signed authority certificate, as `openssl req
    /// -x509` makes them, is accepted for itself if `sslrootcert` holds it.
    fn is_signed(
        &self,
        certificate: &CertificateDer<'_>,
        parsed: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let all = self.algorithms.all;
        match verify_server_cert_signed_by_trust_anchor(parsed, &self.roots, intermediates, now, all) {
            // The dates were checked before; the remaining fault is an authority as the server.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if self.given.contains(certificate) =>
            {
                Ok(())
            }
            checked => checked,
        }
    }
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.verification != Verification::Nothing {
            let parsed = ParsedCertificate::try_from(certificate)?;
            self.is_signed(certificate, &parsed, intermediates, now)?;
            if self.verification == Verification::AuthorityAndName {
                verify_server_name(&parsed, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns advice about a connection that failed because of TLS: the settings that would change it. `None` if
/// it failed otherwise.
pub(super) fn advice(error: &tokio_postgres::Error) -> Option<&'static str> {
    if let Some(said) = error.as_db_error() {
        let wants_tls = said.code().code() == "28000"
            && (said.message().contains("no encryption") || said.message().contains("SSL off"));
        return wants_tls.then_some(
            "the server may want an encrypted connection: try `sslmode=require` in the address of the store",
        );
    }
    if !error.to_string().starts_with("error performing TLS handshake") {
        return None;
    }
    let cause = std::error::Error::source(error);
    let refused = cause.and_then(|cause| cause.downcast_ref::<io::Error>()).and_then(io::Error::get_ref);
    Some(match refused.and_then(|refused| refused.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => {
            "the certificate is for another host: use the name that its subjectAltName has, or `sslmode=verify-ca`, which \
             checks who signed it and not the name"
        }
        Some(rustls::Error::InvalidCertificate(_)) => {
            "`sslrootcert=FILE` in the address of the store names the authority that signed the server's certificate, or that \
             certificate itself if it is self-signed; `sslmode=require` without `sslrootcert` encrypts without a check"
        }
        Some(_) => "check the TLS settings of the server, and `sslmode` in the address of the store",
        None if cause.is_some_and(|cause| cause.to_string().contains("does not support TLS")) => {
            "set `ssl = on` at the server, or use `sslmode=prefer` or `disable` in the address of the store"
        }
        None => "check that the server speaks TLS there, or change `sslmode` in the address of the store",
    })
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type TlsConnect = To;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<To> {
        // A host without a name, such as a Unix socket, is refused only if it uses TLS.
        Ok(To { config: self.0.clone(), name: ServerName::try_from(host.to_owned()) })
    }
}

/// A TLS connection to be made.
pub(super) struct To {
    config: Arc<ClientConfig>,
    name: Result<ServerName<'static>, InvalidDnsNameError>,
}

impl<S> TlsConnect<S> for To
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self.name.map_err(io::Error::other)?;
            tokio_rustls::TlsConnector::from(self.config).connect(name, stream).await.map(EncryptedStream)
        })
    }
}

/// An encrypted connection.
pub(super) struct EncryptedStream<S>(TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
