//! Audit log: who did what by hand, when and why.

use askama::Template;
use semel_core::{AuditEntry, AuditId, Problem};

use super::view::{ROWS, fragment, more, time};
use crate::admin::call::{AdminAnswer, AdminCall, malformed};
use crate::admin::unavailable;

struct NoteRow {
    at: String,
    who: String,
    action: String,
    why: String,
    operation_id: Option<String>,
}

impl NoteRow {
    fn of(entry: &AuditEntry) -> NoteRow {
        let note = &entry.taken.note;
        NoteRow {
            at: time(entry.taken.at),
            who: note.who.clone(),
            action: note.action.clone(),
            why: note.why.clone(),
            operation_id: entry.operation_id.map(|id| id.to_string()),
        }
    }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Audit {
    rows: Vec<NoteRow>,
    more: Option<String>,
    continues: bool,
}

/// Shows operators' actions, the newest first.
pub(super) async fn page(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let before = call.query.get("before").map(|text| text.parse::<AuditId>());
    let before = before.transpose().map_err(|wrong| malformed(format!("`before`: {wrong}.")))?;
    let _turn = call.turn().await?;
    let entries = call.admin.audit.audit(before, ROWS).await.map_err(unavailable)?;
    let last = entries.last().filter(|_| entries.len() == ROWS);
    fragment(&Audit {
        rows: entries.iter().map(NoteRow::of).collect(),
        more: last.map(|last| more(&call, &[], ("before", &last.id.to_string()))),
        continues: before.is_some(),
    })
}
