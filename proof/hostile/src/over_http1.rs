//! HTTP/1 connection of a client.

use std::net::SocketAddr;

use semel_fuzz::http1::{self, Kind, Message, Read};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::answer::Answer;
use crate::case::{After, Ending};

/// A connection that is kept from case to case, until it ends.
#[derive(Default)]
pub(crate) struct Http1 {
    stream: Option<TcpStream>,
}

/// Received bytes and responses of a case.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// All received bytes.
    pub(crate) raw: Vec<u8>,
    pub(crate) answers: Vec<Answer>,
    /// Fault that no gateway may show.
    pub(crate) fault: Option<String>,
}

/// One case on a connection.
struct Talk {
    stream: TcpStream,
    raw: Vec<u8>,
    /// Offset of the next response.
    at: usize,
    finals: Vec<Message>,
    interims: usize,
    is_tunnel: bool,
    is_over: bool,
    fault: Option<String>,
}

impl Http1 {
    /// Sends the pieces of a case with this number of requests, and reads the responses.
    pub(crate) async fn send(
        &mut self,
        gateway: SocketAddr,
        pieces: &[(After, Vec<u8>)],
        ending: Ending,
        asks: usize,
    ) -> Heard {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => TcpStream::connect(gateway).await.expect("the gateway listens"),
        };
        let _ = stream.set_nodelay(true);
        let mut talk = Talk {
            stream,
            raw: Vec::new(),
            at: 0,
            finals: Vec::new(),
            interims: 0,
            is_tunnel: false,
            is_over: false,
            fault: None,
        };
        for (after, bytes) in pieces {
            if *after == After::Response {
                while talk.interims + talk.finals.len() == 0 && talk.read().await {}
                if !talk.finals.is_empty() && !talk.is_tunnel {
                    break;
                }
            }
            // A gateway that has refused a request does not read the rest of it.
            if talk.stream.write_all(bytes).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        match ending {
            Ending::Leave => return Heard::default(),
            Ending::HalfClose => {
                let _ = talk.stream.shutdown().await;
                while talk.read().await {}
            }
            Ending::Keep => while talk.finals.len() < asks && !talk.is_tunnel && talk.read().await {},
        }
        let closes = |answer: &Message| {
            answer.values("connection").iter().any(|value| value.eq_ignore_ascii_case(b"close"))
        };
        if talk.finals.last().is_some_and(closes) {
            while talk.read().await {}
        }
        let answers: Vec<Answer> = talk.finals.iter().map(Answer::over_http1).collect();
        if ending == Ending::Keep && !talk.is_over && !talk.is_tunnel {
            if talk.at < talk.raw.len() {
                talk.fault = Some("bytes follow the last answer".to_owned());
            }
            self.stream = Some(talk.stream);
        }
        Heard { raw: talk.raw, answers, fault: talk.fault }
    }
}

impl Talk {
    /// Reads some bytes. Returns false at the end.
    async fn read(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        self.is_over = !matches!(self.stream.read_buf(&mut self.raw).await, Ok(1..));
        while !self.is_tunnel && self.fault.is_none() {
            match http1::read(&self.raw[self.at..], Kind::Response { to_head: false }) {
                Read::Whole(response) => {
                    self.at += response.length;
                    match response.status() {
                        100 | 102..=199 => self.interims += 1,
                        status => {
                            self.is_tunnel = status == 101;
                            self.finals.push(response);
                        }
                    }
                }
                Read::Part => break,
                Read::Not => self.fault = Some("an answer that cannot be read".to_owned()),
            }
        }
        !self.is_over
    }
}
