//! The comparison: walks both ledgers side by side, in the order of their references.

use semel_core::json::same_number;

use super::entries::{Age, Ledger};

/// Maximum number of listed findings of a kind; all are counted.
pub const MAX_LISTED: usize = 100;

/// Maximum number of entries with one reference that are compared on each side; there should be one.
const MAX_TWINS: usize = 64;

/// Maximum number of lines named for one reference.
const MAX_LINES: usize = 5;

/// Kind of a disagreement about a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// Their ledger has the reference, and ours does not.
    MissingOurs,
    /// Our ledger has the reference, and theirs does not.
    MissingTheirs,
    /// Our ledger has the reference more than once.
    DoubleOurs,
    /// Their ledger has the reference more than once.
    DoubleTheirs,
    /// Both ledgers have the reference, with different values.
    Different,
}

impl FindingKind {
    /// All kinds.
    pub const ALL: [FindingKind; 5] = [
        FindingKind::MissingOurs,
        FindingKind::MissingTheirs,
        FindingKind::DoubleOurs,
        FindingKind::DoubleTheirs,
        FindingKind::Different,
    ];

    /// Returns its name in metrics and logs, which is stable.
    pub fn as_str(self) -> &'static str {
        match self {
            FindingKind::MissingOurs => "missing_ours",
            FindingKind::MissingTheirs => "missing_theirs",
            FindingKind::DoubleOurs => "double_ours",
            FindingKind::DoubleTheirs => "double_theirs",
            FindingKind::Different => "different",
        }
    }
}

/// A disagreement about one reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerFinding {
    /// Kind of the disagreement.
    pub kind: FindingKind,
    /// The reference.
    pub reference: String,
    /// First lines with the reference in our ledger.
    pub our_lines: Vec<u32>,
    /// First lines with the reference in their ledger.
    pub their_lines: Vec<u32>,
    /// Different values, for [`FindingKind::Different`].
    pub differences: Vec<LedgerDifference>,
}

/// A value that differs between the ledgers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerDifference {
    /// Index of the compared value, from 0.
    pub value: usize,
    /// Value in our ledger.
    pub ours: String,
    /// Value in their ledger.
    pub theirs: String,
}

/// All findings of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFindings {
    /// Number of references.
    pub total: u64,
    /// First findings, in the order of their references.
    pub first: Vec<LedgerFinding>,
}

/// Number of entries read from one ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// Entries that were compared.
    pub entries: u64,
    /// Entries that the filter excluded.
    pub left_out: u64,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerReport {
    /// Entries of our ledger.
    pub ours: EntryCounts,
    /// Entries of their ledger.
    pub theirs: EntryCounts,
    /// References that both ledgers have once, with the same values.
    pub agreeing: u64,
    /// References that one ledger lacks, and that may still be in flight.
    pub too_young: u64,
    /// References that one ledger lacks, and that may have expired there.
    pub too_old: u64,
    findings: [LedgerFindings; 5],
}

impl LedgerReport {
    /// Returns the findings of this kind.
    pub fn findings(&self, kind: FindingKind) -> &LedgerFindings {
        &self.findings[kind as usize]
    }

    /// Returns true if there are no findings.
    pub fn agrees(&self) -> bool {
        self.findings.iter().all(|findings| findings.total == 0)
    }

    fn found(&mut self, kind: FindingKind, pair: &Pair<'_>, differences: Vec<LedgerDifference>) {
        let findings = &mut self.findings[kind as usize];
        findings.total += 1;
        if findings.first.len() < MAX_LISTED {
            findings.first.push(LedgerFinding {
                kind,
                reference: pair.reference.to_owned(),
                our_lines: pair.ours.lines(),
                their_lines: pair.theirs.lines(),
                differences,
            });
        }
    }
}

/// Compares two ledgers with the same number of compared values.
pub fn compare(ours: &Ledger, theirs: &Ledger) -> LedgerReport {
    let mut report = LedgerReport { ours: counted(ours), theirs: counted(theirs), ..LedgerReport::default() };
    let (our_order, their_order) = (ours.in_order(), theirs.in_order());
    let (mut our_rest, mut their_rest) = (&our_order[..], &their_order[..]);
    while let Some(reference) = first_reference(ours, our_rest, theirs, their_rest) {
        let pair = Pair {
            reference,
            ours: Twins::take(ours, &mut our_rest, reference),
            theirs: Twins::take(theirs, &mut their_rest, reference),
        };
        judge(&mut report, &pair);
    }
    report
}

