//! Relays with mistakes between clients and the gateway.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use semel_fuzz::http1::{self, Kind, Read};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::Defect;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Starts a relay, and returns its address.
pub(crate) async fn before(defect: Defect, gateway: SocketAddr, upstream: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut first = [0; 3];
                let is_http2 = matches!(client.peek(&mut first).await, Ok(3)) && &first == b"PRI";
                // A connection that breaks off is not an error here.
                match (defect, is_http2) {
                    (Defect::BelievesResets, true) => believe(client, gateway).await,
                    (_, true) => drop(join(client, gateway, b"").await),
                    _ => drop(relay(client, defect, gateway, upstream).await),
                }
            });
        }
    });
    address
}

/// Forwards bytes in both directions, these first.
async fn join(mut client: TcpStream, target: SocketAddr, first: &[u8]) -> Result<(), Error> {
    let mut server = TcpStream::connect(target).await?;
    server.write_all(first).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Forwards a client's bytes to the gateway, or around it.
async fn relay(
    mut client: TcpStream,
    defect: Defect,
    gateway: SocketAddr,
    upstream: SocketAddr,
) -> Result<(), Error> {
    let mut server = TcpStream::connect(gateway).await?;
    let (mut sent, mut got, mut is_open) = (vec![0; 64 * 1024], vec![0; 64 * 1024], true);
    loop {
        tokio::select! {
            length = client.read(&mut sent), if is_open => match length? {
                0 => {
                    is_open = false;
                    server.shutdown().await?;
                }
                length => match around(defect, &sent[..length]) {
                    Some(bytes) => return join(client, upstream, &bytes).await,
                    None => server.write_all(&through(defect, &sent[..length])).await?,
                },
            },
            length = server.read(&mut got) => match length? {
                0 => return Ok(()),
                length => client.write_all(&got[..length]).await?,
            },
        }
    }
}

/// Splits bytes into the lines of a head and the rest.
fn parts(bytes: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 2;
    Some((bytes[..end].split_inclusive(|byte| *byte == b'\n').collect(), &bytes[end..]))
}

fn has_name(line: &[u8], name: &str) -> bool {
    let name = [name.as_bytes(), b":"].concat();
    line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(&name))
}

/// Returns the bytes for the upstream, if the relay goes around the gateway.
fn around(defect: Defect, bytes: &[u8]) -> Option<Vec<u8>> {
    let (lines, rest) = parts(bytes)?;
    let starts = |text: &[u8]| bytes.starts_with(text);
    let goes = match defect {
        Defect::PassesUpgrades => lines.iter().any(|line| has_name(line, "upgrade")),
        Defect::DecodesLate => {
            (starts(b"PUT /") && !starts(b"PUT /payments/"))
                || (starts(b"DELETE /") && !starts(b"DELETE /orders/"))
        }
        Defect::PassesReads => starts(b"GET "),
        _ => false,
    };
    let is_own = |line: &&&[u8]| {
        let is_name = |start: &[u8]| line.get(..6).is_some_and(|name| name.eq_ignore_ascii_case(start));
        let is_named = defect != Defect::PassesReads && (is_name(b"semel-") || is_name(b"semel_"));
        !is_named && !has_name(line, "authorization") && !has_name(line, "x-api-key")
    };
    goes.then(|| [lines.iter().filter(is_own).copied().collect::<Vec<_>>().concat(), rest.to_vec()].concat())
}

/// Returns the bytes for the gateway.
fn through(defect: Defect, bytes: &[u8]) -> Vec<u8> {
    let Some((lines, rest)) = parts(bytes) else { return bytes.to_vec() };
    match defect {
        Defect::PrefersLength if lines.iter().any(|line| has_name(line, "content-length")) => {
            let lines: Vec<&[u8]> =
                lines.into_iter().filter(|line| !has_name(line, "transfer-encoding")).collect();
            [&lines.concat()[..], rest].concat()
        }
        Defect::MovesTrailers => match http1::read(bytes, Kind::Request) {
            Read::Whole(request) if !request.trailers.is_empty() => {
                let mut head = [request.start.join(&b' '), b"\r\n".to_vec()].concat();
                for (name, value) in request.fields.iter().chain(&request.trailers) {
                    if name != b"transfer-encoding" {
                        head.extend([&name[..], b": ", value, b"\r\n"].concat());
                    }
                }
                let length = format!("content-length: {}\r\n\r\n", request.body.len());
                [head, length.into_bytes(), request.body].concat()
            }
            _ => bytes.to_vec(),
        },
        _ => bytes.to_vec(),
    }
}

/// Serves a client and trusts hyper for the end of a body.
async fn believe(client: TcpStream, gateway: SocketAddr) {
    let service = service_fn(move |request| begin(request, gateway));
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(client), service).await;
}

/// Forwards a request in a task of its own: a client that has left stops nothing.
fn begin(
    request: Request<Incoming>,
    gateway: SocketAddr,
) -> impl Future<Output = Result<Response<Full<Bytes>>, Error>> + use<> {
    let task = tokio::spawn(pass_on(request, gateway));
    async move { task.await? }
}

async fn pass_on(request: Request<Incoming>, gateway: SocketAddr) -> Result<Response<Full<Bytes>>, Error> {
    let (mut parts, body) = request.into_parts();
    // The mistake: a body that was reset with NO_ERROR ends like a complete one.
    let body = body.collect().await?.to_bytes();
    parts.headers.remove("content-length");
    let io = TokioIo::new(TcpStream::connect(gateway).await?);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
    tokio::spawn(connection);
    let response = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    parts.headers.remove("content-length");
    Ok(Response::from_parts(parts, Full::new(body)))
}
