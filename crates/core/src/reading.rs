//! The reading of evidence: what the answers and the events of a provider mean. Plain data: settings and services describe it,
//! `semel-flow` reads by it.

use http::{HeaderName, StatusCode};

use crate::pointer::JsonPointer;
use crate::transition::Proof;

/// The largest answer of a provider that is read.
pub const MAX_ANSWER: usize = 1 << 20;

/// The meaning of a provider that does not know a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotFound {
    /// Nothing: it may not know it yet.
    #[default]
    Unknown,
    /// It was not executed. With [`LookUpReading::deduplicates`] the key is free at once, else after the quarantine.
    NotExecuted,
}

/// The meaning of a provider that answers 410.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gone {
    /// Nothing: the path may be gone, and not the command.
    #[default]
    NoAnswer,
    /// It holds a tombstone, if the command's reference is in the answer.
    Tombstone,
}

/// The reading of a provider's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUpReading {
    /// The place of the object that stands for the command; the whole answer if there is none.
    pub result: Option<JsonPointer>,
    /// The place of the operation id in it, to be sure that it is about this command. Without it, the status tells.
    pub reference: Option<JsonPointer>,
    /// The place of the word in it for what became of the command. Without it, that its reference is there means that it took place.
    pub status: Option<JsonPointer>,
    /// The words that mean: it took place.
    pub executed: Vec<String>,
    /// The words that mean: it failed for good.
    pub failed: Vec<String>,
    /// The words that mean: the provider is still at it.
    pub pending: Vec<String>,
    /// The meaning of an answer that the provider does not know it.
    pub not_found: NotFound,
    /// The meaning of an answer with 410.
    pub gone: Gone,
    /// True if the provider deduplicates on our operation id, or a key that is made of it: then nothing can take place twice
    /// there, and "not executed" frees the key at once.
    pub deduplicates: bool,
    /// The place in the object of the body that retries get; the whole object if there is none.
    pub response: Option<JsonPointer>,
    /// The status that retries get if it took place: below 400.
    pub response_status: StatusCode,
    /// The status that retries get if it failed: 400 or more.
    pub failed_status: StatusCode,
    /// The largest body that is kept for retries; of a larger one only the status is.
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

/// The reading of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventReading {
    /// The place of its name. With [`Scheme::Semel`] it may be left to the header `Semel-Event-Id`.
    pub event_id: Option<JsonPointer>,
    /// The place of the operation id, or of a key that begins with it and a colon.
    pub operation_id: JsonPointer,
    /// The place of the attempt, as the provider got it in `Semel-Attempt`, if it repeats it.
    pub attempt: Option<JsonPointer>,
    /// The place of the word for what became of the command.
    pub verdict: JsonPointer,
    /// The words that mean: it took place.
    pub executed: Vec<String>,
    /// The words that mean: it failed for good.
    pub failed: Vec<String>,
    /// The words that mean: it did not take place, and never will for this reason.
    pub not_executed: Option<(Vec<String>, Proof)>,
    /// The place of the body that retries get; the whole event if there is none.
    pub response: Option<JsonPointer>,
    /// The status that retries get if it took place: below 400.
    pub response_status: StatusCode,
    /// The status that retries get if it failed: 400 or more.
    pub failed_status: StatusCode,
}

/// The way in which a source signs its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// `Semel-Signature: t=…,v1=…` over `t.eventId.body`, with the id in `Semel-Event-Id`: as Semel's own outbox signs.
    #[default]
    Semel,
    /// `Stripe-Signature: t=…,v1=…` over `t.body`.
    Stripe,
    /// `sha256=…` over the body, in this header. It has no time: who has seen an event can send it again for ever, and only
    /// its id tells.
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
    fn by_default_nothing_is_evidence() {
        let reading = LookUpReading::default();
        assert_eq!((reading.not_found, reading.gone), (NotFound::Unknown, Gone::NoAnswer));
        assert!(reading.executed.is_empty() && reading.failed.is_empty() && !reading.deduplicates);
        assert_eq!((reading.response_status.as_u16(), reading.failed_status.as_u16()), (200, 422));
        assert_eq!(reading.max_response, 1 << 20);
        assert_eq!(Scheme::body(), Scheme::Body(HeaderName::from_static("x-hub-signature-256")));
    }
}
