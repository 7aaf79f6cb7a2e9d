//! HTTP/1 upstream: records every byte, reads it with a second reader, and answers by the request's script.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_fuzz::http1::{self, Kind, Message, Read};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::book::Book;
use crate::grammar::WEBSOCKET_ACCEPT;
use crate::script::{Accept, Extra, Script};
use crate::sight;

/// Signal to write late bytes, and signal that they are written.
type Late = (oneshot::Sender<()>, oneshot::Receiver<()>);

/// State shared by the clients, the upstream and the judge.
pub(crate) struct World {
    book: Mutex<Book>,
    /// Upstream's record of this scene: the connection, and the bytes in either direction.
    record: Mutex<Vec<(usize, &'static str, Vec<u8>)>>,
    late: Mutex<HashMap<String, Late>>,
}

impl World {
    pub(crate) fn new(book: Book) -> Arc<World> {
        Arc::new(World { book: Mutex::new(book), record: Mutex::default(), late: Mutex::default() })
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the record of the scene so far.
    pub(crate) fn take_record(&self) -> Vec<(usize, &'static str, Vec<u8>)> {
        std::mem::take(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn note(&self, connection: usize, direction: &'static str, bytes: &[u8]) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.push((connection, direction, bytes.to_vec()));
    }

    /// Makes the upstream write the late bytes behind the response to this request, if there are any.
    pub(crate) async fn release(&self, mark: &str) {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner).remove(mark);
        if let Some((go, done)) = late {
            let _ = go.send(());
            let _ = done.await;
        }
    }
}

/// Starts an upstream, and returns its address.
pub(crate) async fn start(world: Arc<World>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((stream, _)) = listener.accept().await {
            number += 1;
            let _ = stream.set_nodelay(true);
            tokio::spawn(Connection { stream, number, world: world.clone(), bytes: Vec::new() }.serve());
        }
    });
    address
}

struct Connection {
    stream: TcpStream,
    number: usize,
    world: Arc<World>,
    /// Received bytes that are no complete request yet.
    bytes: Vec<u8>,
}

/// Continuation after a response.
enum Next {
    Request,
    /// The connection has ended, or is a tunnel.
    Nothing,
}

impl Connection {
    async fn serve(mut self) {
        let mut is_answered_early = false;
        loop {
            match http1::read(&self.bytes, Kind::Request) {
                Read::Whole(request) => {
                    self.bytes.drain(..request.length);
                    self.world.book().saw(&request);
                    let is_answered = std::mem::take(&mut is_answered_early);
                    if !is_answered && matches!(self.answer(&request).await, Next::Nothing) {
                        return;
                    }
                }
                Read::Part => {
                    if !is_answered_early && let Some(head) = self.early_head() {
                        is_answered_early = true;
                        self.write(&plain(&head)).await;
                    }
                    if !self.hear().await {
                        if !self.bytes.is_empty() {
                            self.world.book().saw_half(&self.bytes);
                        }
                        return;
                    }
                }
                Read::Not => {
                    self.world.book().saw_garbage(&self.bytes);
                    return;
                }
            }
        }
    }

    /// Reads some bytes. Returns false at the end of the connection.
    async fn hear(&mut self) -> bool {
        let before = self.bytes.len();
        let read = self.stream.read_buf(&mut self.bytes).await;
        self.world.note(self.number, "saw", &self.bytes[before..]);
        matches!(read, Ok(1..))
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.world.note(self.number, "said", bytes);
        let _ = self.stream.write_all(bytes).await;
    }

    /// Returns the head of a request that is answered before its body has come.
    fn early_head(&self) -> Option<Message> {
        let end = self.bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let mark = sight::mark_in(&self.bytes)?;
        let script = self.world.book().ask(&mark)?.script;
        // The head is read as if it had no body, which does not matter here.
        let lines = String::from_utf8_lossy(&self.bytes[..end + 2]).into_owned();
        let is_framing = |line: &str| {
            let line = line.to_ascii_lowercase();
            line.starts_with("content-length:") || line.starts_with("transfer-encoding:")
        };
        let head: String = lines.split_inclusive("\r\n").filter(|line| !is_framing(line)).collect();
        match (script, http1::read(format!("{head}\r\n").as_bytes(), Kind::Request)) {
            (Script::Early, Read::Whole(request)) => Some(request),
            _ => None,
        }
    }

