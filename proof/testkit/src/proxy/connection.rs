//! One connection through the proxy: two directions, each forwarded message by message.

use std::io::{Error, Result};
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Shared;
use super::faults::{Cut, Fault, Signal};
use super::wire::{self, Names, Opening, Step};

/// State of a connection in both directions.
struct Connection<'a> {
    shared: &'a Shared,
    /// Rounds that the client has begun, the login being the first. The server ends each with "ready for
    /// query".
    rounds: Mutex<u64>,
    /// Rounds whose answers are not forwarded, and the reason.
    kept: Mutex<Vec<(u64, Kept)>>,
}

#[derive(Clone)]
enum Kept {
    /// The connection is cut once the server has answered.
    Cut(Signal),
    /// The connection is cut as soon as the statement was sent; a faster answer must not get through.
    Never,
    /// The answer is forwarded once it is released.
    Held(Signal),
}

/// Forwards messages until one side ends, or a fault ends both: then both sockets close.
pub(super) async fn run(mut client: TcpStream, shared: &Shared) -> Result<()> {
    let mut blackhole = shared.blackhole.subscribe();
    let startup = loop {
        passable(&mut blackhole).await;
        match wire::opening(&mut client).await? {
            None => return Ok(()),
            Some(Opening::Encryption) => client.write_all(b"N").await?,
            Some(Opening::Cancel(message)) => {
                return TcpStream::connect(shared.upstream()).await?.write_all(&message).await;
            }
            Some(Opening::Startup(message)) => break message,
        }
    };
    passable(&mut blackhole).await;
    let mut server = TcpStream::connect(shared.upstream()).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    server.write_all(&startup).await?;
    let connection = Connection { shared, rounds: Mutex::new(1), kept: Mutex::default() };
    let (from_client, mut to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    let (mut from_client, mut from_server) = (BufReader::new(from_client), BufReader::new(from_server));
    let ended = tokio::select! {
        ended = connection.statements(&mut from_client, &mut to_server) => ended,
        ended = connection.answers(&mut from_server, &mut to_client) => ended,
    };
    // Neither side learns of the other's end.
    passable(&mut blackhole).await;
    ended
}

impl Connection<'_> {
    /// Forwards from the client to the server.
    async fn statements(
        &self,
        client: &mut (impl AsyncRead + Unpin),
        server: &mut (impl AsyncWrite + Unpin),
    ) -> Result<()> {
        let mut names = Names::default();
        let mut blackhole = self.shared.blackhole.subscribe();
        let mut cut_at_end_of_round = None;
        while let Some(message) = wire::message(client).await? {
            passable(&mut blackhole).await;
            let step = names.read(&message)?;
            if let Step::Query(sql) | Step::Execute(sql) = &step {
                match self.shared.plan.next(sql) {
                    None => {}
                    Some(Fault::Cut(Cut::BeforeSent, signal)) => {
                        return self.cut(Cut::BeforeSent, &signal);
                    }
                    Some(Fault::Cut(Cut::AfterSent, signal)) => {
                        self.keep(Kept::Never);
                        cut_at_end_of_round = Some(signal);
                    }
                    Some(Fault::Cut(Cut::AfterServerAnswered, signal)) => self.keep(Kept::Cut(signal)),
                    Some(Fault::HoldAnswer(signal)) => self.keep(Kept::Held(signal)),
                    Some(Fault::HoldStatement(signal)) => {
                        signal.strike();
                        signal.released().await;
                    }
                }
            }
            let ends_round = matches!(step, Step::Query(_) | Step::Sync);
            if ends_round {
                *self.rounds.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
            server.write_all(&message).await?;
            if let Some(signal) = cut_at_end_of_round.take_if(|_| ends_round) {
                server.shutdown().await?;
                return self.cut(Cut::AfterSent, &signal);
            }
        }
        Ok(())
    }

    /// Forwards from the server to the client.
    async fn answers(
        &self,
        server: &mut (impl AsyncRead + Unpin),
        client: &mut (impl AsyncWrite + Unpin),
    ) -> Result<()> {
        let mut blackhole = self.shared.blackhole.subscribe();
        let mut round = 1;
        let mut held = Vec::new();
        while let Some(message) = wire::message(server).await? {
            passable(&mut blackhole).await;
            let ends_round = message[0] == b'Z';
            match self.kept(round) {
                None => client.write_all(&message).await?,
                Some(Kept::Never) => {}
                Some(Kept::Cut(signal)) if ends_round => return self.cut(Cut::AfterServerAnswered, &signal),
                Some(Kept::Cut(_)) => {}
                Some(Kept::Held(signal)) => {
                    if held.len() + message.len() > wire::LARGEST {
                        return Err(Error::other("an answer is too large to be held"));
                    }
                    held.extend(message);
                    if ends_round {
                        signal.strike();
                        signal.released().await;
                        client.write_all(&held).await?;
                        held.clear();
                    }
                }
            }
            if ends_round {
                round += 1;
            }
        }
        Ok(())
    }

    /// Keeps back the answer to the client's current round.
    fn keep(&self, kept: Kept) {
        let round = *self.rounds.lock().unwrap_or_else(PoisonError::into_inner) + 1;
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push((round, kept));
    }

    fn kept(&self, round: u64) -> Option<Kept> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().find(|(kept, _)| *kept == round).map(|(_, kept)| kept.clone())
    }

    fn cut(&self, cut: Cut, signal: &Signal) -> Result<()> {
        self.shared.plan.count(cut);
        signal.strike();
        Ok(())
    }
}

/// Waits while nothing gets through.
async fn passable(blackhole: &mut watch::Receiver<bool>) {
    // Its sender lives as long as the proxy, which ends its connections.
    let _ = blackhole.wait_for(|blackhole| !blackhole).await;
}
