//! Records as operators see them, and the actions on one.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use semel_core::fields::{Section, Treatment, treatment};
use semel_core::policy::{Policy, StoreResponse};
use semel_core::response::reference;
use semel_core::transition::{Proof, Refusal, Transition, Write, transition};
use semel_core::{
    About, AuditEntry, Change, Decision, Epoch, Note, NoteTaken, OperationId, Progress, Reason, Record,
    Records, Response, Snapshot, State, StateName, StepKind, StoreError, StoredResult, Timestamp,
    UnreadableRecord,
};
use serde_json::{Value, json};

use super::{Acted, printable};

/// Returns a record as a list shows it, as JSON. The names are stable.
pub fn summary(record: &Record) -> Value {
    json!({
        "operationId": record.operation_id.to_string(),
        "operation": record.operation.as_str(),
        "tenant": record.principal.tenant(),
        "caller": record.principal.caller(),
        "state": record.head.state.name().as_str(),
        "reason": record.head.reason.as_str(),
        "epoch": record.head.epoch,
        "partlyDone": record.head.partly_done,
        "createdAt": record.created_at.to_rfc3339(),
        "updatedAt": record.updated_at.to_rfc3339(),
        "stateSince": record.state_since.to_rfc3339(),
        "expiresAt": record.head.state.expires_at().map(Timestamp::to_rfc3339),
        "keyHashPrefix": record.key_hash_prefix,
        "traceId": record.trace.map(|trace| trace.trace_id_text()),
    })
}

/// Returns an unreadable record as a list shows it, as JSON. The names are stable.
pub fn unreadable(record: &UnreadableRecord) -> Value {
    json!({ "operationId": record.operation_id.to_string(), "state": "unreadable", "why": record.why })
}

/// Everything about one command except its request and its response.
pub struct FoundCommand {
    /// Record, unless it was purged.
    pub record: Option<Record>,
    /// Actions of operators, the oldest first.
    pub notes: Vec<NoteTaken>,
    /// Phases of the command.
    pub steps: Vec<Progress>,
    /// Store's time of this reading.
    pub now: Timestamp,
}

/// Finds a command. Returns `None` if there is no trace of it.
pub async fn find(store: &dyn Records, id: OperationId) -> Result<Option<FoundCommand>, StoreError> {
    let found = read(store, store.find(id).await?, id).await?;
    Ok(Some(found).filter(|found| found.record.is_some() || !found.notes.is_empty()))
}

/// Reads the notes and the phases of a command whose record was read.
pub(super) async fn read(
    store: &dyn Records,
    snapshot: Snapshot,
    id: OperationId,
) -> Result<FoundCommand, StoreError> {
    let Snapshot { record, now } = snapshot;
    let notes = store.notes(id).await?;
    let steps = if record.is_none() && notes.is_empty() { Vec::new() } else { store.progress(id).await? };
    Ok(FoundCommand { record, notes, steps, now })
}

/// Returns the text about a command without a trace.
pub fn absent(id: OperationId) -> String {
    format!("there is no record of operation {id}")
}

impl FoundCommand {
    /// Returns the command as JSON. The names are stable.
    pub fn to_json(&self) -> Value {
        let mut shown = self.record.as_ref().map_or(json!({}), summary);
        if let Some(record) = &self.record {
            shown["fingerprint"] = record.head.fingerprint.to_string().into();
            insert_unknown(&mut shown, record);
            if let Some(result) = &record.result {
                shown["status"] = result.status.into();
                shown["resource"] = json!(result.resource);
                shown["responseBytes"] = result.response.bytes.len().into();
                // Without its encryption key, this is unknown.
                shown["bodyStored"] =
                    json!(result.response.decode().ok().map(|response| response.body.is_some()));
            }
        }
        shown["notes"] = self.notes.iter().map(note).collect();
        for (list, step) in self.steps.iter().map(step) {
            match shown[list].as_array_mut() {
                Some(list) => list.push(step),
                None => shown[list] = json!([step]),
            }
        }
        shown
    }
}

/// Inserts the members of an unknown command. The names are stable.
fn insert_unknown(shown: &mut Value, record: &Record) {
    if let State::Unknown { since, quarantine_until, attempts, .. } = record.head.state {
        shown["unknownSince"] = since.to_rfc3339().into();
        shown["quarantineUntil"] = quarantine_until.to_rfc3339().into();
        shown["reconcileAttempts"] = attempts.into();
        shown["lookFor"] = look_for(record);
    }
}

