//! Events of providers: verified by their signature, and stored before they are answered.
//!
//! | answer | |
//! |---|---|
//! | 200 `{"taken":true}` | stored, and used if the command is unknown |
//! | 200 `{"seen":true}` | the same event was stored before |
//! | 200 `{"ignored":true}` | signed, and no verdict |
//! | 202 `{"taken":true}` | stored, although there is no such command yet, if that is allowed |
//! | 400 | the event cannot be read |
//! | 401 | not signed, or the signature is too old |
//! | 404 | no such source, or no such command for it |
//! | 409 | another event with this id was stored before |
//! | 413 | the event is too large |
//! | 503 | the event could not be stored: send it again |

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use semel_core::json::{NotCanonical, Numbers, Pointed, canonicalize};
pub use semel_core::reading::{EventReading, Scheme};
use semel_core::reconcile::Heard;
use semel_core::transition::Proof;
use semel_core::{Clock, JsonPointer, LookUpAnswer, OperationName, Statement, StoreError, SystemClock};

use super::bounds::SourceBounds;
use super::metrics;
use super::reading::{command, quoted, result, word};
use super::reconciler::Reconciler;
pub use super::signature::NotSigned;
use super::signature::{announced, one, verify};
use crate::signature::MIN_KEY;

/// Maximum size of an event.
pub const MAX_EVENT: usize = 1 << 20;
/// Maximum length of an event id.
const MAX_EVENT_ID: usize = 255;

/// Sender of events, with its keys, its bounds and the rules for reading.
#[derive(Clone)]
pub struct WebhookSource {
    name: String,
    keys: Vec<Vec<u8>>,
    bounds: SourceBounds,
    reading: EventReading,
    scheme: Scheme,
    tolerance: Duration,
    keep_unknown: bool,
    keep_bodies: bool,
    step: Option<String>,
}

/// Reason why a source is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The source has no key to verify signatures with.
    #[error("the webhook {0:?} has no secret: its events could not be told from anybody's")]
    NoKey(String),
    /// A key is short enough to be guessed.
    #[error("the webhook {0:?}: a secret has at least {MIN_KEY} bytes, and this has {1}")]
    ShortKey(String, usize),
    /// The source may speak about no operation.
    #[error("the webhook {0:?} names no operation that it may speak about")]
    NoOperations(String),
    /// The source may speak about no tenant.
    #[error(
        "the webhook {0:?} has an empty list of tenants: name those that it may speak about, or leave it out"
    )]
    NoTenants(String),
    /// Repeated events could not be recognised.
    #[error("the webhook {0:?} does not say where the id of an event is, and its scheme has none")]
    NoEventId(String),
    /// A response status does not match its verdict.
    #[error(
        "the webhook {0:?}: what took place is answered with a status below 400, what failed with one from 400 on"
    )]
    Status(String),
    /// "Not executed" needs a better proof than the quarantine, since events are stored for later.
    #[error(
        "the webhook {0:?}: an event says what was so when it was sent, which a quarantine does not cover: only a \
         provider that deduplicates, or holds a tombstone, can say that a command was not executed"
    )]
    Quarantine(String),
}

impl WebhookSource {
    /// Creates a source of this name, whose events are signed with one of these keys, and which may speak about these
    /// operations.
    pub fn new(
        name: impl Into<String>,
        keys: Vec<Vec<u8>>,
        operations: Vec<OperationName>,
        reading: EventReading,
    ) -> WebhookSource {
        WebhookSource {
            name: name.into(),
            keys,
            bounds: SourceBounds::operations(operations),
            reading,
            scheme: Scheme::Semel,
            tolerance: Duration::from_secs(300),
            keep_unknown: false,
            keep_bodies: true,
            step: None,
        }
    }

    /// Sets the signature scheme.
    pub fn scheme(self, scheme: Scheme) -> WebhookSource {
        WebhookSource { scheme, ..self }
    }

    /// Sets the tolerance between the time of a signature and now, in both directions.
    pub fn tolerance(self, tolerance: Duration) -> WebhookSource {
        WebhookSource { tolerance, ..self }
    }

