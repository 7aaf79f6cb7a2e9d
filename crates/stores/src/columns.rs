//! A record in the form of SQL stores: flat columns of plain types. Both SQL stores read and write this one
//! form, so that the meaning of a column is defined once.

use std::borrow::Cow;
use std::sync::Once;
use std::time::Duration;

use semel_core::fingerprint::FingerprintVersion;
use semel_core::policy::OnLeaseExpired;
use semel_core::reconcile::LastHeard;
use semel_core::state::SettledBy;
use semel_core::transition::Proof;
use semel_core::{
    AttemptToken, Fingerprint, Head, History, HoldTarget, LookUpAnswer, OperationId, OperationName,
    Principal, Reason, Record, RecordId, State, StateName, Statement, StepKind, StoredResponse, StoredResult,
    Terms, Timestamp, TraceContext,
};

/// Every column of a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordColumns<'a> {
    pub(crate) id: [u8; 32],
    pub(crate) operation_id: [u8; 16],
    pub(crate) tenant: Cow<'a, str>,
    pub(crate) caller: Cow<'a, str>,
    pub(crate) operation: Cow<'a, str>,
    pub(crate) key_hash_prefix: Cow<'a, str>,
    pub(crate) fingerprint_version: u8,
    pub(crate) fingerprint: [u8; 32],
    pub(crate) state: Cow<'a, str>,
    pub(crate) reason: Cow<'a, str>,
    pub(crate) epoch: u32,
    pub(crate) token: [u8; 16],
    pub(crate) lease_ms: i64,
    pub(crate) ttl_ms: i64,
    pub(crate) tombstone_ttl_ms: Option<i64>,
    pub(crate) on_lease_expired: Cow<'a, str>,
    pub(crate) quarantine_ms: i64,
    pub(crate) keep_request: bool,
    pub(crate) due_at: Option<i64>,
    pub(crate) start_by: Option<i64>,
    pub(crate) ready_at: Option<i64>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) settled_by: Option<Cow<'a, str>>,
    pub(crate) state_since: i64,
    pub(crate) reconcile_after: Option<i64>,
    pub(crate) attempts: Option<u32>,
    pub(crate) quarantine_until: Option<i64>,
    pub(crate) earlier_may_have_run: bool,
    pub(crate) partly_done: bool,
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) history: Cow<'a, str>,
    pub(crate) trace: Option<Cow<'a, str>>,
    pub(crate) result: Option<ResultColumns<'a>>,
}

/// Columns of a stored response: all set, or none.
#[derive(Clone, Debug)]
pub(crate) struct ResultColumns<'a> {
    pub(crate) status: u16,
    pub(crate) resource: Option<Cow<'a, str>>,
    pub(crate) response_format: u8,
    pub(crate) encryption_key_id: Option<Cow<'a, str>>,
    pub(crate) response: bytes::Bytes,
}

/// Error for a column whose content no version of Semel wrote.
#[derive(Debug, thiserror::Error)]
#[error("semel_records.{column}: {what}")]
pub(crate) struct Damage {
    pub(crate) column: &'static str,
    pub(crate) what: String,
}

pub(crate) fn damage(column: &'static str, what: impl std::fmt::Display) -> Damage {
    Damage { column, what: what.to_string() }
}

/// Returns the settler that the column of a settled record names.
pub(crate) fn settled_by(text: &str) -> Option<SettledBy> {
    match text {
        "executor" => Some(SettledBy::Executor),
        "verdict" => Some(SettledBy::Verdict),
        _ => None,
    }
}

