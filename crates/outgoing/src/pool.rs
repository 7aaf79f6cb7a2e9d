//! Questions that have no effect, over connections that are kept.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, request};
use http_body_util::Full;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::address::Address;
use crate::client::Client;
use crate::connection::{Bound, Connection, collect};
use crate::error::Error;
use crate::tls::{TlsError, TlsSettings};

/// The most questions at a time; more of them wait.
const MAX_AT_ONCE: usize = 256;
/// The most connections that are kept for the next question.
const MAX_IDLE: usize = 64;
/// The longest that a connection is kept. Shorter than servers keep theirs.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);

/// Asks one service. A question that finds its connection closed is asked again on another, so it must have no effect.
pub struct Pool {
    client: Client,
    idle: Mutex<Vec<(Connection, Instant)>>,
    places: Semaphore,
}

impl Pool {
    /// Makes a pool for the service at this address. Nothing is connected, and no file is read.
    ///
    /// # Errors
    /// If no certificate can be for the host.
    pub fn new(address: Address, tls: TlsSettings) -> Result<Pool, TlsError> {
        let client = Client::new(address, tls)?;
        Ok(Pool { client, idle: Mutex::default(), places: Semaphore::new(MAX_AT_ONCE) })
    }

    /// Reads the files for TLS now, so that a mistake in them is found before the first question. Blocks.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn check(&self) -> Result<(), TlsError> {
        self.client.check()
    }

    /// Begins a question, to which header fields and a body can be added.
    pub fn question(&self, method: Method) -> request::Builder {
        self.client.request(method, self.client.address().target())
    }

    /// Asks, and reads the whole answer, of at most `max_answer` bytes, within `timeout`. The wait for a place counts.
    ///
    /// # Errors
    /// If there is no whole answer.
    pub async fn ask(
        &self,
        question: Request<Full<Bytes>>,
        max_answer: usize,
        timeout: Duration,
    ) -> Result<Response<Bytes>, Error> {
        let bound = Bound::new(timeout);
        bound.within(self.ask_now(question, max_answer, bound)).await
    }

    async fn ask_now(
        &self,
        question: Request<Full<Bytes>>,
        max_answer: usize,
        bound: Bound,
    ) -> Result<Response<Bytes>, Error> {
        let _place = self.places.acquire().await.map_err(|error| Error::NoAnswer(error.to_string()))?;
        if let Some(mut kept) = self.take_idle()
            && let Ok(answer) = exchange(&mut kept, question.clone(), max_answer).await
        {
            self.keep(kept);
            return Ok(answer);
        }
        let mut connection = self.client.connect_within(bound.left()).await?;
        let answer = exchange(&mut connection, question, max_answer).await?;
        self.keep(connection);
        Ok(answer)
    }

    /// Returns a connection that is ready now, if there is one.
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

async fn exchange(
    connection: &mut Connection,
    question: Request<Full<Bytes>>,
    max_answer: usize,
) -> Result<Response<Bytes>, Error> {
    let (head, mut body) = connection.exchange(question).await?.into_parts();
    Ok(Response::from_parts(head, collect(&mut body, max_answer).await?))
}
