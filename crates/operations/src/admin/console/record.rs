//! One command: its facts, its timeline, its messages, and what an operator can do about it now.
//!
//! Invariant: whether an action is possible is asked of `transition`, with the change that the action would make.

use askama::Template;
use http::{HeaderMap, StatusCode};
use semel_core::outbox::MessageFilter;
use semel_core::problem::ProblemKind;
use semel_core::transition::Proof;
use semel_core::{
    About, Change, HoldTarget, OperationId, Problem, Progress, Record, StateName, StepKind, StoreError,
    StoredResult,
};

use super::holds::{HoldRow, MAX_SHOWN};
use super::lists::{RecordRow, looks_up};
use super::messages::MessageRow;
use super::view::{acts, exact, fragment, time, words};
use crate::admin::call::{AdminAnswer, AdminCall};
use crate::admin::unavailable;
use crate::operate::Acted;
use crate::operate::records::{FIRST_ATTEMPT, FoundCommand, Said, absent, find, foresee};
use crate::operate::story::{Around, StoryEntry, next, timeline};

/// Largest number of messages that the page of a record shows.
const MAX_MESSAGES: usize = 20;

/// Action on a record, with the answer to whether it is possible now.
pub(super) struct ForeseenAction {
    /// State of the record after it; empty if the record is gone then.
    after: &'static str,
    /// Reason for which it is impossible now.
    refused: Option<String>,
}

/// Actions on a whole command.
struct RecordActions {
    executed: ForeseenAction,
    /// State of the record after a verdict with the status of a failure.
    failed: &'static str,
    not_executed: ForeseenAction,
    release: ForeseenAction,
    purge: ForeseenAction,
    /// Reason for which no evidence can be looked for.
    look_refused: Option<String>,
    open_call: Option<UnknownCall>,
    resume: Option<ForeseenAction>,
}

/// Call of a phase that was begun, and whose outcome is unknown.
struct UnknownCall {
    phase: String,
    /// True if the provider deduplicates on the call's key.
    is_deduplicated: bool,
    not_executed: ForeseenAction,
}

/// Stored response, without its content.
struct ResponseFacts {
    status: u16,
    resource: Option<String>,
    bytes: String,
}

/// Event of the timeline.
struct TimelineRow {
    at: String,
    what: String,
    kind: &'static str,
}

/// Phase or item of the command.
struct StepRow {
    name: String,
    what: String,
    operation_id: Option<String>,
    done_at: Option<String>,
}

#[derive(Template)]
#[template(path = "record.html")]
struct RecordFragment {
    id: String,
    row: Option<RecordRow>,
    facts: Option<RecordFacts>,
    timeline: Vec<TimelineRow>,
    steps: Vec<StepRow>,
    messages: Vec<MessageRow>,
    actions: Option<RecordActions>,
    /// True if evidence is looked up.
    looks: bool,
    /// True if evidence can come by itself.
    has_events: bool,
    /// Holds that keep a retry from running.
    holds: Vec<HoldRow>,
    /// Last attempt, which a verdict is about.
    attempt: u32,
    /// Answer to a retry now, and the commands that act.
    next: String,
    acts: bool,
}

struct RecordFacts {
    epoch: u32,
    updated_at: String,
    expires_at: Option<String>,
    key_hash_prefix: String,
    fingerprint: String,
    trace_id: Option<String>,
    is_partly_done: bool,
    keeps_request: bool,
    began_at: Option<String>,
    response: Option<ResponseFacts>,
}

impl RecordFacts {
    fn of(record: &Record) -> RecordFacts {
        let response = |result: &StoredResult| ResponseFacts {
            status: result.status,
            resource: result.resource.clone(),
            bytes: exact(result.response.bytes.len() as u64),
        };
        RecordFacts {
            epoch: record.head.epoch,
            updated_at: time(record.updated_at),
            expires_at: record.head.state.expires_at().map(time),
            key_hash_prefix: record.key_hash_prefix.clone(),
            fingerprint: record.head.fingerprint.to_string(),
            trace_id: record.trace.map(|trace| trace.trace_id_text().to_string()),
            is_partly_done: record.head.partly_done,
            keeps_request: record.head.terms.keep_request,
            began_at: record.history.began(record.head.epoch).map(time),
            response: record.result.as_ref().map(response),
        }
    }
}