impl<'a> RecordColumns<'a> {
    /// Returns the columns of a record.
    pub(crate) fn of(record: &'a Record) -> RecordColumns<'a> {
        let Head { fingerprint, epoch, token, terms, state, reason, earlier_may_have_run, partly_done } =
            record.head;
        let common = RecordColumns {
            id: *record.id.as_bytes(),
            operation_id: *record.operation_id.as_bytes(),
            tenant: record.principal.tenant().into(),
            caller: record.principal.caller().into(),
            operation: record.operation.as_str().into(),
            key_hash_prefix: record.key_hash_prefix.as_str().into(),
            fingerprint_version: fingerprint.version().number(),
            fingerprint: *fingerprint.digest(),
            state: state.name().as_str().into(),
            reason: reason_text(reason).into(),
            epoch,
            token: *token.as_bytes(),
            lease_ms: millis(terms.lease),
            ttl_ms: millis(terms.ttl),
            tombstone_ttl_ms: terms.tombstone_ttl.map(millis),
            on_lease_expired: match terms.on_lease_expired {
                OnLeaseExpired::Unknown => "unknown",
                OnLeaseExpired::Resume => "resume",
                OnLeaseExpired::Rerun => "rerun",
            }
            .into(),
            quarantine_ms: millis(terms.quarantine),
            keep_request: terms.keep_request,
            due_at: state.due_to_sweep().map(Timestamp::as_millis),
            start_by: None,
            ready_at: None,
            expires_at: state.expires_at().map(Timestamp::as_millis),
            settled_by: None,
            state_since: record.state_since.as_millis(),
            reconcile_after: None,
            attempts: None,
            quarantine_until: None,
            earlier_may_have_run,
            partly_done,
            created_at: record.created_at.as_millis(),
            updated_at: record.updated_at.as_millis(),
            history: record.history.as_text().into(),
            trace: record.trace.map(|trace| trace.to_string().into()),
            result: record.result.as_ref().map(ResultColumns::of),
        };
        match state {
            State::Succeeded { settled_by, .. } | State::FailedFinal { settled_by, .. } => {
                let settled_by = match settled_by {
                    SettledBy::Executor => "executor",
                    SettledBy::Verdict => "verdict",
                };
                RecordColumns { settled_by: Some(settled_by.into()), ..common }
            }
            State::Unknown { since: _, reconcile_after, attempts, quarantine_until } => RecordColumns {
                reconcile_after: Some(reconcile_after.as_millis()),
                attempts: Some(attempts),
                quarantine_until: Some(quarantine_until.as_millis()),
                ..common
            },
            State::Claimed { ready_at, .. } => {
                RecordColumns { ready_at: Some(ready_at.as_millis()), ..common }
            }
            State::Processing { start_by, .. } => {
                RecordColumns { start_by: start_by.map(Timestamp::as_millis), ..common }
            }
            State::FailedRetryable { .. } | State::Expired { .. } => common,
        }
    }

    /// Returns the record of these columns. [`Damage`] names the column whose content no version of Semel
    /// wrote.
    pub(crate) fn record(self) -> Result<Record, Damage> {
        let principal = Principal::new(&self.tenant, &self.caller);
        Ok(Record {
            id: RecordId::from_bytes(self.id),
            operation_id: OperationId::from_bytes(self.operation_id),
            principal: principal.map_err(|error| damage("tenant, caller", error))?,
            operation: OperationName::new(&self.operation).map_err(|error| damage("operation", error))?,
            key_hash_prefix: self.key_hash_prefix.to_string(),
            created_at: Timestamp::from_millis(self.created_at),
            updated_at: Timestamp::from_millis(self.updated_at),
            state_since: Timestamp::from_millis(self.state_since),
            head: self.head()?,
            // For people only: an unreadable one is none.
            trace: self.trace.as_deref().and_then(TraceContext::parse),
            history: History::from_text(self.history.into_owned()),
            result: self.result.map(ResultColumns::result),
        })
    }

    fn head(&self) -> Result<Head, Damage> {
        let version = self.fingerprint_version;
        let version = FingerprintVersion::from_number(version)
            .ok_or_else(|| damage("fingerprint_version", format!("version {version} is not known here")))?;
        Ok(Head {
            fingerprint: Fingerprint::from_parts(version, self.fingerprint),
            epoch: self.epoch,
            token: AttemptToken::from_bytes(self.token),
            terms: Terms {
                lease: duration(self.lease_ms),
                ttl: duration(self.ttl_ms),
                tombstone_ttl: self.tombstone_ttl_ms.map(duration),
                on_lease_expired: match &*self.on_lease_expired {
                    "unknown" => OnLeaseExpired::Unknown,
                    "resume" => OnLeaseExpired::Resume,
                    "rerun" => OnLeaseExpired::Rerun,
                    other => return Err(damage("on_lease_expired", format!("{other:?} is not a choice"))),
                },
                quarantine: duration(self.quarantine_ms),
                keep_request: self.keep_request,
            },
            state: self.state()?,
            reason: parse_reason(&self.reason).ok_or_else(|| {
                damage("reason", format!("{:?} is not a reason that is known here", self.reason))
            })?,
            earlier_may_have_run: self.earlier_may_have_run,
            partly_done: self.partly_done,
        })
    }

    fn state(&self) -> Result<State, Damage> {
        let moment = |column, value: Option<i64>| {
            value.map(Timestamp::from_millis).ok_or_else(|| damage(column, "there is nothing"))
        };
        let settled_by = || {
            let text = self.settled_by.as_deref();
            text.and_then(settled_by).ok_or_else(|| damage("settled_by", format!("{text:?} is no settler")))
        };
        let due_at = || moment("due_at", self.due_at);
        let expires_at = || moment("expires_at", self.expires_at);
        let name = StateName::parse(&self.state);
        let name = name.ok_or_else(|| damage("state", format!("{:?} is not a state", self.state)))?;
        Ok(match name {
            StateName::Claimed => {
                State::Claimed { start_by: due_at()?, ready_at: moment("ready_at", self.ready_at)? }
            }
            StateName::Processing => State::Processing {
                lease_until: due_at()?,
                start_by: self.start_by.map(Timestamp::from_millis),
            },
            StateName::Succeeded => State::Succeeded { expires_at: expires_at()?, settled_by: settled_by()? },
            StateName::FailedFinal => {
                State::FailedFinal { expires_at: expires_at()?, settled_by: settled_by()? }
            }
            StateName::FailedRetryable => State::FailedRetryable { expires_at: expires_at()? },
            StateName::Unknown => State::Unknown {
                since: Timestamp::from_millis(self.state_since),
                reconcile_after: moment("reconcile_after", self.reconcile_after)?,
                attempts: self.attempts.ok_or_else(|| damage("attempts", "there is nothing"))?,
                quarantine_until: moment("quarantine_until", self.quarantine_until)?,
            },
            StateName::Expired => State::Expired { forget_at: expires_at()? },
        })
    }
}

impl<'a> ResultColumns<'a> {
    pub(crate) fn of(result: &'a StoredResult) -> ResultColumns<'a> {
        ResultColumns {
            status: result.status,
            resource: result.resource.as_deref().map(Cow::Borrowed),
            response_format: result.response.format,
            encryption_key_id: result.response.encryption_key_id.as_deref().map(Cow::Borrowed),
            response: result.response.bytes.clone(),
        }
    }

    pub(crate) fn result(self) -> StoredResult {
        StoredResult {
            response: StoredResponse {
                format: self.response_format,
                encryption_key_id: self.encryption_key_id.map(Cow::into_owned),
                bytes: self.response,
            },
            status: self.status,
            resource: self.resource.map(Cow::into_owned),
        }
    }
}

/// Text of a reason in the next version, which only tests have.
const NEXT_ANSWERED: &str = "answered_in_next_version";

/// Returns the text of a reason. A reason that a later version adds is written only once the store's formats allow it; a program
/// that does not know it counts its record as damaged, and decides nothing on it.
fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Answered if semel_faults::writes_next_formats() => NEXT_ANSWERED,
        known => known.as_str(),
    }
}

