//! HTTP/2 upstream, with prior knowledge: hyper reads its frames; it records every request and answers by the script,
//! as far as that applies without HTTP/1.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use semel_fuzz::http1::Message;
use tokio::net::TcpListener;

use crate::script::Script;
use crate::sight;
use crate::upstream::{World, echo, seen};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Starts an upstream, and returns its address.
pub(crate) async fn start(world: Arc<World>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((stream, _)) = listener.accept().await {
            number += 1;
            let _ = stream.set_nodelay(true);
            let (world, connection) = (world.clone(), number);
            let service = service_fn(move |request| answer(request, connection, world.clone()));
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

/// Reads a request to its end, and answers it.
async fn answer(
    request: Request<Incoming>,
    connection: usize,
    world: Arc<World>,
) -> Result<Response<Scripted>, Error> {
    let (parts, body) = request.into_parts();
    let collected = body.collect().await;
    let trailers = collected.as_ref().ok().and_then(|body| body.trailers().cloned()).unwrap_or_default();
    let is_whole = collected.is_ok();
    let body = collected.map(|body| body.to_bytes()).unwrap_or_default();
    let request = message(&parts, &body, &trailers);
    world.note(connection, if is_whole { "saw" } else { "saw a part of" }, format!("{request:?}").as_bytes());
    if !is_whole {
        world.book().saw_half(&head(&request));
        return Err("the request was cut".into());
    }
    world.book().saw(&request);
    let mark = sight::mark(&request).unwrap_or_default();
    let script = world.book().ask(&mark).map_or(Script::Plain, |ask| ask.script);
    let status = match script {
        Script::Fail => 503,
        Script::Drop | Script::Garbage | Script::Half { of_head: true } => return Err("no answer".into()),
        _ if request.start[0] == b"GET" => 200,
        _ => 201,
    };
    let body = Scripted {
        data: Some(Bytes::from(echo(&request))),
        has_trailers: script == Script::Trailers,
        is_cut: script == (Script::Half { of_head: false }),
    };
    world.note(connection, "said", echo(&request).as_bytes());
    Ok(Response::builder().status(status).header("x-seen", seen(&request)).body(body)?)
}

/// Returns the fields of a request as lines, by which a command is recognized.
fn head(request: &Message) -> Vec<u8> {
    let lines = request.fields.iter().map(|(name, value)| [&name[..], b": ", value, b"\r\n"].concat());
    std::iter::once(request.start.join(&b' ')).chain(lines).flatten().collect()
}

/// Converts the request for the judge.
fn message(parts: &http::request::Parts, body: &[u8], trailers: &HeaderMap) -> Message {
    let target = parts.uri.path_and_query().map(|target| target.as_str()).unwrap_or_default();
    let lines = |headers: &HeaderMap| -> Vec<(Vec<u8>, Vec<u8>)> {
        headers.iter().map(|(name, value)| (name.as_str().into(), value.as_bytes().into())).collect()
    };
    let host = parts.uri.authority().map(|authority| (b"host".to_vec(), authority.as_str().into()));
    Message {
        start: [parts.method.as_str().into(), target.into(), b"HTTP/2".to_vec()],
        fields: host.into_iter().chain(lines(&parts.headers)).collect(),
        body: body.to_vec(),
        trailers: lines(trailers),
        length: 0,
    }
}

/// Body of a scripted response.
struct Scripted {
    data: Option<Bytes>,
    has_trailers: bool,
    is_cut: bool,
}

impl http_body::Body for Scripted {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if let Some(data) = this.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if std::mem::take(&mut this.is_cut) {
            return Poll::Ready(Some(Err("the response is cut".into())));
        }
        if std::mem::take(&mut this.has_trailers) {
            let field =
                (http::HeaderName::from_static("semel-outcome"), http::HeaderValue::from_static("unknown"));
            return Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::from_iter([field])))));
        }
        Poll::Ready(None)
    }
}