    /// Keeps events about commands that do not exist, and answers them with 202: their records may come later.
    pub fn keep_unknown(self, keep_unknown: bool) -> WebhookSource {
        WebhookSource { keep_unknown, ..self }
    }

    /// Stores the content of events as the body that retries get. If false, only the status is stored: for operations
    /// whose responses are not stored whole.
    pub fn keep_bodies(self, keep_bodies: bool) -> WebhookSource {
        WebhookSource { keep_bodies, ..self }
    }

    /// Sets the step, for events that name a command as `operationId:step`, like the key of a message or a phase.
    /// Events about other steps are refused: they say nothing about the whole command.
    pub fn step(self, step: impl Into<String>) -> WebhookSource {
        WebhookSource { step: Some(step.into()), ..self }
    }

    /// Restricts the source to commands of these tenants.
    pub fn tenants(self, tenants: Option<Vec<String>>) -> WebhookSource {
        WebhookSource { bounds: SourceBounds { tenants, ..self.bounds }, ..self }
    }

    /// Declares whether the provider executes a command once, however often it is called.
    pub fn deduplicates(self, deduplicates: bool) -> WebhookSource {
        WebhookSource { bounds: SourceBounds { deduplicates, ..self.bounds }, ..self }
    }

    fn check(&self) -> Result<(), SourceError> {
        let (name, reading) = (|| self.name.clone(), &self.reading);
        if self.keys.is_empty() {
            return Err(SourceError::NoKey(name()));
        }
        if let Some(key) = self.keys.iter().find(|key| key.len() < MIN_KEY) {
            return Err(SourceError::ShortKey(name(), key.len()));
        }
        if self.bounds.operations.is_empty() {
            return Err(SourceError::NoOperations(name()));
        }
        if self.bounds.tenants.as_ref().is_some_and(Vec::is_empty) {
            return Err(SourceError::NoTenants(name()));
        }
        if reading.event_id.is_none() && self.scheme != Scheme::Semel {
            return Err(SourceError::NoEventId(name()));
        }
        if reading.response_status.as_u16() >= 400 || reading.failed_status.as_u16() < 400 {
            return Err(SourceError::Status(name()));
        }
        if matches!(reading.not_executed, Some((_, Proof::Quarantine))) {
            return Err(SourceError::Quarantine(name()));
        }
        Ok(())
    }

    /// Returns the statement in an event, if it is a verdict.
    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Option<Statement>, Refused> {
        let reading = &self.reading;
        let unreadable = |error: NotCanonical| Refused::Unreadable(error.to_string());
        let needed = |what: &str, pointer: &JsonPointer| {
            let found = word(pointer, body).map_err(unreadable)?;
            found.ok_or_else(|| Refused::Unreadable(format!("there is no {what} at {pointer}")))
        };
        let Some(said) = word(&reading.verdict, body).map_err(unreadable)? else { return Ok(None) };
        let max_body = if self.keep_bodies { MAX_EVENT } else { 0 };
        let found = match &said {
            said if reading.executed.contains(said) => {
                LookUpAnswer::Executed(result(reading.response_status, self.response(body)?, max_body))
            }
            said if reading.failed.contains(said) => {
                LookUpAnswer::Failed(result(reading.failed_status, self.response(body)?, max_body))
            }
            said => match &reading.not_executed {
                Some((words, proof)) if words.contains(said) => LookUpAnswer::NotExecuted(*proof),
                Some(_) | None => return Ok(None),
            },
        };
        let event_id = match &reading.event_id {
            Some(pointer) => needed("event id", pointer)?,
            None => one(headers, "semel-event-id").map_err(Refused::NotSigned)?.to_owned(),
        };
        if event_id.is_empty() || event_id.len() > MAX_EVENT_ID || event_id.chars().any(char::is_control) {
            return Err(Refused::Unreadable("the event id is empty, too long or no text".to_owned()));
        }
        let reference = needed("operation id", &reading.operation_id)?;
        // Another system's reference: the provider may serve other systems of the same owner.
        let step = reference.split_once(':').map(|(_, step)| step);
        if step.is_some() && step != self.step.as_deref() {
            return Err(Refused::UnknownOperation);
        }
        let about = command(&reference).ok_or(Refused::UnknownOperation)?;
        let seen = format!("webhook {}: event {} says {}", self.name, quoted(&event_id), quoted(&said));
        let attempt = match &reading.attempt {
            Some(pointer) => word(pointer, body).map_err(unreadable)?.and_then(|word| word.parse().ok()),
            None => None,
        };
        let said = Statement::new(self.name.clone(), event_id, about, found, seen);
        let said = said.map(|said| said.of_attempt(attempt));
        // A whole event contains more than the statement, such as a delivery count.
        Ok(if reading.response.is_some() { said } else { said.map(Statement::without_its_response) })
    }

