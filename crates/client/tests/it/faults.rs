//! Real transports, and faults before a connection that they meet for real: each has an address of its own.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use semel_client::{ClientFuture, ReqwestTransport, TowerTransport, Transport};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::Service;

/// Host whose name cannot be resolved now.
const TEMPORARY: &str = "temporary.test";
/// Host that does not exist.
const UNKNOWN: &str = "unknown.test";
/// Host to which no connection is ever made.
const NEVER: &str = "never.test";
/// Host whose certificate hyper's connector refuses.
const REFUSED: &str = "refused.test";

/// Library below the client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Reqwest,
    Tower,
}

impl Form {
    pub(crate) fn real(self) -> RealTransport {
        match self {
            Form::Reqwest => RealTransport {
                form: self,
                plain: reqwest_transport(Duration::from_secs(60)),
                impatient: reqwest_transport(Duration::from_millis(1)),
            },
            Form::Tower => {
                let client =
                    Client::builder(TokioExecutor::new()).build(FaultConnector(HttpConnector::new()));
                let plain: Arc<dyn Transport> = Arc::new(TowerTransport::new(client));
                RealTransport { form: self, impatient: Arc::clone(&plain), plain }
            }
        }
    }
}

/// Real transport, and one that gives a connection a millisecond.
#[derive(Clone)]
pub(crate) struct RealTransport {
    form: Form,
    pub(crate) plain: Arc<dyn Transport>,
    pub(crate) impatient: Arc<dyn Transport>,
}

impl RealTransport {
    /// Returns the origin at which a request meets this fault; `None` for a fault that the scripted server makes.
    pub(crate) async fn origin(&self, fault: &str) -> Option<String> {
        Some(match fault {
            "refuse" => {
                // The port is free again as soon as it is known.
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                format!("http://{}", listener.local_addr().unwrap())
            }
            "connect_timeout" => format!("http://{NEVER}"),
            "temporary_name" => format!("http://{TEMPORARY}"),
            "unknown_host" => format!("http://{UNKNOWN}"),
            "certificate" => match self.form {
                Form::Reqwest => untrusted_server().await,
                Form::Tower => format!("http://{REFUSED}"),
            },
            _ => return None,
        })
    }
}

fn reqwest_transport(connect_timeout: Duration) -> Arc<dyn Transport> {
    let builder = reqwest::Client::builder().no_proxy().dns_resolver(Arc::new(FaultResolver));
    Arc::new(ReqwestTransport::with_connect_timeout(builder, connect_timeout).unwrap())
}

/// Returns the error of the standard library for a name.
fn name_error(text: &str) -> io::Error {
    io::Error::other(format!("failed to lookup address information: {text}"))
}

/// Resolver for reqwest.
struct FaultResolver;

impl Resolve for FaultResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        Box::pin(async move {
            let error = match &*name {
                TEMPORARY => name_error("Temporary failure in name resolution"),
                UNKNOWN => name_error("Name or service not known"),
                NEVER => pending::<io::Error>().await,
                _ => {
                    let address = SocketAddr::from(([127, 0, 0, 1], 0));
                    return Ok(Box::new(std::iter::once(address)) as Addrs);
                }
            };
            Err(error.into())
        })
    }
}

/// Error of hyper's connector for a name, which has this form.
#[derive(Debug, thiserror::Error)]
#[error("dns error")]
struct ConnectorError(#[source] io::Error);

/// Connector for hyper.
#[derive(Clone)]
struct FaultConnector(HttpConnector);

impl Service<http::Uri> for FaultConnector {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = ClientFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: http::Uri) -> Self::Future {
        let mut real = self.0.clone();
        Box::pin(async move {
            match uri.host() {
                Some(TEMPORARY) => {
                    Err(ConnectorError(name_error("Temporary failure in name resolution")).into())
                }
                Some(UNKNOWN) => Err(ConnectorError(name_error("Name or service not known")).into()),
                Some(NEVER) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
                Some(REFUSED) => {
                    let refused = rustls::CertificateError::UnknownIssuer;
                    Err(io::Error::other(rustls::Error::InvalidCertificate(refused)).into())
                }
                _ => real.call(uri).await.map_err(Into::into),
            }
        })
    }
}

/// Returns the address of a server whose certificate nobody has signed.
async fn untrusted_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = acceptor();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            // The client ends the handshake.
            tokio::spawn(async move { acceptor.accept(stream).await.is_ok() });
        }
    });
    origin
}

fn acceptor() -> TlsAcceptor {
    static ACCEPTOR: OnceLock<TlsAcceptor> = OnceLock::new();
    ACCEPTOR
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=127.0.0.1 \
                             -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem";
            let made = Command::new("openssl")
                .args(arguments.split_whitespace())
                .current_dir(folder.path())
                .output()
                .expect("openssl is installed");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            let certificate = CertificateDer::from_pem_file(folder.path().join("cert.pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(folder.path().join("key.pem")).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key)
                .unwrap();
            TlsAcceptor::from(Arc::new(config))
        })
        .clone()
}
