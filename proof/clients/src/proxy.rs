//! Fault proxy: stands between a driver and the gateway, reads each request whole, and breaks what the seed says.
//!
//! The run starts it; its connections call `Fault::draw`. Whatever it does with a request that sends a command is in the
//! book before it is done.

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use semel_testkit::Chance;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::book::{Book, Number, Sending, number};
use crate::fault::Fault;
use crate::gateway::CALLER;
use crate::upstream::PATH;
use crate::wire::Message;

/// Command that never reaches the gateway.
pub(crate) const NEVER_SENT: Number = 3;
/// Command whose answer never reaches the driver.
pub(crate) const NEVER_ANSWERED: Number = 8;
/// Command whose first sending is left without an answer: that fault is rare, and a run without it proves less.
const HANGS_ONCE: Number = 11;

/// Path of operations, which clients poll.
const OPERATIONS: &str = "/.well-known/semel/operations/";
/// Longest time for which a connection without an answer is kept.
const LONGEST_HANG: Duration = Duration::from_secs(60);

/// The proxy of one run.
pub(crate) struct Proxy {
    pub(crate) seed: u64,
    pub(crate) gateway: SocketAddr,
    pub(crate) book: Arc<Book>,
}

/// Request as the proxy sees it, with its treatment.
struct Treatment {
    fault: Fault,
    chance: Chance,
    /// The command that it sends, and its place among the sendings of that command.
    sends: Option<(Number, usize)>,
}

