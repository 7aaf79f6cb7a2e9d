//! Rules for reading evidence in the answers and events of a provider. Plain data: settings and services
//! describe them, `semel-flow` applies them.

use http::{HeaderName, StatusCode};

use crate::pointer::JsonPointer;
use crate::transition::Proof;

/// Largest answer of a provider that is read, in bytes.
pub const MAX_ANSWER: usize = 1 << 20;

/// Meaning of an answer that the provider does not know a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotFound {
    /// No evidence: the provider may not know it yet.
    #[default]
    Unknown,
    /// The command was not executed. With [`LookUpReading::deduplicates`] the key is free at once, otherwise
    /// after the quarantine.
    NotExecuted,
}

/// Meaning of an answer with 410.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gone {
    /// No evidence: the path may be gone, and not the command.
    #[default]
    NoAnswer,
    /// A tombstone, if the answer contains the command's reference.
    Tombstone,
}

/// Rules for reading a provider's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUpReading {
    /// Pointer to the object of the command; `None` for the whole answer.
    pub result: Option<JsonPointer>,
    /// Pointer to the operation id in that object, which confirms that it is about this command. Without it,
    /// the status decides.
    pub reference: Option<JsonPointer>,
    /// Pointer to the command's status word in that object. Without it, the presence of the reference means
    /// "executed".
    pub status: Option<JsonPointer>,
    /// Words that mean "executed".
    pub executed: Vec<String>,
    /// Words that mean "failed for good".
    pub failed: Vec<String>,
    /// Words that mean "still in progress".
    pub pending: Vec<String>,
    /// Meaning of an answer that the provider does not know the command.
    pub not_found: NotFound,
    /// Meaning of an answer with 410.
    pub gone: Gone,
    /// True if the provider deduplicates on our operation id, or on a key that contains it. Then no effect
    /// can happen twice there, and "not executed" frees the key at once.
    pub deduplicates: bool,
    /// Pointer in the object to the response body for retries; `None` for the whole object.
    pub response: Option<JsonPointer>,
    /// Status for retries of an executed command: below 400.
    pub response_status: StatusCode,
    /// Status for retries of a failed command: 400 or more.
    pub failed_status: StatusCode,
    /// Largest body that is stored for retries; of a larger one, only the status is stored.
    pub max_response: usize,
}

impl Default for LookUpReading {
    fn default() -> LookUpReading {
        LookUpReading {
            result: None,
            reference: None,
            status: None,
            executed: Vec::new(),
            failed: Vec::new(),
            pending: Vec::new(),
            not_found: NotFound::Unknown,
            gone: Gone::NoAnswer,
            deduplicates: false,
            response: None,
            response_status: StatusCode::OK,
            failed_status: StatusCode::UNPROCESSABLE_ENTITY,
            max_response: MAX_ANSWER,
        }
    }
}

/// Rules for reading an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventReading {
    /// Pointer to the event's id. With [`Scheme::Semel`] the header `Semel-Event-Id` may carry it instead.
    pub event_id: Option<JsonPointer>,
    /// Pointer to the operation id, or to a key that begins with it and a colon.
    pub operation_id: JsonPointer,
    /// Pointer to the attempt, as the provider got it in `Semel-Attempt`, if the event repeats it.
    pub attempt: Option<JsonPointer>,
    /// Pointer to the command's status word.
    pub verdict: JsonPointer,
    /// Words that mean "executed".
    pub executed: Vec<String>,
    /// Words that mean "failed for good".
    pub failed: Vec<String>,
    /// Words that mean "not executed", and the proof that it never will be.
    pub not_executed: Option<(Vec<String>, Proof)>,
    /// Pointer to the response body for retries; `None` for the whole event.
    pub response: Option<JsonPointer>,
    /// Status for retries of an executed command: below 400.
    pub response_status: StatusCode,
    /// Status for retries of a failed command: 400 or more.
    pub failed_status: StatusCode,
}

/// Signature scheme of a source of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// `Semel-Signature: t=…,v1=…` over `t.eventId.body`, with the id in `Semel-Event-Id`: the scheme of
    /// Semel's own outbox.
    #[default]
    Semel,
    /// `Stripe-Signature: t=…,v1=…` over `t.body`.
    Stripe,
    /// `sha256=…` over the body, in this header. The signature has no time: an observer can send an event
    /// again for ever, and only its id reveals that.
    Body(HeaderName),
}

impl Scheme {
    /// Returns the scheme of GitHub and others, without a time.
    pub fn body() -> Scheme {
        Scheme::Body(HeaderName::from_static("x-hub-signature-256"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_look_up_reading_takes_no_answer_as_evidence() {
        let reading = LookUpReading::default();
        assert_eq!((reading.not_found, reading.gone), (NotFound::Unknown, Gone::NoAnswer));
        assert!(reading.executed.is_empty() && reading.failed.is_empty() && !reading.deduplicates);
        assert_eq!((reading.response_status.as_u16(), reading.failed_status.as_u16()), (200, 422));
        assert_eq!(reading.max_response, 1 << 20);
        assert_eq!(Scheme::body(), Scheme::Body(HeaderName::from_static("x-hub-signature-256")));
    }
}