/// Shows everything about a command except its request and its response.
pub(super) async fn page(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let id = call.operation_id()?;
    let found = find(&*call.admin.store, id).await.map_err(unavailable)?;
    let found = found.ok_or_else(|| Problem::new(ProblemKind::OperationNotFound, absent(id)))?;
    let around = Around { same_store: "", config: &call.admin.config };
    let actions = found.record.as_ref().map(|record| actions(&call, record, &found)).transpose();
    fragment(&RecordFragment {
        id: id.to_string(),
        row: found.record.as_ref().map(|record| RecordRow::of(record, found.now)),
        facts: found.record.as_ref().map(RecordFacts::of),
        timeline: timeline(&found).iter().map(timeline_row).collect(),
        steps: found.steps.iter().map(step_row).collect(),
        messages: messages(&call, id).await?,
        actions: actions.map_err(unavailable)?,
        looks: found.record.as_ref().is_some_and(|record| looks_up(&call, &record.operation)),
        has_events: call.admin.reconciler.is_some(),
        holds: holds(&call, found.record.as_ref()).await?,
        attempt: found.record.as_ref().map_or(FIRST_ATTEMPT, |record| record.head.epoch),
        next: next(found.record.as_ref(), found.now, &around),
        acts: acts(&call),
    })
}

fn timeline_row(entry: &StoryEntry<'_>) -> TimelineRow {
    let kind = match entry {
        StoryEntry::Step(step) => step.state.as_str(),
        StoryEntry::Note(_) => "note",
        StoryEntry::Begun(_) | StoryEntry::Done(..) => "phase",
    };
    TimelineRow { at: time(entry.at()), what: entry.tell(), kind }
}

fn step_row(step: &Progress) -> StepRow {
    let (what, operation_id) = match &step.what {
        StepKind::Local { .. } => ("phase in the store's own transaction".to_owned(), None),
        StepKind::External { deduplicated: true, .. } => {
            ("call of a provider that deduplicates on its key: it may be made again".to_owned(), None)
        }
        StepKind::External { .. } => {
            ("call of a provider that does not deduplicate: it is never made again".to_owned(), None)
        }
        StepKind::Item { operation_id, state, status } => {
            let state = state.map_or_else(|| "not begun".to_owned(), |state| words(state.as_str()));
            let status = status.map_or_else(String::new, |status| format!(", {status}"));
            (format!("item: {state}{status}"), operation_id.map(|id| id.to_string()))
        }
    };
    StepRow { name: step.name.clone(), what, operation_id, done_at: step.done_at.map(time) }
}

/// Returns the holds of the record's operation and tenant.
async fn holds(call: &AdminCall, record: Option<&Record>) -> Result<Vec<HoldRow>, Problem> {
    let Some(record) = record else { return Ok(Vec::new()) };
    let holds = call.admin.holds.holds().await.map_err(unavailable)?;
    let is_of = |target: &HoldTarget| match target {
        HoldTarget::Operation(name) => name == record.operation.as_str(),
        HoldTarget::Tenant(name) => name == record.principal.tenant(),
        HoldTarget::LookUpFirst(name) | HoldTarget::YoungerKeys(name) => name == record.operation.as_str(),
        HoldTarget::Sink(_) | HoldTarget::Reconciler | HoldTarget::Store => false,
    };
    Ok(holds.iter().filter(|hold| is_of(&hold.target)).map(HoldRow::of).collect())
}

/// Returns the messages of a command: their ids begin with its own.
async fn messages(call: &AdminCall, id: OperationId) -> Result<Vec<MessageRow>, Problem> {
    let Some(outbox) = &call.admin.outbox else { return Ok(Vec::new()) };
    let filter =
        MessageFilter { after: Some(id.to_string()), limit: MAX_MESSAGES, ..MessageFilter::default() };
    let messages = outbox.messages(&filter).await.map_err(unavailable)?;
    Ok(messages.iter().filter(|message| message.operation_id == id).map(MessageRow::of).collect())
}

