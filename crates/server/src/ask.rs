//! HTTP services that the gateway itself asks something: which keys are good, and who may do what.
//!
//! Questions have no effect, so one that found its connection closed is asked again on another. Everything is bounded:
//! how many are asked at a time, how large an answer is, and, by whoever asks, how long it takes. No redirect is followed.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, Response, Uri, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use crate::tls::client::{connector, server_name};

/// How many questions one service is asked at a time; more of them wait.
const MAX_AT_ONCE: usize = 256;
/// How many connections are kept for the next question.
const MAX_IDLE: usize = 64;
/// How long one is kept. Shorter than servers keep theirs.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);
/// The largest head of an answer.
const MAX_HEAD: usize = 64 * 1024;

/// Where a service is asked: `http://` or `https://`, a host, and a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address(Uri);

impl Address {
    /// The address; `None` if it is not one.
    ///
    /// # Errors
    /// Says what is wrong with one that nearly is.
    pub fn parse(text: &str) -> Result<Option<Address>, &'static str> {
        let Ok(uri) = text.parse::<Uri>() else { return Ok(None) };
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else { return Ok(None) };
        if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
            return Ok(None);
        }
        if authority.as_str().contains('@') {
            return Err("credentials do not belong in the address");
        }
        if authority.host().is_empty() {
            return Err("the host is missing");
        }
        let port = &authority.as_str()[authority.host().len()..];
        if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err("a port is a number from 1 to 65535");
        }
        // `Uri` drops a fragment without a word.
        if text.contains('#') { Err("a fragment is never sent") } else { Ok(Some(Address(uri))) }
    }

    /// Whether what is said there is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }

    /// Whether it is on this machine.
    pub fn is_local(&self) -> bool {
        let host = self.host();
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

type Connection = SendRequest<Full<Bytes>>;

/// A service, and the connections to it.
pub struct Service {
    address: Address,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<(Connection, Instant)>>,
    places: Semaphore,
}

impl Service {
    /// The service at this address. Nothing is connected yet.
    ///
    /// # Errors
    /// If its certificate could not be checked, for lack of anybody to trust.
    pub fn new(address: Address) -> anyhow::Result<Service> {
        let tls = match address.is_encrypted() {
            true => Some((connector()?, server_name(address.host())?)),
            false => None,
        };
        Ok(Service { address, tls, idle: Mutex::default(), places: Semaphore::new(MAX_AT_ONCE) })
    }

    /// A question to it, to which header fields and a body can be added.
    pub fn question(&self, method: Method) -> request::Builder {
        let path = self.address.0.path_and_query().map_or("/", PathAndQuery::as_str);
        let authority = self.address.0.authority().map_or("", |authority| authority.as_str());
        Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, authority)
            .header(USER_AGENT, concat!("semel/", env!("CARGO_PKG_VERSION")))
    }

    /// Asks, and reads the whole answer, of at most `max_answer` bytes.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn ask(
        &self,
        question: Request<Full<Bytes>>,
        max_answer: usize,
    ) -> anyhow::Result<Response<Bytes>> {
        let _place = self.places.acquire().await?;
        if let Some(mut kept) = self.take_idle()
            && let Ok(answer) = exchange(&mut kept, question.clone(), max_answer).await
        {
            self.keep(kept);
            return Ok(answer);
        }
        let mut connection = self.connect().await.context("cannot connect")?;
        let answer = exchange(&mut connection, question, max_answer).await?;
        self.keep(connection);
        Ok(answer)
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect((self.address.host(), self.address.port())).await?;
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => start(TokioIo::new(stream)).await,
            Some((connector, name)) => {
                start(TokioIo::new(connector.connect(name.clone(), stream).await?)).await
            }
        }
    }

    /// A connection that is ready now, if there is one.
    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(connection, since)| !connection.is_closed() && since.elapsed() < MAX_IDLE_TIME);
        let ready = idle.iter().rposition(|(connection, _)| connection.is_ready())?;
        Some(idle.swap_remove(ready).0)
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !connection.is_closed() {
            idle.push((connection, Instant::now()));
        }
    }
}

/// Begins to speak HTTP. The connection ends with whoever holds the other half.
async fn start(io: impl Read + Write + Unpin + Send + 'static) -> anyhow::Result<Connection> {
    let (sender, connection) = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(io).await?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

async fn exchange(
    connection: &mut Connection,
    question: Request<Full<Bytes>>,
    max_answer: usize,
) -> anyhow::Result<Response<Bytes>> {
    let (head, body) = connection.send_request(question).await.context("no answer")?.into_parts();
    let body = Limited::new(body, max_answer).collect().await;
    let body = body.map_err(|error| {
        anyhow::anyhow!("the answer broke off, or has more than {max_answer} bytes: {error}")
    })?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_may_have_a_path() {
        for text in
            ["http://127.0.0.1:1/keys", "https://issuer.example/.well-known/jwks.json?a=b", "http://[::1]"]
        {
            let address = Address::parse(text).ok().flatten().expect("it is an address");
            assert_eq!(address.to_string().trim_end_matches('/'), text);
        }
        for text in ["", "keys.json", "/etc/keys.json", "ftp://a", "a:80", "http://", "http:// a"] {
            assert_eq!(Address::parse(text), Ok(None), "{text}");
        }
        for text in ["http://u:p@a", "http://a:0", "http://a:x/", "http://a/#b"] {
            assert!(!matches!(Address::parse(text), Ok(Some(_))), "{text}");
        }
    }

    #[test]
    fn only_loopback_is_on_this_machine() {
        let local = |text: &str| Address::parse(text).ok().flatten().expect("it is an address").is_local();
        assert!(local("http://127.0.0.1:1/keys") && local("http://[::1]/") && local("http://localhost"));
        assert!(!local("http://10.0.0.1/") && !local("http://localhost.example/"));
    }
}
