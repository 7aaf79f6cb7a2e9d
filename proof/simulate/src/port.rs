//! Where a node is connected to the network: what it sends waits here until the simulator takes it, and what the
//! simulator brings is given to whoever waits for it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use semel_checker::event::Command;
use semel_core::{Change, Claim, Found, Record, RecordId, Statement as Said};
use semel_stores::MemoryStore;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What a node sends.
pub(crate) enum Sent {
    /// Something that it wants an answer to, under this number.
    Asks(u64, Box<Question>),
    /// The answer to a client's request.
    Answers(u64, Box<Reply>),
    /// It has ended in good order.
    Ended,
}

/// What a node asks others.
pub(crate) enum Question {
    /// The store, for the so-many-th time, to do this.
    Store(Statement, u32),
    /// The provider, to carry this out.
    Provider(Call),
    /// The provider, what became of this.
    LookUp(Box<Record>),
}

/// What a store is asked to do.
pub(crate) enum Statement {
    /// To claim.
    Claim(Box<Claim>),
    /// To apply a change.
    Apply(RecordId, Box<Change>),
    /// Anything else, by this name.
    Other(&'static str, Work),
}

/// Something that is done with the store's tables.
pub(crate) type Work = Box<dyn FnOnce(&MemoryStore) -> Box<dyn Any + Send> + Send>;

/// One call of the provider.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) operation_id: String,
    pub(crate) attempt: u32,
    pub(crate) command: Command,
    pub(crate) canary: String,
    pub(crate) reference: Option<String>,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What a node is answered.
pub(crate) enum Answer {
    /// By the store.
    Store(Box<dyn Any + Send>),
    /// By the provider.
    Provider(Reply),
    /// By the provider, about what it has in its ledger.
    Found(Found),
    /// By nobody: the connection was refused, and nothing was sent.
    Refused,
    /// By nobody: the connection broke, and nobody knows what was done.
    Broken,
}

/// What comes to a node.
pub(crate) enum Brought {
    /// A client's request.
    Request(u64, Box<Request<Bytes>>),
    /// The client of this request has left.
    Left(u64),
    /// The answer to what it has asked under this number.
    Answer(u64, Answer),
    /// The provider says by itself what it has done.
    Event(Box<Said>),
    /// It is to end in good order.
    Ends,
}

/// Where a node is connected to the network.
pub(crate) struct Port {
    /// When the process began, by its own clock and by the simulator's.
    began: (Instant, u64),
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    sent: Vec<(u64, Sent)>,
    waiting: BTreeMap<u64, oneshot::Sender<Answer>>,
}

impl Port {
    /// Of a process that begins now, in its own runtime.
    pub(crate) fn new(now: u64) -> Port {
        Port { began: (Instant::now(), now), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The simulator's time, as this process believes it to be: it stands still while the process does.
    pub(crate) fn now(&self) -> u64 {
        let (instant, now) = self.began;
        now + Instant::now().duration_since(instant).as_millis() as u64
    }

    /// The instant at which the process believes it to be this time.
    pub(crate) fn instant(&self, time: u64) -> Instant {
        let (instant, now) = self.began;
        instant + crate::settings::millis(time.saturating_sub(now))
    }

    /// Sends something that is not waited for.
    pub(crate) fn send(&self, sent: Sent) {
        let now = self.now();
        self.state().sent.push((now, sent));
    }

    /// Asks, and waits for the answer, for ever if need be.
    pub(crate) async fn ask(&self, question: Question) -> Answer {
        let (answer, answered) = oneshot::channel();
        let now = self.now();
        {
            let mut state = self.state();
            state.next += 1;
            let number = state.next;
            // Those who wait no longer are forgotten.
            state.waiting.retain(|_, waiting| !waiting.is_closed());
            state.waiting.insert(number, answer);
            state.sent.push((now, Sent::Asks(number, Box::new(question))));
        }
        match answered.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives an answer to whoever waits for it, if anybody still does.
    pub(crate) fn answer(&self, number: u64, answer: Answer) {
        let waiting = self.state().waiting.remove(&number);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// Takes what was sent, with the time of each.
    pub(crate) fn take(&self) -> Vec<(u64, Sent)> {
        std::mem::take(&mut self.state().sent)
    }
}