fn counted(ledger: &Ledger) -> EntryCounts {
    EntryCounts { entries: ledger.len() as u64, left_out: ledger.left_out }
}

fn first_reference<'a>(
    ours: &'a Ledger,
    our_rest: &[u32],
    theirs: &'a Ledger,
    their_rest: &[u32],
) -> Option<&'a str> {
    let our_first = our_rest.first().map(|entry| ours.reference(*entry));
    let their_first = their_rest.first().map(|entry| theirs.reference(*entry));
    our_first.into_iter().chain(their_first).min()
}

/// All entries with one reference.
struct Pair<'a> {
    reference: &'a str,
    ours: Twins<'a>,
    theirs: Twins<'a>,
}

/// Entries of one ledger with the same reference.
struct Twins<'a> {
    ledger: &'a Ledger,
    entries: &'a [u32],
}

impl<'a> Twins<'a> {
    fn take(ledger: &'a Ledger, rest: &mut &'a [u32], reference: &str) -> Twins<'a> {
        let count = rest.iter().take_while(|entry| ledger.reference(**entry) == reference).count();
        let (entries, after) = rest.split_at(count);
        *rest = after;
        Twins { ledger, entries }
    }

    fn lines(&self) -> Vec<u32> {
        let lines = self.entries.iter().map(|entry| self.ledger.line(*entry)).filter(|line| *line > 0);
        lines.take(MAX_LINES).collect()
    }

    fn are_all(&self, age: Age) -> bool {
        self.entries.iter().all(|entry| self.ledger.age(*entry) == age)
    }

    /// Returns the first entry whose values no entry of the other ledger has.
    fn unmatched(&self, other: &Twins<'_>) -> Option<u32> {
        let candidates = self.entries.iter().take(MAX_TWINS).copied();
        let mut unmatched = candidates.filter(|entry| {
            let mut others = other.entries.iter().take(MAX_TWINS);
            !others.any(|theirs| differences(self.ledger, *entry, other.ledger, *theirs).next().is_none())
        });
        unmatched.next()
    }
}

fn judge(report: &mut LedgerReport, pair: &Pair<'_>) {
    let Pair { ours, theirs, .. } = pair;
    let mut is_wrong = false;
    for (kind, side) in [(FindingKind::DoubleOurs, ours), (FindingKind::DoubleTheirs, theirs)] {
        if side.entries.len() > 1 {
            is_wrong = true;
            report.found(kind, pair, Vec::new());
        }
    }
    match (ours.entries, theirs.entries) {
        ([], _) => missing(report, FindingKind::MissingOurs, pair, theirs),
        (_, []) => missing(report, FindingKind::MissingTheirs, pair, ours),
        ([our_first, ..], [their_first, ..]) => {
            let (our_odd, their_odd) = (ours.unmatched(theirs), theirs.unmatched(ours));
            if our_odd.is_some() || their_odd.is_some() {
                let (one, other) = (our_odd.unwrap_or(*our_first), their_odd.unwrap_or(*their_first));
                let differences = differences(ours.ledger, one, theirs.ledger, other).collect();
                report.found(FindingKind::Different, pair, differences);
            } else if !is_wrong {
                report.agreeing += 1;
            }
        }
    }
}

/// Counts a reference that one ledger lacks; `has` are the entries of the other.
fn missing(report: &mut LedgerReport, kind: FindingKind, pair: &Pair<'_>, has: &Twins<'_>) {
    if has.are_all(Age::TooYoung) {
        report.too_young += 1;
    } else if has.are_all(Age::TooOld) {
        report.too_old += 1;
    } else {
        report.found(kind, pair, Vec::new());
    }
}

fn differences<'a>(
    ours: &'a Ledger,
    one: u32,
    theirs: &'a Ledger,
    other: u32,
) -> impl Iterator<Item = LedgerDifference> + 'a {
    let pairs = ours.values(one).zip(theirs.values(other)).enumerate();
    pairs.filter(|(_, (ours, theirs))| !same(ours, theirs)).map(|(value, (ours, theirs))| LedgerDifference {
        value,
        ours: ours.to_owned(),
        theirs: theirs.to_owned(),
    })
}

/// Returns true if two values are the same text, or the same number.
pub(super) fn same(one: &str, other: &str) -> bool {
    one == other || same_number(one, other)
}
