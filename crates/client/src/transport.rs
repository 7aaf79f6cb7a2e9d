//! Transport: one attempt, a request in, and a whole answer or a fault out. Implemented over reqwest and tower.
//!
//! A transport makes one request, follows no redirect, and repeats nothing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use url::Url;

use crate::response::CommandResponse;

/// Future of a trait object.
pub type ClientFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Sender of single requests. The client adds the timeout: the future is dropped when it is over.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request once, and reads the answer whole.
    fn send(&self, request: AttemptRequest) -> ClientFuture<'_, Result<CommandResponse, AttemptFault>>;
}

/// Request of one attempt. `Debug` shows neither its header fields nor its body.
#[derive(Clone)]
#[non_exhaustive]
pub struct AttemptRequest {
    /// The method.
    pub method: Method,
    /// The absolute address.
    pub url: Url,
    /// The header fields, without those of the connection and without `Content-Length`.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Largest body of the answer in bytes.
    pub response_bound: usize,
    /// Time of the attempt. The client drops the future when it is over.
    pub timeout: Duration,
}

impl fmt::Debug for AttemptRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Attempt without a whole answer. A transport that is not sure says [`AttemptFault::Lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptFault {
    /// There was no connection: nothing was sent.
    Connect,
    /// The name cannot be resolved now: nothing was sent.
    Name,
    /// There is no such name: nothing was sent.
    UnknownHost,
    /// The server's certificate was refused: nothing was sent.
    Certificate,
    /// The connection was lost after it was made.
    Lost,
    /// The time was over after the connection was made.
    Timeout,
    /// The answer is larger than its bound.
    TooLarge,
}