impl Proxy {
    /// Serves every connection until its future is dropped.
    pub(crate) async fn serve(self: Arc<Proxy>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let proxy = self.clone();
            connections.spawn(async move {
                // A driver that leaves is no mistake.
                let _ = proxy.connection(client).await;
            });
            while connections.try_join_next().is_some() {}
        }
    }

    async fn connection(&self, client: TcpStream) -> Result<()> {
        client.set_nodelay(true)?;
        let mut client = BufReader::new(client);
        while let Some(request) = Message::read(&mut client).await? {
            let mut treatment = self.note(&request);
            if !self.treat(&mut client, &request, &mut treatment).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Treats one request. Returns true if the connection goes on.
    async fn treat(
        &self,
        client: &mut BufReader<TcpStream>,
        request: &Message,
        treatment: &mut Treatment,
    ) -> Result<bool> {
        match treatment.fault {
            Fault::DropRequest => return Ok(false),
            Fault::ResetRequest => return reset(client),
            Fault::DelayRequest => tokio::time::sleep(treatment.chance.millis(1, 80)).await,
            Fault::ErrorBefore => return send(client, &broken(&mut treatment.chance)).await,
            Fault::None
            | Fault::DropAnswer
            | Fault::ResetAnswer
            | Fault::CutAnswer
            | Fault::DelayAnswer
            | Fault::ErrorAfter
            | Fault::Hang => {}
        }
        let answer = match self.forward(request).await {
            Ok(answer) => answer,
            Err(error) => {
                self.book.mistake(format!("the gateway did not answer: {error}"));
                return Ok(false);
            }
        };
        self.note_answer(treatment, &answer);
        match treatment.fault {
            Fault::DropAnswer => return Ok(false),
            Fault::ResetAnswer => return reset(client),
            Fault::CutAnswer => {
                let bytes = answer.to_bytes();
                let half = treatment.chance.between(1, bytes.len() as u64);
                client.write_all(&bytes[..usize::try_from(half).unwrap_or(1)]).await?;
                return Ok(false);
            }
            Fault::DelayAnswer => tokio::time::sleep(treatment.chance.millis(1, 80)).await,
            Fault::ErrorAfter => return send(client, &broken(&mut treatment.chance)).await,
            Fault::Hang => {
                let _ = tokio::time::timeout(LONGEST_HANG, client.read_u8()).await;
                return Ok(false);
            }
            Fault::None
            | Fault::DropRequest
            | Fault::ResetRequest
            | Fault::DelayRequest
            | Fault::ErrorBefore => {}
        }
        send(client, &answer).await
    }

    /// Sends a request to the gateway on a connection of its own, as the proxy that the gateway trusts.
    async fn forward(&self, request: &Message) -> Result<Message> {
        let mut request = request.clone();
        request.fields.retain(|(name, _)| name != "connection" && name != "keep-alive");
        for (name, value) in CALLER.into_iter().chain([("connection", "close")]) {
            request.fields.push((name.to_owned(), value.to_owned()));
        }
        let stream = TcpStream::connect(self.gateway).await?;
        stream.set_nodelay(true)?;
        let mut gateway = BufReader::new(stream);
        gateway.write_all(&request.to_bytes()).await?;
        let answer = Message::read(&mut gateway).await?;
        let mut answer = answer.ok_or_else(|| Error::other("it closed the connection"))?;
        answer.fields.retain(|(name, _)| name != "connection");
        Ok(answer)
    }

    /// Draws the treatment of a request, and writes both down.
    fn note(&self, request: &Message) -> Treatment {
        let target = request.second_word();
        let mut pages = self.book.pages();
        let sends = (target == PATH).then(|| number(&request.body)).flatten();
        let polled = target.strip_prefix(OPERATIONS).map(|rest| rest.split('/').next().unwrap_or(rest));
        let polled = polled.and_then(|operation| pages.operations.get(operation).copied());
        let Some(number) = sends.or(polled) else {
            pages.mistakes.insert(format!("the proxy does not know what {:?} is", request.first));
            let (fault, chance) = (Fault::None, Chance::new(self.seed));
            return Treatment { fault, chance, sends: None };
        };
        let command = pages.command(number);
        let (what, before) = match sends {
            Some(_) => ("sending", command.sendings.len() as u64),
            None => ("poll", command.polls),
        };
        let mut chance = Chance::of(self.seed, &format!("{what} {number} {before}"));
        let fault = match (number, sends) {
            (NEVER_SENT, Some(_)) => chance.pick(&[Fault::DropRequest, Fault::ResetRequest]),
            (NEVER_ANSWERED, Some(_)) => {
                chance.pick(&[Fault::DropAnswer, Fault::ResetAnswer, Fault::CutAnswer, Fault::ErrorAfter])
            }
            (HANGS_ONCE, Some(_)) if before == 0 => Fault::Hang,
            _ => Fault::draw(&mut chance),
        };
        command.events.push(format!("proxy: {what} {}: {}", before + 1, fault.as_str()));
        let sends = match sends {
            None => {
                command.polls += 1;
                None
            }
            Some(_) => {
                command.sendings.push(Sending {
                    key: request.field("idempotency-key").map(str::to_owned),
                    deadline: request.field("semel-deadline").and_then(|value| value.parse().ok()),
                    body: request.body.clone(),
                    fault,
                    status: None,
                    advice: None,
                });
                Some((number, command.sendings.len() - 1))
            }
        };
        *pages.faults.entry(fault).or_default() += 1;
        Treatment { fault, chance, sends }
    }

    fn note_answer(&self, treatment: &Treatment, answer: &Message) {
        let Some((number, place)) = treatment.sends else { return };
        let mut pages = self.book.pages();
        let command = pages.command(number);
        let advice = answer.field("idempotency-retry").map(str::to_owned);
        let replayed = answer.field("idempotency-replayed").is_some();
        command.events.push(format!(
            "gateway: sending {}: {}{}{}",
            place + 1,
            answer.status(),
            advice.as_ref().map(|advice| format!(", {advice}")).unwrap_or_default(),
            if replayed { ", replayed" } else { "" },
        ));
        command.sendings[place].status = Some(answer.status());
        command.sendings[place].advice = advice;
    }
}

/// Resets the connection when it is dropped.
fn reset(client: &mut BufReader<TcpStream>) -> Result<bool> {
    client.get_ref().set_zero_linger()?;
    Ok(false)
}

/// Sends an answer. Returns true: the connection goes on.
async fn send(client: &mut BufReader<TcpStream>, answer: &Message) -> Result<bool> {
    client.write_all(&answer.to_bytes()).await?;
    Ok(true)
}

/// Draws a server error as a load balancer gives it: a page, at times with `Retry-After`.
fn broken(chance: &mut Chance) -> Message {
    let first =
        ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"];
    let body = b"<h1>an error of the proxy</h1>".to_vec();
    let mut fields = vec![
        ("content-type".to_owned(), "text/html".to_owned()),
        ("content-length".to_owned(), body.len().to_string()),
    ];
    if chance.percent(2) {
        fields.push(("retry-after".to_owned(), "1".to_owned()));
    }
    Message { first: format!("HTTP/1.1 {}", chance.pick(&first)), fields, body }
}
