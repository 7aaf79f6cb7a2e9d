//! Scheduled comparison: runs once per interval, and reports its findings in metrics, in the log, and on a board.

use std::sync::Arc;

use metrics::{counter, gauge};
use semel_core::{Clock, Records, SystemClock, Timestamp};
use semel_flow::reconcile::ledger::{FindingKind, LedgerReport};
use semel_settings::{LedgerSource, LedgerWatch};
use tokio::time::{Instant, MissedTickBehavior};

use super::board::{LedgerBoard, LedgerFailure, LedgerRun};
use super::fetch::{authorization, client};
use super::{Compared, compare};

/// Largest number of findings that one run logs; all are counted.
const MAX_LOGGED: usize = 100;

/// Checks everything from outside that a run needs.
///
/// # Errors
/// Fails if something is missing.
pub fn check(watch: &LedgerWatch) -> anyhow::Result<()> {
    match &watch.comparison.theirs.source {
        LedgerSource::Url(url) => authorization(url).map(drop),
        LedgerSource::Store { .. } | LedgerSource::File(..) | LedgerSource::Input(_) => Ok(()),
    }?;
    check_files(watch)
}

/// Reads the TLS files, so that a mistake in them is found before the first run.
///
/// # Errors
/// Fails if they cannot be used.
pub fn check_files(watch: &LedgerWatch) -> anyhow::Result<()> {
    match &watch.comparison.theirs.source {
        LedgerSource::Url(url) => Ok(client(url)?.check()?),
        LedgerSource::Store { .. } | LedgerSource::File(..) | LedgerSource::Input(_) => Ok(()),
    }
}

/// Compares again and again until it is dropped, and shows the results on the board.
pub async fn watch(watch: LedgerWatch, store: Arc<dyn Records>, board: Arc<LedgerBoard>) {
    let first = Instant::now() + watch.first_after;
    let mut ticks = tokio::time::interval_at(first, watch.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let reads_store = matches!(watch.comparison.ours.source, LedgerSource::Store { .. });
    loop {
        ticks.tick().await;
        match compare(&watch.comparison, reads_store.then_some(&store)).await {
            Ok(compared) => {
                let (names, now) = (&watch.comparison.ours.columns.compare, SystemClock.now());
                tell(&compared, names, now);
                board.compared(LedgerRun::of(&compared, names, now));
            }
            Err(error) => {
                counter!("idempotency_ledger_runs_total", "outcome" => "failed").increment(1);
                let error = format!("{error:#}");
                tracing::error!(
                    event = "idempotency_ledger_failed",
                    error,
                    "the ledgers could not be compared"
                );
                board.failed(LedgerFailure { at: SystemClock.now(), why: error });
            }
        }
    }
}

/// Counts and logs the findings. `compared_values` are the names of the compared values.
fn tell(compared: &Compared, compared_values: &[String], now: Timestamp) {
    let Compared { report, our_states } = compared;
    for kind in FindingKind::ALL {
        let total = report.findings(kind).total;
        gauge!("idempotency_ledger_findings", "kind" => kind.as_str()).set(total as f64);
    }
    let seconds = now.as_millis() as f64 / 1000.0;
    gauge!("idempotency_ledger_last_run_timestamp_seconds").set(seconds);
    let outcome = if report.agrees() { "agree" } else { "differ" };
    counter!("idempotency_ledger_runs_total", "outcome" => outcome).increment(1);
    let findings = FindingKind::ALL.into_iter().flat_map(|kind| &report.findings(kind).first);
    for finding in findings.take(MAX_LOGGED) {
        // Only names are logged: the values stay in the ledgers.
        let names = finding.differences.iter().filter_map(|difference| compared_values.get(difference.value));
        let different = names.map(String::as_str).collect::<Vec<_>>().join(", ");
        tracing::warn!(
            event = "idempotency_ledger_finding",
            kind = finding.kind.as_str(),
            reference = finding.reference,
            state = our_states.get(&finding.reference).map(|state| state.as_str()),
            different = Some(different).filter(|names| !names.is_empty()),
            "the ledgers do not agree about this"
        );
    }
    summary(report);
}

fn summary(report: &LedgerReport) {
    let total = |kind| report.findings(kind).total;
    let (missing_ours, missing_theirs) = (total(FindingKind::MissingOurs), total(FindingKind::MissingTheirs));
    let (double_ours, double_theirs) = (total(FindingKind::DoubleOurs), total(FindingKind::DoubleTheirs));
    tracing::info!(
        event = "idempotency_ledger_compared",
        agree = report.agrees(),
        ours = report.ours.entries,
        theirs = report.theirs.entries,
        agreeing = report.agreeing,
        missing_ours,
        missing_theirs,
        double_ours,
        double_theirs,
        different = total(FindingKind::Different),
        too_young = report.too_young,
        too_old = report.too_old,
        "the ledgers were compared"
    );
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use semel_settings::Sources;
    use semel_stores::MemoryStore;

    use super::*;
    use crate::ledger::LedgerNews;

    /// Runs the schedule that the settings describe until the board has news of this kind.
    async fn news(theirs: &str, is_there: impl Fn(&LedgerNews) -> bool) -> LedgerNews {
        let file = format!(
            "[ledger]\ntheirs = \"{theirs}\"\ntheir_format = \"ndjson\"\ntheir_reference = \"key\"\ninterval = \"1s\"\n"
        );
        let sources = Sources::new().file("semel.toml", file);
        let loaded = semel_settings::load(&sources, semel_gateway::service::ADDRESS_CHECKS);
        let comparison = loaded.expect("it can be used").config.ledger.expect("there is a schedule");
        let board = LedgerBoard::new();
        let running = tokio::spawn(watch(comparison, Arc::new(MemoryStore::new()), board.clone()));
        for _ in 0..10_000 {
            if is_there(&board.news()) {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        running.abort();
        board.news()
    }

    #[tokio::test(start_paused = true)]
    async fn the_board_has_the_last_run_of_the_schedule_or_its_error() {
        let agreed = news("/dev/null", |news| news.compared.is_some()).await;
        let run = agreed.compared.expect("two empty ledgers can be compared");
        assert_eq!((run.agrees(), run.ours, run.theirs), (true, 0, 0));
        assert_eq!(agreed.failed, None);
        let failed = news("/dev/null/nothing", |news| news.failed.is_some()).await;
        let why = failed.failed.expect("there is no such file").why;
        assert!(why.starts_with("their ledger") && why.contains("/dev/null/nothing"), "{why}");
        assert!(failed.compared.is_none());
    }
}
