//! What was seen from outside: by clients, in the store, in the ledger of the service behind. Judges get nothing else.

use bytes::Bytes;
use http::response::Parts;
use serde_json::Value;

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// An answer, whole.
    Answer(Box<Answer>),
    /// Its connection ended without one.
    Dropped(String),
    /// It left before there was one.
    Left,
}

/// An answer, as far as it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The code of a problem.
    pub(crate) code: Option<String>,
    pub(crate) operation_id: Option<String>,
    pub(crate) location: Option<String>,
    /// Whether it says that it is a replay.
    pub(crate) replayed: bool,
    pub(crate) retry_after: bool,
    /// Whether it says where to ask for the operation.
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

    /// The service's own answer, first hand or replayed.
    pub(crate) fn is_done(&self) -> bool {
        self.as_answer().is_some_and(|answer| answer.status == 201 && answer.code.is_none())
    }

    /// A worker has it in hand, or will.
    pub(crate) fn is_accepted(&self) -> bool {
        self.as_answer().is_some_and(|answer| {
            let named = answer.location.as_ref().is_some_and(|path| path.starts_with("/.well-known/semel/"));
            answer.status == 202 && answer.code.is_none() && answer.retry_after && named
        })
    }

    /// Somebody has it in hand.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.is(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS")
    }

    /// A retry of what nobody knows.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is(409, "IDEMPOTENCY_OUTCOME_UNKNOWN")
    }

    /// It ran, or may have, and nobody knows what came of it.
    pub(crate) fn is_failed_unknown(&self) -> bool {
        [500, 502, 504].iter().any(|status| self.is(*status, "IDEMPOTENCY_OUTCOME_UNKNOWN"))
    }

    /// Nothing ran: the service behind did not take it.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.is(502, "UPSTREAM_UNREACHABLE")
    }

    /// Nothing ran: there is no store.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.is(503, "IDEMPOTENCY_STORE_UNAVAILABLE")
    }

    /// Its answer, and nothing was kept of it but that.
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
    /// One line for each step that it went through.
    pub(crate) history: String,
}

/// One line of the ledger: something was really done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) operation_id: String,
    /// What the client named it, which a provider could deduplicate by.
    pub(crate) key: String,
    /// The answer that goes with it.
    pub(crate) body: Bytes,
}

/// All that was seen of one command.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// What the store and the ledger had when the fault had struck, and nothing else had happened.
    pub(crate) at_fault: (Option<Record>, usize),
    /// What the first client was told in the end.
    pub(crate) first: Told,
    /// What others were told about the same request while the fault lasted.
    pub(crate) during: Vec<Told>,
    /// What they were told once the store's clock had jumped past the end of the lease.
    pub(crate) beyond: Vec<Told>,
    /// How much the ledger had when the fault was over and the first client had its answer.
    pub(crate) effects_then: usize,
    /// What others were told after that, until nothing changed any more.
    pub(crate) after: Vec<Told>,
    /// What every gateway says in the end.
    pub(crate) last: Vec<Told>,
    /// The record in the end.
    pub(crate) record: Option<Record>,
    /// The ledger in the end.
    pub(crate) effects: Vec<Effect>,
    /// What an operator decided meanwhile.
    pub(crate) operator: Option<Bytes>,
    /// Whether the one who ran the command is gone for good, so that nobody can know.
    pub(crate) executor_gone: bool,
}

impl Seen {
    /// Everything that anybody was told.
    pub(crate) fn told(&self) -> impl Iterator<Item = &Told> {
        [&self.first].into_iter().chain(&self.during).chain(&self.beyond).chain(&self.after).chain(&self.last)
    }

    /// In one line, for people.
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
    /// Returns an answer for tests of judges.
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
