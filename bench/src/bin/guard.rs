//! Benchmark of the guard: the same requests to the same hyper service over one connection, with and without it, in
//! alternating rounds. Prints nanoseconds per request and the ratio of the medians.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Instant;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use semel_gateway::guard::{ClientLimits, Guarded};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 21;
const REQUESTS: u32 = 20_000;
const REQUEST: &[u8] = b"POST /v1/payments HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: example/1.0 (linux)\r\n\
    Accept: application/json\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\n\
    Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324\r\nContent-Type: application/json\r\n\
    Content-Length: 41\r\n\r\n{\"amount\":1000,\"currency\":\"EUR\",\"to\":\"a\"}";

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (mut memory, mut sockets) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        for guarded in [false, true] {
            let (client, server) = tokio::io::duplex(64 * 1024);
            memory.add(guarded, client, server).await;
            let (client, accepted) =
                tokio::join!(TcpStream::connect(listener.local_addr()?), listener.accept());
            let (client, (server, _)) = (client?, accepted?);
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            sockets.add(guarded, client, server).await;
        }
    }
    memory.report("in memory");
    sockets.report("over loopback");
    Ok(())
}

/// Nanoseconds per request, round by round.
#[derive(Default)]
struct Samples {
    without: Vec<u128>,
    with: Vec<u128>,
}

impl Samples {
    async fn add<C, S>(&mut self, guarded: bool, client: C, server: S)
    where
        C: AsyncRead + AsyncWrite + Unpin,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if guarded {
            self.with.push(round(client, Guarded::new(server, ClientLimits::default())).await);
        } else {
            self.without.push(round(client, server).await);
        }
    }

    fn report(mut self, place: &str) {
        self.without.sort_unstable();
        self.with.sort_unstable();
        let (without, with) = (self.without[ROUNDS / 2], self.with[ROUNDS / 2]);
        println!("{place}: without {without} ns, with {with} ns, ratio {:.3}", with as f64 / without as f64);
    }
}

/// Measures nanoseconds per request on one keep-alive connection.
async fn round<C, S>(mut client: C, server: S) -> u128
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let serving = tokio::spawn(async move {
        let builder = auto::Builder::new(TokioExecutor::new());
        builder.serve_connection(TokioIo::new(server), service_fn(answer)).await.is_ok()
    });
    let start = Instant::now();
    let mut answer = [0; 1024];
    for _ in 0..REQUESTS {
        client.write_all(REQUEST).await.expect("the server reads");
        let mut read = 0;
        while !answer[..read].ends_with(b"done") {
            read += client.read(&mut answer[read..]).await.expect("the server answers");
        }
    }
    let elapsed = start.elapsed();
    drop(client);
    assert!(serving.await.expect("the server does not panic"));
    elapsed.as_nanos() / u128::from(REQUESTS)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    request.into_body().collect().await?;
    Ok(Response::new(Full::from("done")))
}