fn parse_reason(text: &str) -> Option<Reason> {
    let next = (semel_faults::is_next_version() && text == NEXT_ANSWERED).then_some(Reason::Answered);
    next.or_else(|| Reason::parse(text))
}

/// Returns the target of a stored hold. A kind that only a later version knows has no effect here, and hides no other hold.
pub(crate) fn hold_target(kind: &str, name: &str) -> Option<HoldTarget> {
    static TOLD: Once = Once::new();
    let target = HoldTarget::new(kind, name);
    if target.is_none() {
        TOLD.call_once(|| tracing::error!(kind, "a hold of a kind that is not known here has no effect"));
    }
    target
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// Columns of a statement.
pub(crate) struct StatementColumns<'a> {
    pub(crate) source: String,
    pub(crate) event_id: String,
    pub(crate) operation_id: [u8; 16],
    pub(crate) verdict: String,
    pub(crate) proof: Option<String>,
    pub(crate) why: String,
    pub(crate) received_at: i64,
    pub(crate) attempt: Option<u32>,
    pub(crate) content: [u8; 32],
    pub(crate) result: Option<ResultColumns<'a>>,
}

const PROOFS: [(Proof, &str); 2] = [
    (Proof::ProviderDeduplicates, "provider_deduplicates"),
    (Proof::ProviderTombstone, "provider_tombstone"),
];

