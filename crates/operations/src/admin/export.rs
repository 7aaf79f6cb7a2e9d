//! Export of records at the admin listener: `semel records export`, as a body of JSON Lines.
//!
//! Invariants: the body ends properly only if the whole export is in it; an export without a reader ends before its
//! next page.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use semel_core::{Filter, Problem, RecordPage, Records, StoreError};
use serde_json::json;
use tokio::sync::oneshot;

use super::call::{AdminAnswer, AdminCall, malformed, no_turn};
use super::unavailable;
use crate::operate::filters::{FilterSpelling, WantedRecords};
use crate::operate::operation_id;
use crate::operate::records::{exported, unreadable};
use crate::operate::turns::{ExportPlace, ReadTurns};

/// Largest number of records in one export. The last line names the place to go on.
const MAX_EXPORTED: usize = 100_000;
/// Time for an export. After it, the connection is cut.
const EXPORT_TIME: Duration = Duration::from_secs(10 * 60);
/// Number of records in one page of the store.
const PAGE: usize = 500;

/// Streams records as JSON Lines.
pub(crate) async fn export(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let wanted =
        WantedRecords::read(FilterSpelling::Parameters, |name| call.query.flag(name)).map_err(malformed)?;
    let after = call.query.get("after").map(|id| operation_id(&id)).transpose().map_err(malformed)?;
    let turns = call.admin.gate.turns.clone();
    let place = turns.open_export().await.map_err(no_turn)?;
    let store: Arc<dyn Records> = call.admin.store.clone();
    let turn = turns.take().await.map_err(no_turn)?;
    let filter = wanted.page(store.now().await.map_err(unavailable)?, after, PAGE);
    // Its failure can still be answered.
    let first = store.list(&filter).await.map_err(unavailable)?;
    drop(turn);
    let (lines, body) = lines();
    tokio::spawn(write(lines, ExportPages { store, turns, place, filter }, first));
    Ok(AdminAnswer { content_type: "application/jsonl", ..AdminAnswer::text(http::StatusCode::OK, body) })
}

/// Writer of the lines of an export.
struct ExportLines {
    data: Sender<Bytes, StoreError>,
    /// Closed once the body is dropped: nobody reads the lines any more.
    reader: oneshot::Sender<()>,
}

/// Returns a body, and the writer of its lines.
fn lines() -> (ExportLines, Body) {
    let (data, body) = Channel::<Bytes, StoreError>::new(1);
    let (reader, is_read) = oneshot::channel();
    let body = body.map_frame(move |frame| {
        let _ = &is_read;
        frame
    });
    (ExportLines { data, reader }, Body::new(body))
}

/// Pages of an export after the first, each in its turn.
struct ExportPages {
    store: Arc<dyn Records>,
    turns: Arc<ReadTurns>,
    place: ExportPlace,
    filter: Filter,
}

impl ExportPages {
    /// Reads the page after the last one. A read that has begun is awaited even if nobody wants it any more: its turn
    /// ends with it.
    async fn next(&mut self, reader: &mut oneshot::Sender<()>) -> Result<Option<RecordPage>, StoreError> {
        let turn = tokio::select! {
            biased;
            () = reader.closed() => return Ok(None),
            turn = self.turns.take_next(&self.place) => turn,
        };
        let page = self.store.list(&self.filter).await?;
        drop(turn);
        Ok(Some(page))
    }
}

async fn write(mut lines: ExportLines, mut pages: ExportPages, first: RecordPage) {
    let written = tokio::time::timeout(EXPORT_TIME, write_pages(&mut lines, &mut pages, first));
    let failure = match written.await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => StoreError::Unavailable(format!("the export took longer than {EXPORT_TIME:?}")),
    };
    tracing::warn!(error = %failure, "an export broke off");
    lines.data.abort(failure);
}

/// Writes page after page, until the last, the bound, or the end of the connection. Pages without a match write nothing.
async fn write_pages(
    lines: &mut ExportLines,
    pages: &mut ExportPages,
    first: RecordPage,
) -> Result<(), StoreError> {
    let (mut page, mut written) = (first, 0);
    loop {
        written += page.records.len() + page.unreadable.len();
        pages.filter.after = page.next;
        let mut text = text_of(&page);
        let is_last = pages.filter.after.is_none() || written + PAGE > MAX_EXPORTED;
        if let Some(next) = pages.filter.after.filter(|_| is_last) {
            text.put(format!("{}\n", json!({ "next": next.to_string() })).as_bytes());
        }
        // The client may have gone.
        if (!text.is_empty() && lines.data.send_data(text.freeze()).await.is_err()) || is_last {
            return Ok(());
        }
        let Some(next) = pages.next(&mut lines.reader).await? else { return Ok(()) };
        page = next;
    }
}

fn text_of(page: &RecordPage) -> BytesMut {
    let mut text = BytesMut::new();
    let lines = page.records.iter().map(exported).chain(page.unreadable.iter().map(unreadable));
    lines.for_each(|line| text.put(format!("{line}\n").as_bytes()));
    text
}
