//! The client: one request, one connection.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, request};
use http_body_util::Full;
use tokio::net::TcpStream;

use crate::address::Address;
use crate::connection::{Bound, Connection, ServiceAnswer, Stream};
use crate::error::Error;
use crate::tls::{Secured, TlsError, TlsSettings};

/// The longest that connecting takes, the TLS handshake included, unless the caller says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest that an exchange takes, unless the caller says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests to one service, each over a connection of its own.
#[derive(Clone)]
pub struct Client {
    address: Address,
    tls: Option<Secured>,
    connect_timeout: Duration,
    timeout: Duration,
}

impl Client {
    /// Makes a client for the service at this address. Nothing is connected, and no file is read.
    ///
    /// # Errors
    /// If no certificate can be for the host.
    pub fn new(address: Address, tls: TlsSettings) -> Result<Client, TlsError> {
        let tls = match address.is_encrypted() {
            true => Some(Secured::new(address.host(), tls)?),
            false => None,
        };
        Ok(Client { address, tls, connect_timeout: CONNECT_TIMEOUT, timeout: TIMEOUT })
    }

    /// Uses these settings for TLS from now on, and reads their files. Blocks.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn tls(self, settings: TlsSettings) -> Result<Client, TlsError> {
        let Client { tls, .. } = Client::new(self.address.clone(), settings)?;
        let client = Client { tls, ..self };
        client.check()?;
        Ok(client)
    }

    /// Bounds the time that connecting takes, the TLS handshake included.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Client {
        Client { connect_timeout, ..self }
    }

    /// Bounds the time that the whole exchange takes.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Client {
        Client { timeout, ..self }
    }

    /// Returns the address of the service.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns whether the service is trusted without a check of its certificate.
    pub fn is_insecure(&self) -> bool {
        self.tls.as_ref().is_some_and(Secured::is_insecure)
    }

    /// Reads the files for TLS now, so that a mistake in them is found before the first request. Blocks.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn check(&self) -> Result<(), TlsError> {
        self.tls.as_ref().map_or(Ok(()), Secured::check)
    }

    /// Begins a request with this path and query.
    pub fn request(&self, method: Method, target: &str) -> request::Builder {
        Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, self.address.authority())
            .header(USER_AGENT, concat!("semel/", env!("CARGO_PKG_VERSION")))
    }

    /// Sends a request over a connection of its own, and returns its answer once the head is there.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<ServiceAnswer, Error> {
        let bound = Bound::new(self.timeout);
        let connection = self.connect_within(self.connect_timeout.min(self.timeout)).await?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        connection.send_within(request, bound).await
    }

    /// Makes a connection for one request.
    ///
    /// # Errors
    /// If there is none in time.
    pub async fn connect(&self) -> Result<Connection, Error> {
        self.connect_within(self.connect_timeout).await
    }

    pub(crate) async fn connect_within(&self, timeout: Duration) -> Result<Connection, Error> {
        Connection::start(self.dial_within(timeout).await?).await
    }

    /// Makes a connection, with TLS where the address wants it, and leaves its bytes to the caller.
    ///
    /// # Errors
    /// If there is none in time.
    pub async fn dial(&self) -> Result<Stream, Error> {
        self.dial_within(self.connect_timeout).await
    }

    async fn dial_within(&self, timeout: Duration) -> Result<Stream, Error> {
        let (host, port) = (self.address.host(), self.address.port());
        let place = || match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let dialling = async {
            let connector = match &self.tls {
                Some(tls) => Some(tls.connector().await?),
                None => None,
            };
            let unreachable = |error: std::io::Error| Error::Unreachable(place(), error.to_string());
            let stream = TcpStream::connect((host, port)).await.map_err(unreachable)?;
            // A request goes out at once.
            let _ = stream.set_nodelay(true);
            Ok::<Stream, Error>(match connector {
                None => Box::new(stream),
                Some((connector, name)) => {
                    Box::new(connector.connect(name, stream).await.map_err(unreachable)?)
                }
            })
        };
        let late = || Error::Unreachable(place(), format!("no answer within {timeout:?}"));
        tokio::time::timeout(timeout, dialling).await.unwrap_or_else(|_| Err(late()))
    }
}