    async fn answer(&mut self, request: &Message) -> Next {
        let mark = sight::mark(request).unwrap_or_default();
        let script = self.world.book().ask(&mark).map_or(Script::Plain, |ask| ask.script);
        match script {
            Script::Plain | Script::Early => self.write(&plain(request)).await,
            Script::Chunked => self.write(&chunked(request, "", "")).await,
            Script::Trailers => {
                let trailers = "semel-outcome: unknown\r\ncontent-length: 1\r\nx-sum: 7\r\n";
                self.write(&chunked(request, "", trailers)).await;
            }
            Script::LengthAndChunks => {
                let mut bytes = chunked(request, "content-length: 3\r\n", "");
                bytes.extend(Extra::Response.bytes(&mark));
                self.write(&bytes).await;
            }
            Script::Interim(statuses) => {
                for status in statuses {
                    self.write(format!("HTTP/1.1 {status} Interim\r\nlink: </a>\r\n\r\n").as_bytes()).await;
                }
                self.write(&plain(request)).await;
            }
            Script::Surplus { extra, in_one: true } => {
                self.write(&[plain(request), extra.bytes(&mark)].concat()).await;
            }
            Script::Surplus { extra, in_one: false } => {
                self.write(&plain(request)).await;
                self.write(&extra.bytes(&mark)).await;
            }
            Script::Late(extra) => self.answer_late(request, &mark, extra).await,
            Script::TwoLengths => {
                let body = echo(request);
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\ncontent-length: 3\r\n\r\n{body}",
                    body.len()
                );
                self.write(head.as_bytes()).await;
            }
            Script::Switch { protocol, accept } => return self.switch(request, protocol, accept).await,
            Script::Fail => {
                let body = echo(request);
                let head = format!("HTTP/1.1 503 No\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                self.write(head.as_bytes()).await;
            }
            Script::ToTheEnd => {
                self.write(format!("HTTP/1.1 200 OK\r\n\r\n{}", echo(request)).as_bytes()).await;
                return Next::Nothing;
            }
            Script::Half { of_head } => {
                let bytes = plain(request);
                self.write(&bytes[..if of_head { 20 } else { bytes.len() - 5 }]).await;
                return Next::Nothing;
            }
            Script::Garbage => {
                self.write(b"220 ready for mail\r\n\r\n").await;
                return Next::Nothing;
            }
            Script::Drop => return Next::Nothing,
        }
        Next::Request
    }

    /// Answers, and writes more once the client has the response, unless other bytes come before.
    async fn answer_late(&mut self, request: &Message, mark: &str, extra: Extra) {
        let ((go, gone), (done, finished)) = (oneshot::channel(), oneshot::channel());
        let late = (go, finished);
        self.world.late.lock().unwrap_or_else(PoisonError::into_inner).insert(mark.to_owned(), late);
        self.write(&plain(request)).await;
        let before = self.bytes.len();
        tokio::select! {
            biased;
            _ = self.stream.read_buf(&mut self.bytes) => {
                self.world.note(self.number, "saw", &self.bytes[before..]);
            }
            Ok(()) = gone => {
                self.write(&extra.bytes(mark)).await;
                let _ = done.send(());
            }
        }
    }

    /// Switches protocols. After a valid handshake the connection is a tunnel, whose bytes are no requests; after any
    /// other the upstream continues as an HTTP server that trusts its input.
    async fn switch(&mut self, request: &Message, protocol: &str, accept: Accept) -> Next {
        let accept = match accept {
            Accept::Right => format!("sec-websocket-accept: {WEBSOCKET_ACCEPT}\r\n"),
            Accept::Wrong => "sec-websocket-accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n".to_owned(),
            Accept::Missing => String::new(),
        };
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n{accept}x-seen: {}\r\n\r\n",
            seen(request)
        );
        self.write(head.as_bytes()).await;
        let is_tunnel = protocol == "websocket"
            && accept.contains(WEBSOCKET_ACCEPT)
            && request.values("upgrade") == [b"websocket"];
        if !is_tunnel {
            return Next::Request;
        }
        while self.hear().await {}
        Next::Nothing
    }
}

/// Returns the identity that a request names, and its mark.
pub(crate) fn seen(request: &Message) -> String {
    let (tenant, caller) = sight::identity(request);
    format!("mark={} tenant={tenant} caller={caller}", sight::mark(request).unwrap_or_default())
}

/// Returns the body of every response.
pub(crate) fn echo(request: &Message) -> String {
    format!("seen {}\n", seen(request))
}

fn status(request: &Message) -> &'static str {
    if request.start[0] == b"GET" { "200 OK" } else { "201 Created" }
}

fn plain(request: &Message) -> Vec<u8> {
    let body = echo(request);
    let (status, seen) = (status(request), seen(request));
    format!("HTTP/1.1 {status}\r\nx-seen: {seen}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn chunked(request: &Message, lines: &str, trailers: &str) -> Vec<u8> {
    let (body, status, seen) = (echo(request), status(request), seen(request));
    let (first, rest) = body.split_at(3);
    format!(
        "HTTP/1.1 {status}\r\nx-seen: {seen}\r\n{lines}transfer-encoding: chunked\r\n\r\n3\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\n{trailers}\r\n",
        rest.len()
    )
    .into_bytes()
}
