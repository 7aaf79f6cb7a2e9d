//! Last results of the scheduled comparison, for the operators of this process.
//!
//! Invariant: memory is bounded, since a report lists a bounded number of findings of each kind. Of the compared values only
//! names are kept, as in the log: the values stay in the ledgers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::{StateName, Timestamp};
use semel_flow::reconcile::ledger::{FindingKind, LedgerFinding};

use super::Compared;

/// Board of the last comparison, and of the last one that failed.
#[derive(Debug, Default)]
pub struct LedgerBoard(Mutex<LedgerNews>);

/// Last results of the comparisons since the start of this process.
#[derive(Clone, Debug, Default)]
pub struct LedgerNews {
    /// Last comparison; `None` before the first.
    pub compared: Option<Arc<LedgerRun>>,
    /// Last comparison that failed; `None` if none did. It may be older than the one that succeeded.
    pub failed: Option<LedgerFailure>,
}

/// Comparison of two ledgers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRun {
    /// Time of its end.
    pub at: Timestamp,
    /// Number of entries in our ledger.
    pub ours: u64,
    /// Number of entries in their ledger.
    pub theirs: u64,
    /// Number of references that both ledgers have once, with the same values.
    pub agreeing: u64,
    /// Number of references that one ledger lacks, and that may still be in flight.
    pub too_young: u64,
    /// Number of references that one ledger lacks, and that may have expired there.
    pub too_old: u64,
    /// Number of findings of each kind.
    pub totals: Vec<(FindingKind, u64)>,
    /// First findings of each kind, in the order of the kinds.
    pub findings: Vec<LedgerRunFinding>,
}

/// Finding of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRunFinding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Reference that the ledgers do not agree about.
    pub reference: String,
    /// State of the command under that reference, if our ledger is the store and lacks it among the succeeded.
    pub state: Option<StateName>,
    /// Names of the values that differ.
    pub different: Vec<String>,
}

/// Comparison that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerFailure {
    /// Time of the failure.
    pub at: Timestamp,
    /// Error, in words.
    pub why: String,
}

impl LedgerRun {
    /// Makes the summary of a comparison. `compared_values` are the names of the compared values.
    pub(super) fn of(compared: &Compared, compared_values: &[String], at: Timestamp) -> LedgerRun {
        let Compared { report, our_states } = compared;
        let finding = |finding: &LedgerFinding| LedgerRunFinding {
            kind: finding.kind,
            reference: finding.reference.clone(),
            state: our_states.get(&finding.reference).copied(),
            different: finding
                .differences
                .iter()
                .filter_map(|difference| compared_values.get(difference.value).cloned())
                .collect(),
        };
        LedgerRun {
            at,
            ours: report.ours.entries,
            theirs: report.theirs.entries,
            agreeing: report.agreeing,
            too_young: report.too_young,
            too_old: report.too_old,
            totals: FindingKind::ALL.into_iter().map(|kind| (kind, report.findings(kind).total)).collect(),
            findings: FindingKind::ALL
                .into_iter()
                .flat_map(|kind| &report.findings(kind).first)
                .map(finding)
                .collect(),
        }
    }

    /// Returns true if there are no findings.
    pub fn agrees(&self) -> bool {
        self.totals.iter().all(|(_, total)| *total == 0)
    }
}

impl LedgerBoard {
    /// Makes an empty board.
    pub fn new() -> Arc<LedgerBoard> {
        Arc::default()
    }

    /// Returns the last results.
    pub fn news(&self) -> LedgerNews {
        self.locked().clone()
    }

    /// Shows a comparison in place of the last one.
    pub(super) fn compared(&self, run: LedgerRun) {
        self.locked().compared = Some(Arc::new(run));
    }

    /// Shows a failure in place of the last one.
    pub(super) fn failed(&self, failure: LedgerFailure) {
        self.locked().failed = Some(failure);
    }

    fn locked(&self) -> MutexGuard<'_, LedgerNews> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use semel_flow::reconcile::ledger::{Age, Ledger, compare};

    use super::*;

    fn run(our_amount: &str, at: i64) -> LedgerRun {
        let mut ours = Ledger::new(1);
        let mut theirs = Ledger::new(1);
        ours.add(0, Age::Due, "both", &[our_amount]).expect("there is room");
        theirs.add(0, Age::Due, "both", &["planted-50"]).expect("there is room");
        theirs.add(0, Age::Due, "theirs", &["planted-9"]).expect("there is room");
        let our_states = HashMap::from([("theirs".to_owned(), StateName::Unknown)]);
        let compared = Compared { report: compare(&ours, &theirs), our_states };
        LedgerRun::of(&compared, &["amount".to_owned()], Timestamp::from_millis(at))
    }

    #[test]
    fn a_run_has_totals_of_every_kind_and_names_of_values_but_no_values() {
        let run = run("planted-60", 7);
        let found: Vec<_> = run
            .findings
            .iter()
            .map(|finding| (finding.kind, &*finding.reference, finding.state, finding.different.join(", ")))
            .collect();
        assert_eq!(
            found,
            [
                (FindingKind::MissingOurs, "theirs", Some(StateName::Unknown), String::new()),
                (FindingKind::Different, "both", None, "amount".to_owned()),
            ]
        );
        let totals: Vec<u64> = FindingKind::ALL
            .into_iter()
            .filter_map(|kind| run.totals.iter().find(|(of, _)| *of == kind).map(|(_, total)| *total))
            .collect();
        assert_eq!(
            (totals.len(), totals.iter().sum::<u64>(), run.agrees()),
            (FindingKind::ALL.len(), 2, false)
        );
        assert!(!format!("{run:?}").contains("planted"), "{run:?}");
    }

    #[test]
    fn a_failure_does_not_hide_the_last_comparison_nor_a_comparison_the_last_failure() {
        let board = LedgerBoard::new();
        assert!(board.news().compared.is_none() && board.news().failed.is_none());
        let failure = LedgerFailure { at: Timestamp::from_millis(2), why: "it is away".to_owned() };
        board.compared(run("planted-50", 1));
        board.failed(failure.clone());
        assert_eq!(board.news().compared.map(|run| run.at), Some(Timestamp::from_millis(1)));
        board.compared(run("planted-50", 3));
        let news = board.news();
        assert_eq!(news.compared.map(|run| (run.at, run.agreeing)), Some((Timestamp::from_millis(3), 1)));
        assert_eq!(news.failed, Some(failure));
    }
}