    /// Returns the body that retries get.
    fn response(&self, body: &[u8]) -> Result<String, Refused> {
        let unreadable = |error: NotCanonical| Refused::Unreadable(error.to_string());
        let Some(pointer) = &self.reading.response else {
            let whole = canonicalize(body, Numbers::Exact, &[]).map_err(unreadable)?;
            return Ok(String::from_utf8_lossy(&whole).into_owned());
        };
        match pointer.point(body).map_err(unreadable)? {
            Pointed::Value(response) => Ok(response),
            Pointed::Missing | Pointed::NoPlace => {
                Err(Refused::Unreadable(format!("there is no response at {pointer}")))
            }
        }
    }
}

/// Outcome of a received event.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// The event is stored, and was used if possible.
    Taken,
    /// The event is stored, and there is no such command yet.
    Kept,
    /// The event was stored before.
    Seen,
    /// The event is no verdict.
    Ignored,
    /// The event is refused.
    Refused(Refused),
}

/// Reason why an event is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such source.
    #[error("there is no such webhook")]
    UnknownSource,
    /// The event is too large.
    #[error("an event has at most {MAX_EVENT} bytes")]
    TooLarge,
    /// The sender cannot be verified.
    #[error(transparent)]
    NotSigned(#[from] NotSigned),
    /// The event cannot be read.
    #[error("the event cannot be read: {0}")]
    Unreadable(String),
    /// The event is about no command that its source may speak about.
    #[error("there is no such operation")]
    UnknownOperation,
    /// Another event with its id was stored before.
    #[error("another event with this id was received before")]
    OtherEvent,
    /// The event could not be stored.
    #[error("the event could not be kept: send it again later")]
    Unavailable,
}

impl Received {
    /// Returns the status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Received::Taken | Received::Seen | Received::Ignored => StatusCode::OK,
            Received::Kept => StatusCode::ACCEPTED,
            Received::Refused(refused) => match refused {
                Refused::UnknownSource | Refused::UnknownOperation => StatusCode::NOT_FOUND,
                Refused::OtherEvent => StatusCode::CONFLICT,
                Refused::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                Refused::NotSigned(_) => StatusCode::UNAUTHORIZED,
                Refused::Unreadable(_) => StatusCode::BAD_REQUEST,
                Refused::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }

    /// Returns the body of the answer: JSON.
    pub fn body(&self) -> String {
        match self {
            Received::Taken | Received::Kept => r#"{"taken":true}"#.to_owned(),
            Received::Seen => r#"{"seen":true}"#.to_owned(),
            Received::Ignored => r#"{"ignored":true}"#.to_owned(),
            Received::Refused(refused) => serde_json::json!({ "error": refused.to_string() }).to_string(),
        }
    }

    fn outcome(&self) -> &'static str {
        match self {
            Received::Taken | Received::Kept => "taken",
            Received::Seen => "seen",
            Received::Ignored => "ignored",
            Received::Refused(Refused::Unavailable) => "unavailable",
            Received::Refused(_) => "refused",
        }
    }
}

/// Receives events from any number of sources.
pub struct Webhooks {
    reconciler: Arc<Reconciler>,
    sources: HashMap<String, WebhookSource>,
    clock: Box<dyn Clock>,
}

impl Webhooks {
    /// Creates a receiver without sources. This reconciler uses the events.
    pub fn new(reconciler: Arc<Reconciler>) -> Webhooks {
        Webhooks { reconciler, sources: HashMap::new(), clock: Box::new(SystemClock) }
    }

