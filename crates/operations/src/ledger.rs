//! Comparison of the gateway's ledger with a provider's, by a command or on a schedule.
//!
//! `read` reads either side, `fetch` reads from an address, `watch` runs the schedule, and `board` keeps its
//! last results. The settings make the plan, and `semel-flow` compares.

mod board;
mod fetch;
mod read;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use semel_core::{Clock, OperationId, Records, StateName, SystemClock};
use semel_flow::reconcile::ledger::{self, Ages, FindingKind, LedgerReport};
use semel_settings::LedgerComparison;

pub use board::{LedgerBoard, LedgerFailure, LedgerNews, LedgerRun, LedgerRunFinding};
pub use watch::{check, check_files, watch};

/// Result of a comparison.
pub struct Compared {
    /// Findings.
    pub report: LedgerReport,
    /// States of records under listed references that the gateway's side lacks, if that side is the store.
    pub our_states: HashMap<String, StateName>,
}

/// Compares the two ledgers. `store` holds the records, if they are one of the ledgers.
pub async fn compare(
    comparison: &LedgerComparison,
    store: Option<&Arc<dyn Records>>,
) -> anyhow::Result<Compared> {
    let now = match store {
        Some(store) => store.now().await.context("our ledger is the store")?,
        None => SystemClock.now(),
    };
    let ages = Ages { now, grace: comparison.grace, max_age: comparison.max_age };
    let ours = read::read(&comparison.ours, ages, store).await.context("our ledger")?;
    let theirs = read::read(&comparison.theirs, ages, store).await.context("their ledger")?;
    // Sorting a million references would block other tasks.
    let report = tokio::task::spawn_blocking(move || ledger::compare(&ours, &theirs)).await?;
    let our_states = match store {
        Some(store) => our_states(&report, store).await.context("our ledger is the store")?,
        None => HashMap::new(),
    };
    Ok(Compared { report, our_states })
}

/// Returns the states of commands that the provider executed and that did not succeed here.
async fn our_states(
    report: &LedgerReport,
    store: &Arc<dyn Records>,
) -> anyhow::Result<HashMap<String, StateName>> {
    let mut states = HashMap::new();
    for finding in &report.findings(FindingKind::MissingOurs).first {
        let Ok(id) = finding.reference.parse::<OperationId>() else { continue };
        if let Some(record) = store.find(id).await?.record {
            states.insert(finding.reference.clone(), record.head.state.name());
        }
    }
    Ok(states)
}
