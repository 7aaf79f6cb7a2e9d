//! Many records at the admin listener: `semel records export` and `semel records settle`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::channel::{Channel, Sender};
use semel_core::problem::ProblemKind;
use semel_core::{Filter, Problem, RecordPage, Records, StoreError};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::call::{AdminAnswer, AdminCall, malformed};
use super::{LATER, unavailable};
use crate::operate::records::{WantedRecords, exported, unreadable};
use crate::operate::settle::{EvidenceFault, EvidenceReader, Settling};
use crate::operate::{operation_id, reason};

/// Largest number of records in one export. The last line names the place to go on.
const MAX_EXPORTED: usize = 100_000;
/// Time for an export. After it, the connection is cut.
const EXPORT_TIME: Duration = Duration::from_secs(10 * 60);
/// Number of records in one page of the store.
const PAGE: usize = 500;
/// Largest number of verdicts in one request.
const MAX_VERDICTS: usize = 1000;
/// Largest number of faults that a refusal names.
const MAX_NAMED: usize = 20;

/// Streams records as JSON Lines. The body ends properly only if the whole export is in it.
pub(crate) async fn export(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let wanted = WantedRecords::read(|name| call.query.flag(name)).map_err(malformed)?;
    let after = call.query.get("after").map(|id| operation_id(&id)).transpose().map_err(malformed)?;
    let place = call.admin.gate.exports.clone().try_acquire_owned().map_err(|_| {
        Problem::new(ProblemKind::Overloaded, "There are too many exports at the same time.")
            .retry_after(LATER)
    })?;
    let store: Arc<dyn Records> = call.admin.store.clone();
    let filter = wanted.page(store.now().await.map_err(unavailable)?, after, PAGE);
    // Its failure can still be answered.
    let first = store.list(&filter).await.map_err(unavailable)?;
    let (lines, body) = Channel::<Bytes, StoreError>::new(1);
    tokio::spawn(write(lines, store, filter, first, place));
    Ok(AdminAnswer {
        content_type: "application/jsonl",
        ..AdminAnswer::text(http::StatusCode::OK, Body::new(body))
    })
}

async fn write(
    mut lines: Sender<Bytes, StoreError>,
    store: Arc<dyn Records>,
    filter: Filter,
    first: RecordPage,
    _place: OwnedSemaphorePermit,
) {
    let pages = write_pages(&mut lines, &*store, filter, first);
    let failure = match tokio::time::timeout(EXPORT_TIME, pages).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => StoreError::Unavailable(format!("the export took longer than {EXPORT_TIME:?}")),
    };
    tracing::warn!(error = %failure, "an export broke off");
    lines.abort(failure);
}

/// Writes page after page, until the last, the bound, or the end of the connection.
async fn write_pages(
    lines: &mut Sender<Bytes, StoreError>,
    store: &dyn Records,
    mut filter: Filter,
    first: RecordPage,
) -> Result<(), StoreError> {
    let (mut page, mut written) = (first, 0);
    loop {
        written += page.records.len() + page.unreadable.len();
        filter.after = page.next;
        let mut text = text_of(&page);
        let is_last = filter.after.is_none() || written + PAGE > MAX_EXPORTED;
        if let Some(next) = filter.after.filter(|_| is_last) {
            text.put(format!("{}\n", json!({ "next": next.to_string() })).as_bytes());
        }
        // The client may have gone.
        if (!text.is_empty() && lines.send_data(text.freeze()).await.is_err()) || is_last {
            return Ok(());
        }
        page = store.list(&filter).await?;
    }
}

fn text_of(page: &RecordPage) -> BytesMut {
    let mut text = BytesMut::new();
    let lines = page.records.iter().map(exported).chain(page.unreadable.iter().map(unreadable));
    lines.for_each(|line| text.put(format!("{line}\n").as_bytes()));
    text
}

/// Settles many records, or says what each verdict would come to.
pub(crate) async fn settle(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let given =
        call.member("reason")?.ok_or_else(|| malformed("`reason` is missing: it is kept for good."))?;
    let given = reason(&given).map_err(|wrong| malformed(format!("`reason` {wrong}.")))?;
    let is_dry = match call.members.get("dryRun") {
        None | Some(Value::Null) => false,
        Some(value) => value.as_bool().ok_or_else(|| malformed("`dryRun` is true or false."))?,
    };
    let verdicts = call.members.get("verdicts").and_then(Value::as_array);
    let verdicts = verdicts.ok_or_else(|| malformed("`verdicts` must be a list of objects."))?;
    if !(1..=MAX_VERDICTS).contains(&verdicts.len()) {
        return Err(malformed(format!("`verdicts` has from 1 to {MAX_VERDICTS} elements.")));
    }
    let mut reader = EvidenceReader::new(&given, "element");
    (1..).zip(verdicts).for_each(|(number, verdict)| reader.read(number, verdict));
    let lines = reader.finish().map_err(|faults| malformed(named(&faults)))?;
    let (admin, who) = (&call.admin, &call.caller.who);
    let store: &dyn Records = &*admin.store;
    let mut settling = Settling { store, config: &admin.config, who, is_dry, stopped: None };
    let (mut results, mut settled) = (Vec::with_capacity(lines.len()), 0);
    for line in &lines {
        let outcome = settling.give(line).await;
        settled += usize::from(outcome.is_settled());
        results.push(settling.to_json(line, &outcome));
    }
    if let Some(why) = &settling.stopped {
        tracing::warn!(error = why, "the admin listener cannot use the store");
    }
    let others = results.len() - settled;
    let result = match (is_dry, others) {
        (true, _) => "dry run",
        (false, 0) => "done",
        (false, _) => "done in part",
    };
    let shown = json!({ "dryRun": is_dry, "settled": settled, "others": others, "results": results });
    Ok(AdminAnswer { result, ..AdminAnswer::json(&shown) })
}

/// Names the first faults, and the number of the others.
fn named(faults: &[EvidenceFault]) -> String {
    let first: Vec<String> =
        faults.iter().take(MAX_NAMED).map(|fault| format!("{}: {}", fault.number, fault.why)).collect();
    let more = match faults.len() - first.len() {
        0 => String::new(),
        more => format!(" And {more} more."),
    };
    format!("Nothing was settled, since these verdicts cannot be used. {}{more}", first.join(" "))
}
