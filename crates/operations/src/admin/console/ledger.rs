//! Findings of the scheduled comparison of ledgers.

use askama::Template;
use semel_core::Problem;

use super::view::{encoded, exact, fragment, time, words};
use crate::admin::call::{AdminAnswer, AdminCall};
use crate::ledger::LedgerRun;

struct FindingRow {
    kind: String,
    reference: String,
    /// Operation id of the command, if the reference is one.
    path: Option<String>,
    state: Option<&'static str>,
    different: String,
}

struct LedgerSummary {
    at: String,
    agrees: bool,
    numbers: Vec<(&'static str, String)>,
    totals: Vec<(String, String)>,
    rows: Vec<FindingRow>,
    /// True if there are more findings than are shown.
    is_cut: bool,
}

impl LedgerSummary {
    fn of(run: &LedgerRun) -> LedgerSummary {
        let rows = run.findings.iter().map(|finding| FindingRow {
            kind: words(finding.kind.as_str()),
            reference: finding.reference.clone(),
            path: crate::operate::operation_id(&finding.reference).ok().map(|id| encoded(&id.to_string())),
            state: finding.state.map(|state| state.as_str()),
            different: finding.different.join(", "),
        });
        let total: u64 = run.totals.iter().map(|(_, total)| total).sum();
        LedgerSummary {
            at: time(run.at),
            agrees: run.agrees(),
            numbers: vec![
                ("entries in ours", exact(run.ours)),
                ("entries in theirs", exact(run.theirs)),
                ("agreeing", exact(run.agreeing)),
                ("too young to tell", exact(run.too_young)),
                ("too old to tell", exact(run.too_old)),
            ],
            totals: run.totals.iter().map(|(kind, total)| (words(kind.as_str()), exact(*total))).collect(),
            is_cut: total > run.findings.len() as u64,
            rows: rows.collect(),
        }
    }
}

#[derive(Template)]
#[template(path = "ledger.html")]
struct LedgerPage {
    is_watched: bool,
    summary: Option<LedgerSummary>,
    /// Time and reason of the last run that failed, if no run succeeded since.
    failed: Option<(String, String)>,
}

/// Shows the last comparison.
pub(super) async fn page(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let news = call.admin.ledger.as_ref().map(|board| board.news());
    let compared = news.as_ref().and_then(|news| news.compared.clone());
    let failed = news.as_ref().and_then(|news| news.failed.clone());
    let failed = failed.filter(|failure| compared.as_ref().is_none_or(|run| failure.at > run.at));
    fragment(&LedgerPage {
        is_watched: news.is_some(),
        summary: compared.as_deref().map(LedgerSummary::of),
        failed: failed.map(|failure| (time(failure.at), failure.why)),
    })
}