/// Returns a record as an export has it, as JSON: its summary, the facts of an unknown outcome, and its steps. The
/// names are stable.
pub fn exported(record: &Record) -> Value {
    let mut shown = summary(record);
    insert_unknown(&mut shown, record);
    let steps = record.history.steps().map(|step| {
        json!({
            "at": step.at.to_rfc3339(),
            "epoch": step.epoch,
            "state": step.state.as_str(),
            "reason": step.reason.as_str(),
        })
    });
    shown["history"] = steps.collect();
    shown
}

/// Returns the identifiers to look for at the place of an unknown command's effect, as JSON. The names are
/// stable.
pub fn look_for(record: &Record) -> Value {
    let since = match record.head.state {
        State::Unknown { since, .. } => Some(since.to_rfc3339()),
        _ => None,
    };
    json!({
        "semelOperationId": record.operation_id.to_string(),
        "semelAttempt": record.head.epoch,
        "begunAt": record.history.began(record.head.epoch).map(Timestamp::to_rfc3339),
        "unknownSince": since,
        "seen": record.history.observation(),
        "requestKept": record.head.terms.keep_request,
    })
}

/// Returns a note as JSON. The names are stable.
pub fn note(taken: &NoteTaken) -> Value {
    let NoteTaken { at, note } = taken;
    json!({ "at": at.to_rfc3339(), "who": note.who, "action": note.action, "why": note.why })
}

/// Returns an entry of the audit log as JSON. The names are stable.
pub fn note_of(entry: &AuditEntry) -> Value {
    let mut shown = note(&entry.taken);
    shown["id"] = entry.id.to_string().into();
    // An action on something else, such as a hold, has no command.
    shown["operationId"] = json!(entry.operation_id.map(|id| id.to_string()));
    shown
}

/// Returns a step as JSON, with the name of its list. The names are stable.
fn step(step: &Progress) -> (&'static str, Value) {
    let mut shown = json!({
        "name": step.name,
        "beganAt": step.began_at.to_rfc3339(),
        "doneAt": step.done_at.map(Timestamp::to_rfc3339),
    });
    match &step.what {
        StepKind::Local { .. } => shown["kind"] = "local".into(),
        StepKind::External { deduplicated, .. } => {
            shown["kind"] = "external".into();
            shown["deduplicated"] = (*deduplicated).into();
        }
        StepKind::Item { operation_id, state, status } => {
            shown["operationId"] = json!(operation_id.map(|id| id.to_string()));
            shown["state"] = json!(state.map(StateName::as_str));
            shown["status"] = json!(status);
            return ("items", shown);
        }
    }
    ("phases", shown)
}

/// Returns true if retries can be answered with this status.
pub fn is_an_answer(status: StatusCode) -> bool {
    (200..600).contains(&status.as_u16())
}

/// Default attempt of a verdict: most commands have no other.
pub const FIRST_ATTEMPT: Epoch = 1;

/// Operator's verdict on an unknown outcome.
pub enum Said {
    /// The command was executed with this response; without a body if the operator does not have it.
    Executed {
        /// Status of the response.
        status: StatusCode,
        /// Header fields of the response.
        headers: HeaderMap,
        /// Body of the response, if the operator has it.
        body: Option<Bytes>,
    },
    /// The command was not executed.
    NotExecuted,
    /// Verdict on the open call of a command in phases.
    OfCall(Box<Change>),
}

impl Said {
    /// Makes the verdict that the command was executed with this response. A body that is JSON is called so, unless a
    /// header field calls it something else.
    ///
    /// # Errors
    /// Fails if retries would not get what is given, as the rest of a sentence about the body: it is not the JSON that its
    /// `Content-Type` says, its status has none, or a field is not the operator's to set.
    pub fn executed(status: StatusCode, mut headers: HeaderMap, body: Option<Bytes>) -> Result<Said, String> {
        if let Some(own) = headers.keys().find(|name| is_set_by_server(name)) {
            return Err(format!("has its own `{own}`, which the server sets: leave that field out"));
        }
        let is_empty = body.as_ref().is_none_or(Bytes::is_empty);
        if !is_empty && matches!(status.as_u16(), 204 | 205 | 304) {
            return Err(format!("would not be sent: an answer with status {} has none", status.as_u16()));
        }
        let parsed = body.as_ref().map(|body| serde_json::from_slice::<serde::de::IgnoredAny>(body));
        match (headers.get(CONTENT_TYPE).is_some_and(says_json), parsed) {
            (true, _) if is_empty => {
                return Err("is empty, and its `Content-Type` says JSON: give the body that clients expect, or leave \
                            that field out"
                    .to_owned());
            }
            (true, Some(Err(error))) => {
                let (line, column) = (error.line(), error.column());
                return Err(format!(
                    "is not the JSON that its `Content-Type` says, at line {line}, column {column}"
                ));
            }
            (_, Some(Ok(_))) if !headers.contains_key(CONTENT_TYPE) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            _ => {}
        }
        Ok(Said::Executed { status, headers, body })
    }