    /// Sets the clock that measures the age of signatures.
    pub fn with_clock(self, clock: impl Clock) -> Webhooks {
        Webhooks { clock: Box::new(clock), ..self }
    }

    /// Adds a source.
    pub fn source(mut self, source: WebhookSource) -> Result<Webhooks, SourceError> {
        source.check()?;
        metrics::begin_source(&source.name);
        self.reconciler.bind(&source.name, source.bounds.clone());
        self.sources.insert(source.name.clone(), source);
        Ok(self)
    }

    /// Checks the head of an event before its body is read.
    ///
    /// # Errors
    /// If there is no such source, or the signature cannot be valid: do not read the body.
    pub fn greet(&self, source: &str, headers: &HeaderMap) -> Result<(), Refused> {
        let known = self.sources.get(source).ok_or(Refused::UnknownSource)?;
        announced(&known.scheme, headers, known.tolerance, self.clock.now()).map_err(|why| {
            metrics::webhook(source, "refused");
            tracing::warn!(event = "idempotency_webhook_refused", source, %why, "an event was not read");
            Refused::NotSigned(why)
        })
    }

    /// Receives an event under the name of this source. An answer other than `Refused` means that it is stored durably,
    /// or need not be. The caller limits the body: one byte more than [`MAX_EVENT`] is enough.
    pub async fn receive(&self, source: &str, headers: &HeaderMap, body: &[u8]) -> Received {
        let Some(known) = self.sources.get(source) else { return Received::Refused(Refused::UnknownSource) };
        let received = match self.take_in(known, headers, body).await {
            Ok(received) => received,
            Err(refused) => Received::Refused(refused),
        };
        metrics::webhook(source, received.outcome());
        match &received {
            Received::Refused(why) => {
                tracing::warn!(event = "idempotency_webhook_refused", source, %why, "an event was not taken");
            }
            Received::Taken | Received::Kept | Received::Seen | Received::Ignored => {
                tracing::debug!(event = "idempotency_webhook", source, outcome = received.outcome());
            }
        }
        received
    }

    async fn take_in(
        &self,
        source: &WebhookSource,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Received, Refused> {
        if body.len() > MAX_EVENT {
            return Err(Refused::TooLarge);
        }
        verify(&source.scheme, &source.keys, headers, body, source.tolerance, self.clock.now())?;
        let Some(statement) = source.read(headers, body)? else { return Ok(Received::Ignored) };
        let record =
            self.reconciler.store().find(statement.operation_id).await.map_err(|error| away(&error))?.record;
        match &record {
            Some(record) if !source.bounds.contain(record) => return Err(Refused::UnknownOperation),
            Some(_) => {}
            None if source.keep_unknown => {}
            // A note proves that the command existed here.
            None => {
                let notes = self.reconciler.store().notes(statement.operation_id).await;
                let is_forgotten = !notes.map_err(|error| away(&error))?.is_empty();
                if !is_forgotten || source.bounds.tenants.is_some() {
                    metrics::without_record(&statement);
                    return Err(Refused::UnknownOperation);
                }
            }
        }
        let heard = self.reconciler.evidence().take_in(&statement).await.map_err(|error| away(&error))?;
        if heard == Heard::Other {
            metrics::other_event(&statement);
            return Err(Refused::OtherEvent);
        }
        if record.is_some() || !source.keep_unknown {
            // It is stored: if it cannot be used now, it is used later. A repeated event may not have been used the
            // first time.
            if let Err(error) = self.reconciler.use_evidence_about(statement.operation_id).await {
                tracing::warn!(%error, "an event is kept, and used later");
            }
        }
        Ok(match (heard, record) {
            (Heard::Before | Heard::Other, _) => Received::Seen,
            (Heard::New, Some(_)) => Received::Taken,
            (Heard::New, None) => Received::Kept,
        })
    }
}

fn away(error: &StoreError) -> Refused {
    tracing::warn!(%error, "an event could not be kept");
    Refused::Unavailable
}
