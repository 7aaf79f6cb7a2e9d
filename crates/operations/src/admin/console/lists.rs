//! Lists of records: those whose outcome is unknown, and those of any filter.

use askama::Template;
use semel_core::reconcile::is_dead_letter;
use semel_core::{
    OperationName, Problem, Record, RecordPage, Records, State, StateName, Store, Timestamp, UnreadableRecord,
};

use super::LIST;
use super::holds::{HoldRow, MAX_SHOWN};
use super::overview::{OpenState, open};
use super::view::{ROWS, acts, fragment, more, time, words};
use crate::admin::call::{AdminAnswer, AdminCall, malformed};
use crate::admin::unavailable;
use crate::operate::filters::{FilterSpelling, WantedRecords};
use crate::operate::names::unknown_operation;
use crate::operate::operation_id;

/// Record in a list.
pub(super) struct RecordRow {
    pub(super) id: String,
    pub(super) attempt: u32,
    pub(super) operation: String,
    pub(super) tenant: String,
    pub(super) caller: String,
    pub(super) state: &'static str,
    pub(super) reason: String,
    pub(super) since: String,
    pub(super) created_at: String,
    pub(super) unknown: Option<UnknownFacts>,
}

/// Facts about an unknown outcome that tell when somebody looks for it, and what was seen.
pub(super) struct UnknownFacts {
    /// End of the quarantine, while it lasts.
    pub(super) quarantine_until: Option<String>,
    /// Time of the next look-up; `None` once no more are made.
    pub(super) next_look: Option<String>,
    pub(super) looks: u32,
    /// Last observation of the executor.
    pub(super) seen: Option<String>,
}

impl RecordRow {
    pub(super) fn of(record: &Record, now: Timestamp) -> RecordRow {
        RecordRow {
            id: record.operation_id.to_string(),
            attempt: record.head.epoch,
            operation: record.operation.to_string(),
            tenant: record.principal.tenant().to_owned(),
            caller: record.principal.caller().to_owned(),
            state: record.head.state.name().as_str(),
            reason: words(record.head.reason.as_str()),
            since: time(record.state_since),
            created_at: time(record.created_at),
            unknown: UnknownFacts::of(record, now),
        }
    }
}

impl UnknownFacts {
    pub(super) fn of(record: &Record, now: Timestamp) -> Option<UnknownFacts> {
        let State::Unknown { reconcile_after, attempts, quarantine_until, .. } = record.head.state else {
            return None;
        };
        Some(UnknownFacts {
            quarantine_until: Some(quarantine_until).filter(|until| *until > now).map(time),
            next_look: Some(reconcile_after).filter(|_| !is_dead_letter(&record.head.state)).map(time),
            looks: attempts,
            seen: record.history.observation().map(str::to_owned),
        })
    }
}

/// Filter as the form shows it again.
struct ShownFilter {
    state: String,
    operation: String,
    tenant: String,
    caller: String,
    older_than: String,
    since: String,
    until: String,
}

impl ShownFilter {
    fn of(call: &AdminCall) -> ShownFilter {
        let given = |name| call.query.get(name).unwrap_or_default();
        ShownFilter {
            state: given("state"),
            operation: given("operation"),
            tenant: given("tenant"),
            caller: given("caller"),
            older_than: given("olderThan"),
            since: given("since"),
            until: given("until"),
        }
    }
}

/// One page of a list.
struct ListedRecords {
    rows: Vec<RecordRow>,
    unreadable: Vec<UnreadableRecord>,
    /// Query of the next page.
    more: Option<String>,
    /// True if this page continues another one, to which its rows are added.
    continues: bool,
    /// Advice, if nothing has the operation of the filter.
    hint: Option<String>,
}

#[derive(Template)]
#[template(path = "unknown.html")]
struct UnknownPage {
    list: ListedRecords,
    filter: ShownFilter,
    operations: Vec<String>,
    acts: bool,
    /// True if the reconciler can be asked about some command.
    looks: bool,
    count: OpenState,
    /// Time of the count.
    now: String,
    holds: Vec<HoldRow>,
}

#[derive(Template)]
#[template(path = "records.html")]
struct RecordsPage {
    list: ListedRecords,
    filter: ShownFilter,
    operations: Vec<String>,
    states: Vec<&'static str>,
}

/// Shows the records whose outcome is unknown, the oldest first: ids are in the order of time.
pub(super) async fn unknown(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let (list, admin) = (list(&call, Some(StateName::Unknown)).await?, &call.admin);
    let counted = admin.gate.counted.read(&*admin.store, admin.outbox.as_deref());
    let counted = counted.await.map_err(unavailable)?;
    fragment(&UnknownPage {
        list,
        filter: ShownFilter::of(&call),
        operations: operations(&call),
        acts: acts(&call),
        looks: call.admin.reconciler.is_some() && any_looks_up(&call),
        count: open(&counted.census, StateName::Unknown),
        now: time(counted.now),
        holds: call.admin.holds.holds().await.map_err(unavailable)?.iter().map(HoldRow::of).collect(),
    })
}

/// Shows the records of a filter.
pub(super) async fn records(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let list = list(&call, None).await?;
    fragment(&RecordsPage {
        list,
        filter: ShownFilter::of(&call),
        operations: operations(&call),
        states: StateName::ALL.iter().map(|state| state.as_str()).collect(),
    })
}

/// Returns true if the settings name a look-up for this operation.
pub(super) fn looks_up(call: &AdminCall, operation: &OperationName) -> bool {
    let of = call.admin.config.operations.iter().find(|of| of.names().any(|name| name == operation));
    call.admin.reconciler.is_some() && of.is_some_and(|of| of.reconcile.is_some())
}

fn any_looks_up(call: &AdminCall) -> bool {
    call.admin.config.operations.iter().any(|operation| operation.reconcile.is_some())
}

/// Returns the names of the operations with a rule.
pub(super) fn operations(call: &AdminCall) -> Vec<String> {
    call.admin.config.operations.iter().map(|operation| operation.name.to_string()).collect()
}

async fn list(call: &AdminCall, state: Option<StateName>) -> Result<ListedRecords, Problem> {
    let given = |name: &str| match (name, state) {
        ("state", Some(state)) => Some(state.as_str().to_owned()),
        // A form sends its empty fields, too.
        (name, _) => call.query.flag(name).filter(|text| !text.is_empty()),
    };
    let wanted = WantedRecords::read(FilterSpelling::Parameters, given).map_err(malformed)?;
    let after = call.query.get("after").map(|id| operation_id(&id)).transpose().map_err(malformed)?;
    let store = &call.admin.store;
    let _turn = call.turn().await?;
    let now = store.now().await.map_err(unavailable)?;
    let page = store.list(&wanted.page(now, after, ROWS)).await.map_err(unavailable)?;
    let RecordPage { records, unreadable, next } = page;
    let hint = match given("operation") {
        Some(name) if records.is_empty() && unreadable.is_empty() && next.is_none() => {
            unknown_operation(&name, &call.admin.config, &**store).await.map_err(unavailable)?
        }
        _ => None,
    };
    Ok(ListedRecords {
        rows: records.iter().map(|record| RecordRow::of(record, now)).collect(),
        unreadable,
        more: next.map(|next| more(call, LIST, ("after", &next.to_string()))),
        continues: after.is_some(),
        hint,
    })
}