    /// Returns the change to write about this attempt under the operation's policy.
    pub fn change(&self, policy: &Policy, attempt: Epoch) -> Change {
        let change = match (self, self.kept(policy)) {
            (Said::OfCall(change), _) => return (**change).clone(),
            (_, Some(kept)) => Change::resolve_executed(StoredResult::of(&kept)),
            (_, None) => Change::resolve_not_executed(Proof::Quarantine),
        };
        change.about(About::Only(attempt))
    }

    /// Returns true if the same verdict about this attempt has settled the record: with the same response, if it was
    /// executed. A response that cannot be read is none to compare.
    pub(super) fn has_settled(&self, record: &Record, policy: &Policy, attempt: Epoch) -> bool {
        if record.head.epoch != attempt {
            return false;
        }
        match (self, record.head.state.name(), record.head.reason) {
            // A response with an error status is a final failure.
            (
                Said::Executed { .. },
                StateName::Succeeded | StateName::FailedFinal,
                Reason::VerdictExecuted,
            ) => {
                let stored = record.result.as_ref().and_then(|result| result.response.decode().ok());
                stored.is_some() && stored == self.kept(policy)
            }
            (Said::NotExecuted, StateName::FailedRetryable, Reason::VerdictNotExecuted) => true,
            _ => false,
        }
    }

    /// Returns the verdict on the open call of the attempt `epoch`, or, without a phase, that no call is
    /// open.
    ///
    /// # Errors
    /// Returns a description of the conflicting parts.
    pub fn of_call(
        epoch: Epoch,
        phase: Option<&str>,
        verdict: &str,
        output: Option<Bytes>,
    ) -> Result<Said, String> {
        let change = match (verdict, phase, output) {
            ("resume", None, None) => Change::resume(epoch),
            ("resume", ..) => {
                return Err("to resume a command needs neither a phase nor an output".to_owned());
            }
            ("executed", Some(phase), Some(output)) => {
                Change::resolve_call_executed(epoch, phase, output).map_err(|error| error.to_string())?
            }
            ("executed", Some(_), None) => {
                return Err("a call that was executed has an output, which later phases read".to_owned());
            }
            ("not-executed", Some(phase), None) => {
                Change::resolve_call_not_executed(epoch, phase, Proof::Quarantine)
            }
            _ => return Err("an output goes with a phase and the verdict \"executed\"".to_owned()),
        };
        Ok(Said::OfCall(Box::new(change)))
    }

    /// Returns true if a body is given that the operation's policy does not store.
    pub fn loses_its_body(&self, policy: &Policy) -> bool {
        let given = matches!(self, Said::Executed { body: Some(_), .. });
        given && self.kept(policy).is_some_and(|kept| kept.body.is_none())
    }

    /// Returns the stored response. The operator's response is stored even if it is over the size limit.
    fn kept(&self, policy: &Policy) -> Option<Response> {
        let Said::Executed { status, headers, body } = self else { return None };
        let (empty, none) = (Bytes::new(), HeaderMap::new());
        let body = match body {
            // The body can be fetched by reference.
            None if policy.store_response == StoreResponse::Reference && reference(headers).is_some() => None,
            body => Some(body.as_ref().unwrap_or(&empty)),
        };
        let policy = Policy { max_stored_response: usize::MAX, ..policy.clone() };
        Some(policy.keep(*status, headers, body, &none))
    }
}

/// Returns true for a field that belongs to the framing of an answer, or to one connection.
fn is_set_by_server(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH || treatment(name, Section::ResponseHead) == Treatment::Hop
}

/// Returns true for `application/json`, and for types that end in `+json`.
fn says_json(value: &HeaderValue) -> bool {
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json") || essence.to_ascii_lowercase().ends_with("+json")
}

