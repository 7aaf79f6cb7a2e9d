//! Observations from outside: by clients, in the store, in the upstream's ledger. Judges get nothing else.

use bytes::Bytes;
use http::response::Parts;
use serde_json::Value;

/// Result of a client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A complete response.
    Answer(Box<Answer>),
    /// The connection ended without a response.
    Dropped(String),
    /// The client left before the response.
    Left,
}

/// Response, as far as it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Code of a problem document.
    pub(crate) code: Option<String>,
    pub(crate) operation_id: Option<String>,
    pub(crate) location: Option<String>,
    /// True if it is marked as a replay.
    pub(crate) replayed: bool,
    pub(crate) retry_after: bool,
    /// True if it has the URL of the operation's status.
    pub(crate) status_url: bool,
    pub(crate) body: Bytes,
}

impl Told {
    pub(crate) fn answer(parts: &Parts, body: Bytes) -> Told {
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let is_problem = header("content-type").is_some_and(|kind| kind.starts_with("application/problem"));
        let problem: Value = match is_problem {
            true => serde_json::from_slice(&body).unwrap_or_default(),
            false => Value::Null,
        };
        let text = |name: &str| problem[name].as_str().map(str::to_owned);
        Told::Answer(Box::new(Answer {
            status: parts.status.as_u16(),
            code: text("code"),
            operation_id: header("idempotency-operation-id").map(str::to_owned).or(text("operationId")),
            location: header("location").map(str::to_owned),
            replayed: header("idempotency-replayed") == Some("true"),
            retry_after: header("retry-after").is_some(),
            status_url: problem.to_string().contains("/.well-known/semel/operations/"),
            body,
        }))
    }

    pub(crate) fn as_answer(&self) -> Option<&Answer> {
        match self {
            Told::Answer(answer) => Some(answer),
            Told::Dropped(_) | Told::Left => None,
        }
    }

    fn is(&self, status: u16, code: &str) -> bool {
        self.as_answer().is_some_and(|answer| answer.status == status && answer.code.as_deref() == Some(code))
    }

    /// Returns true for the service's own response, first hand or replayed.
    pub(crate) fn is_done(&self) -> bool {
        self.as_answer().is_some_and(|answer| answer.status == 201 && answer.code.is_none())
    }

    /// Returns true if a worker has accepted the command or will run it.
    pub(crate) fn is_accepted(&self) -> bool {
        self.as_answer().is_some_and(|answer| {
            let named = answer.location.as_ref().is_some_and(|path| path.starts_with("/.well-known/semel/"));
            answer.status == 202 && answer.code.is_none() && answer.retry_after && named
        })
    }

    /// Returns true if another request is executing the command.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.is(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS")
    }

    /// Returns true for a retry of a command whose outcome is unknown.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is(409, "IDEMPOTENCY_OUTCOME_UNKNOWN")
    }

    /// Returns true if the command ran, or may have, and its outcome is unknown.
    pub(crate) fn is_failed_unknown(&self) -> bool {
        [500, 502, 504].iter().any(|status| self.is(*status, "IDEMPOTENCY_OUTCOME_UNKNOWN"))
    }

    /// Returns true if nothing ran because the upstream did not accept the request.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.is(502, "UPSTREAM_UNREACHABLE")
    }

    /// Returns true if nothing ran because the store is unavailable.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.is(503, "IDEMPOTENCY_STORE_UNAVAILABLE")
    }

    /// Returns true if the command is done, and its response was not retained.
    pub(crate) fn is_not_retained(&self) -> bool {
        self.as_answer()
            .is_some_and(|answer| answer.code.as_deref() == Some("IDEMPOTENCY_RESPONSE_NOT_RETAINED"))
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Told::Answer(answer) => {
                write!(f, "{}", answer.status)?;
                if let Some(code) = &answer.code {
                    write!(f, " {code}")?;
                }
                if answer.replayed {
                    f.write_str(" (replayed)")?;
                }
                Ok(())
            }
            Told::Dropped(why) => write!(f, "dropped ({why})"),
            Told::Left => f.write_str("left"),
        }
    }
}

/// A record, read past Semel's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) operation_id: String,
    pub(crate) state: String,
    pub(crate) epoch: u32,
    /// History: one line for each step of the record.
    pub(crate) history: String,
}

/// An effect: one line of the upstream's ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) operation_id: String,
    /// The client's key, by which a provider could deduplicate.
    pub(crate) key: String,
    /// Response body of that effect.
    pub(crate) body: Bytes,
}

/// All observations of one command.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Record and number of effects when the fault had struck, before anything else happened.
    pub(crate) at_fault: (Option<Record>, usize),
    /// Final result of the first client.
    pub(crate) first: Told,
    /// Results of duplicates while the fault lasted.
    pub(crate) during: Vec<Told>,
    /// Results once the store's clock had jumped past the end of the lease.
    pub(crate) beyond: Vec<Told>,
    /// Number of effects when the fault was over and the first client had its response.
    pub(crate) effects_then: usize,
    /// Results of later retries, until nothing changed any more.
    pub(crate) after: Vec<Told>,
    /// Final result at every gateway.
    pub(crate) last: Vec<Told>,
    /// Final record.
    pub(crate) record: Option<Record>,
    /// Final ledger.
    pub(crate) effects: Vec<Effect>,
    /// Verdict of an operator meanwhile.
    pub(crate) operator: Option<Bytes>,
    /// True if the executor is gone for good, so that the outcome cannot be known.
    pub(crate) executor_gone: bool,
}

impl Seen {
    /// Returns the results of all clients.
    pub(crate) fn told(&self) -> impl Iterator<Item = &Told> {
        [&self.first].into_iter().chain(&self.during).chain(&self.beyond).chain(&self.after).chain(&self.last)
    }

    /// Describes the observations in one line.
    pub(crate) fn tell(&self) -> String {
        let list = |told: &[Told]| told.iter().map(Told::to_string).collect::<Vec<_>>().join(", ");
        let state = |record: &Option<Record>| {
            record
                .as_ref()
                .map_or("no record".to_owned(), |record| format!("{} {}", record.state, record.epoch))
        };
        format!(
            "at the fault {} and {} effects; first: {}; during: [{}]; beyond the lease: [{}]; then {} effects; after: [{}]; last: [{}]; {}; {} \
             effects; history: {:?}",
            state(&self.at_fault.0),
            self.at_fault.1,
            self.first,
            list(&self.during),
            list(&self.beyond),
            self.effects_then,
            list(&self.after),
            list(&self.last),
            state(&self.record),
            self.effects.len(),
            self.record.as_ref().map(|record| record.history.as_str()).unwrap_or_default(),
        )
    }
}

#[cfg(test)]
impl Told {
    /// Returns a response for tests of judges.
    pub(crate) fn sample(status: u16, code: Option<&str>, replayed: bool, body: &str) -> Told {
        Told::Answer(Box::new(Answer {
            status,
            code: code.map(str::to_owned),
            operation_id: None,
            location: None,
            replayed,
            retry_after: true,
            status_url: true,
            body: Bytes::from(body.to_owned()),
        }))
    }
}