fn actions(call: &AdminCall, record: &Record, found: &FoundCommand) -> Result<RecordActions, StoreError> {
    let policy = call.admin.config.policy_of(&record.operation);
    let epoch = record.head.epoch;
    let foreseen = |change: Change, action: &str| -> Result<ForeseenAction, StoreError> {
        Ok(match foresee((record, &found.steps, found.now), change, action)? {
            Acted::Done(state) => {
                ForeseenAction { after: state.map_or("", StateName::as_str), refused: None }
            }
            Acted::Refused(why) | Acted::Absent(why) => {
                ForeseenAction { after: "", refused: Some(without_id(record, &why)) }
            }
        })
    };
    let executed =
        |status| Said::Executed { status, headers: HeaderMap::new(), body: None }.change(policy, epoch);
    let open = found.steps.iter().find_map(|step| match (&step.what, step.done_at) {
        (StepKind::External { deduplicated, .. }, None) => Some((&step.name, *deduplicated)),
        _ => None,
    });
    let open_call = open.map(|(phase, is_deduplicated)| {
        let change = Change::resolve_call_not_executed(epoch, phase, Proof::Quarantine);
        let not_executed = foreseen(change.about(About::Only(epoch)), "resolve")?;
        Ok(UnknownCall { phase: phase.clone(), is_deduplicated, not_executed })
    });
    let open_call = open_call.transpose()?;
    let resume = match (record.head.is_phased(), &open_call) {
        (true, None) => Some(foreseen(Change::resume(epoch), "resolve")?),
        _ => None,
    };
    let is_unknown = record.head.state.name() == StateName::Unknown;
    Ok(RecordActions {
        executed: foreseen(executed(StatusCode::CREATED), "resolve")?,
        failed: foreseen(executed(StatusCode::PAYMENT_REQUIRED), "resolve")?.after,
        not_executed: foreseen(Said::NotExecuted.change(policy, epoch), "resolve")?,
        release: foreseen(Change::free(), "release")?,
        purge: foreseen(Change::purge(), "purge")?,
        look_refused: match (&call.admin.reconciler, is_unknown) {
            (_, false) => Some("only an unknown outcome is looked up".to_owned()),
            (Some(_), true) if !looks_up(call, &record.operation) => Some(format!(
                "no look-up is configured for {}: evidence comes by events only, or from you",
                record.operation
            )),
            (None, true) => Some(
                "no evidence can be found: no `[operation.reconcile]` and no `[[webhook]]` is configured"
                    .to_owned(),
            ),
            (Some(_), true) => None,
        },
        open_call,
        resume,
    })
}

/// Returns the reason of a refusal without the id in front of it: the page is about that command.
fn without_id(record: &Record, why: &str) -> String {
    let id = record.operation_id.to_string();
    let rest = why.strip_prefix(&id).map(|rest| rest.trim_start_matches([':', ' ']));
    match rest {
        Some(rest) if rest.starts_with("is ") => format!("the record {rest}"),
        Some(rest) => rest.to_owned(),
        None => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use semel_core::{Reason, Store};
    use semel_stores::MemoryStore;
    use semel_testkit::sample;

    use super::*;

    const HOSTILE: &str = "\"><img src=x onerror=alert(1)><script>alert(2)</script>'&";

    /// Shows the page of a command whose names are hostile.
    async fn shown() -> String {
        let store = MemoryStore::new();
        let claim = sample::claim_on(sample::scope_of(HOSTILE, HOSTILE, HOSTILE, "a-key-of-16-chars"));
        let claimed = store.claim(&claim).await.expect("it is new").record.expect("it is claimed");
        let lost = Change::abandon(claimed.head.fence(), Reason::BrokeOff).observing(HOSTILE);
        store.apply(&claimed.id, &lost).await.expect("it is written");
        let found = find(&store, claimed.operation_id).await.expect("it is read").expect("it is there");
        let record = found.record.as_ref().expect("it is there");
        let refusal = |why: &str| ForeseenAction { after: "", refused: Some(why.to_owned()) };
        let page = RecordFragment {
            id: claimed.operation_id.to_string(),
            row: Some(RecordRow::of(record, found.now)),
            facts: Some(RecordFacts::of(record)),
            timeline: timeline(&found).iter().map(timeline_row).collect(),
            steps: Vec::new(),
            messages: Vec::new(),
            actions: Some(RecordActions {
                executed: ForeseenAction { after: "succeeded", refused: None },
                failed: "failed_final",
                not_executed: refusal(HOSTILE),
                release: refusal("no"),
                purge: refusal("no"),
                look_refused: Some(HOSTILE.to_owned()),
                open_call: Some(UnknownCall {
                    phase: HOSTILE.to_owned(),
                    is_deduplicated: true,
                    not_executed: ForeseenAction { after: "claimed", refused: None },
                }),
                resume: None,
            }),
            looks: true,
            has_events: true,
            holds: Vec::new(),
            attempt: record.head.epoch,
            next: HOSTILE.to_owned(),
            acts: true,
        };
        page.render().expect("it is rendered")
    }

    #[tokio::test]
    async fn hostile_names_and_observations_are_text_on_the_page() {
        let page = shown().await;
        for wrong in ["<script", "<img", "onerror=alert(1)>"] {
            let at = page.find(wrong);
            assert_eq!(at, None, "{wrong}: {}", &page[at.unwrap_or(0)..][..80.min(page.len())]);
        }
        assert!(page.contains("&#60;script&#62;alert(2)"), "it is shown as it is");
        for id in page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert_eq!(page.matches(&format!(" id=\"{id}\"")).count(), 1, "{id} is there once");
        }
    }
}