/// Performs the action and records a note with the operator and the reason, in one write.
pub async fn act(
    store: &dyn Records,
    id: OperationId,
    change: impl FnOnce(&Record) -> Change + Send,
    note: Note,
) -> Result<Acted<StateName>, StoreError> {
    let action = note.action.clone();
    let Snapshot { record, now } = store.find(id).await?;
    let Some(record) = record else { return Ok(Acted::Absent(absent(id))) };
    let answer = store.apply(&record.id, &change(&record).seen_at(now).noted(note)).await?;
    // Another operator may have acted in between: a refusal is about the record as the store decided on it.
    let state = answer.record.map(|record| record.head.state.name());
    match acted(id, &action, answer.decision, state)? {
        Acted::Refused(why) => Ok(Acted::Refused(with_last_act(store, id, why).await)),
        other => Ok(other),
    }
}

/// Returns the reason of a refusal, with the last action of a person on the record, if there was one: it may be the cause.
async fn with_last_act(store: &dyn Records, id: OperationId, why: String) -> String {
    let notes = store.notes(id).await.unwrap_or_default();
    let is_act =
        |taken: &&NoteTaken| taken.note.action.split(' ').next().is_some_and(|act| ACTIONS.contains(&act));
    let last = notes.iter().rfind(is_act);
    match last {
        Some(NoteTaken { at, note: Note { who, action, .. } }) => {
            format!("{why}; the last action was {action}, by {} at {at}", printable(who))
        }
        None => why,
    }
}

/// First words of the actions of people that change a record.
const ACTIONS: [&str; 3] = ["resolve", "release", "purge"];

/// Returns the result that [`act`] would have now with a change about a whole command, and changes nothing.
pub async fn rehearse(
    store: &dyn Records,
    id: OperationId,
    change: impl FnOnce(&Record) -> Change + Send,
    action: &str,
) -> Result<Acted<StateName>, StoreError> {
    let Snapshot { record, now } = store.find(id).await?;
    let Some(record) = record else { return Ok(Acted::Absent(absent(id))) };
    foresee((&record, &[], now), change(&record), action)
}

/// Returns the result that [`act`] would have with this change if nothing else happened to the record with its steps, and
/// changes nothing. The input of a command in phases is taken to be there.
pub fn foresee(
    (record, steps, now): (&Record, &[Progress], Timestamp),
    change: Change,
    action: &str,
) -> Result<Acted<StateName>, StoreError> {
    let event = change.seen_at(now).event_for(steps, true);
    let Transition { write, decision, .. } = transition(Some(&record.head), &event, now);
    let state = match write {
        Write::Keep => Some(record.head.state.name()),
        Write::Create(head) | Write::Update(head) => Some(head.state.name()),
        Write::Delete => None,
    };
    acted(record.operation_id, action, decision, state)
}

/// Returns the result of an action on a record with this decision, and the state after it; `None` if it is deleted.
fn acted(
    id: OperationId,
    action: &str,
    decision: Decision,
    state: Option<StateName>,
) -> Result<Acted<StateName>, StoreError> {
    match (decision, state) {
        (Decision::Applied, state) => Ok(Acted::Done(state)),
        (Decision::Refused(Refusal::WrongState), Some(state)) => {
            // A verdict, alone or from a file: its refusal speaks of settling, as the reader does.
            let is_settled =
                matches!(state, StateName::Succeeded | StateName::FailedFinal | StateName::FailedRetryable);
            let why = match (action, is_settled) {
                ("resolve", true) => format!("{id}: it is settled already: {state}"),
                ("resolve", false) => {
                    format!("{id}: it is {state}, and only an unknown outcome can be settled")
                }
                (action, _) => format!("{id} is {state}: {action} does not apply to it"),
            };
            Ok(Acted::Refused(why))
        }
        (Decision::Refused(Refusal::OtherAttempt { epoch }), _) => Ok(Acted::Refused(format!(
            "{id} is at attempt {epoch}: look for the effect of that attempt, and name it (--attempt \
             {epoch})"
        ))),
        (Decision::Refused(refusal), _) => Ok(Acted::Refused(format!("{id}: {refusal}"))),
        (decision, _) => Err(StoreError::Rejected(format!("it answered {decision:?}"))),
    }
}

/// Returns the state of a record after an action, as JSON. The names are stable.
pub fn done(id: OperationId, state: Option<StateName>) -> Value {
    json!({ "operationId": id.to_string(), "state": state.map(StateName::as_str) })
}