/// Returns the sort key after which a page of statements begins.
pub(crate) fn heard_after(last: Option<&LastHeard>) -> (i64, &str, &str) {
    let (received_at, source, event_id) =
        last.map_or((Timestamp::from_millis(i64::MIN), "", ""), LastHeard::place);
    (received_at.as_millis(), source, event_id)
}

/// Returns the verdict, the proof and the response of a statement.
pub(crate) fn of_statement(
    statement: &Statement,
) -> (&'static str, Option<&'static str>, Option<ResultColumns<'_>>) {
    match statement.found() {
        LookUpAnswer::Executed(result) => ("succeeded", None, Some(ResultColumns::of(result))),
        LookUpAnswer::Failed(result) => ("failed_final", None, Some(ResultColumns::of(result))),
        LookUpAnswer::NotExecuted(proof) => {
            let name = PROOFS.iter().find(|(known, _)| known == proof).map(|(_, name)| *name);
            ("not_executed", name, None)
        }
        // No statement has this result.
        LookUpAnswer::Pending | LookUpAnswer::NoAnswer { .. } => ("", None, None),
    }
}

impl StatementColumns<'_> {
    /// Returns the statement of these columns.
    pub(crate) fn statement(self) -> Result<Statement, Damage> {
        let result = self.result.map(ResultColumns::result);
        let proof = PROOFS.iter().find(|(_, name)| Some(*name) == self.proof.as_deref());
        let found = match (&*self.verdict, result, proof) {
            ("succeeded", Some(result), _) => LookUpAnswer::Executed(result),
            ("failed_final", Some(result), _) => LookUpAnswer::Failed(result),
            ("not_executed", _, Some((proof, _))) => LookUpAnswer::NotExecuted(*proof),
            (other, _, _) => return Err(damage("verdict", format!("{other:?} is not a verdict"))),
        };
        let operation_id = OperationId::from_bytes(self.operation_id);
        let mut statement = Statement::new(self.source, self.event_id, operation_id, found, self.why)
            .ok_or_else(|| damage("status", "it does not fit the verdict"))?;
        statement.received_at = Some(Timestamp::from_millis(self.received_at));
        (statement.attempt, statement.content) = (self.attempt, self.content);
        Ok(statement)
    }
}

/// Columns of one step of a command.
pub(crate) struct StepColumns {
    pub(crate) kind: String,
    pub(crate) deduplicated: bool,
    pub(crate) output: Option<bytes::Bytes>,
    /// For an item: operation id, state and status of its own record, if there is one.
    pub(crate) item: Option<[u8; 16]>,
    pub(crate) state: Option<String>,
    pub(crate) status: Option<u16>,
}

impl StepColumns {
    /// Returns the kind of the step.
    pub(crate) fn kind(self) -> Result<StepKind, Damage> {
        match &*self.kind {
            "local" => Ok(StepKind::Local { output: self.output.unwrap_or_default() }),
            "external" => Ok(StepKind::External { deduplicated: self.deduplicated, output: self.output }),
            "item" => Ok(StepKind::Item {
                operation_id: self.item.map(OperationId::from_bytes),
                state: self.state.as_deref().and_then(StateName::parse),
                status: self.status,
            }),
            other => Err(damage("kind", format!("{other:?} is not a kind of step"))),
        }
    }
}
