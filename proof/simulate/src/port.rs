//! Connection of a node to the network: holds outgoing messages until the simulator takes them, and passes incoming
//! ones to the waiting tasks.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use semel_checker::event::Command;
use semel_core::{Change, Claim, LookUpAnswer, Record, RecordId, Statement as Said};
use semel_stores::MemoryStore;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Outgoing message of a node.
pub(crate) enum Sent {
    /// A question under this number, which expects an answer.
    Asks(u64, Box<Question>),
    /// The answer to a client's request.
    Answers(u64, Box<Reply>),
    /// The node has shut down gracefully.
    Ended,
}

/// Question of a node.
pub(crate) enum Question {
    /// A statement for the store, with the number of the try.
    Store(Statement, u32),
    /// A call to the provider.
    Provider(Call),
    /// A lookup of this record at the provider.
    LookUp(Box<Record>),
}

/// Statement for a store.
pub(crate) enum Statement {
    /// A claim.
    Claim(Box<Claim>),
    /// A change of a record.
    Apply(RecordId, Box<Change>),
    /// Any other statement, by this name.
    Other(&'static str, Work),
}

/// Work on the store's tables.
pub(crate) type Work = Box<dyn FnOnce(&MemoryStore) -> Box<dyn Any + Send> + Send>;

/// Call to the provider.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) operation_id: String,
    pub(crate) attempt: u32,
    pub(crate) command: Command,
    pub(crate) canary: String,
    pub(crate) reference: Option<String>,
}

/// HTTP response.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Answer to a node's question.
pub(crate) enum Answer {
    /// Answer of the store.
    Store(Box<dyn Any + Send>),
    /// Answer of the provider to a call.
    Provider(Reply),
    /// Answer of the provider to a lookup.
    Found(LookUpAnswer),
    /// No answer: the connection was refused, and nothing was sent.
    Refused,
    /// No answer: the connection broke, and the effect is unknown.
    Broken,
}

/// Incoming message of a node.
pub(crate) enum Brought {
    /// A client's request.
    Request(u64, Box<Request<Bytes>>),
    /// The client of this request has disconnected.
    Left(u64),
    /// The answer to the question of this number.
    Answer(u64, Answer),
    /// An event of the provider about an effect.
    Event(Box<Said>),
    /// A request to shut down gracefully.
    Ends,
}

/// Connection of a node to the network.
pub(crate) struct Port {
    /// Start of the process, by its own clock and by the simulator's.
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
    /// Returns the port of a process that starts now in its own runtime.
    pub(crate) fn new(now: u64) -> Port {
        Port { began: (Instant::now(), now), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the simulator's time as this process sees it: it stands still during a pause.
    pub(crate) fn now(&self) -> u64 {
        let (instant, now) = self.began;
        now + Instant::now().duration_since(instant).as_millis() as u64
    }

    /// Returns the process's instant for this simulated time.
    pub(crate) fn instant(&self, time: u64) -> Instant {
        let (instant, now) = self.began;
        instant + crate::settings::millis(time.saturating_sub(now))
    }

    /// Sends a message without waiting for an answer.
    pub(crate) fn send(&self, sent: Sent) {
        let now = self.now();
        self.state().sent.push((now, sent));
    }

    /// Asks a question and waits for the answer without a timeout.
    pub(crate) async fn ask(&self, question: Question) -> Answer {
        let (answer, answered) = oneshot::channel();
        let now = self.now();
        {
            let mut state = self.state();
            state.next += 1;
            let number = state.next;
            // Questions whose task no longer waits are dropped.
            state.waiting.retain(|_, waiting| !waiting.is_closed());
            state.waiting.insert(number, answer);
            state.sent.push((now, Sent::Asks(number, Box::new(question))));
        }
        match answered.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }

    /// Passes an answer to its waiting task, if there is one.
    pub(crate) fn answer(&self, number: u64, answer: Answer) {
        let waiting = self.state().waiting.remove(&number);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// Takes the outgoing messages, each with its time.
    pub(crate) fn take(&self) -> Vec<(u64, Sent)> {
        std::mem::take(&mut self.state().sent)
    }
}
