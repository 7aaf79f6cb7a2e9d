//! Overview: what the gateway decided in the last hour, what is open, and the health of its parts.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use askama::Template;
use semel_core::outbox::Depth;
use semel_core::{Census, Problem, StateName, Store, Timestamp};

use super::chart::{HEIGHT, WIDTH, line};
use super::holds::{HoldRow, MAX_SHOWN};
use super::view::{encoded, exact, fragment, size, time};
use crate::admin::call::{AdminAnswer, AdminCall};
use crate::admin::history::{INTERVAL, KEPT, LevelSeries, Series};
use crate::admin::unavailable;

/// Series of the overview, with their names and meanings for people.
const RATES: [(&str, &str, &str); 9] = [
    ("executed", "Executed", "new commands that ran"),
    ("duplicates", "Duplicates prevented", "requests that were not the first of their key"),
    ("replayed", "Replayed", "retries that got the stored response"),
    ("in_progress", "In progress", "retries of a command that still ran"),
    ("mismatch", "Mismatch", "keys that came with another request: 422"),
    ("unknown", "Retries of unknowns", "requests for a command whose outcome is unknown: 409"),
    ("became_unknown", "Became unknown", "commands whose outcome was lost"),
    ("refused", "Refused", "requests that were refused before a claim"),
    ("store_errors", "Store errors", "calls of the store that failed"),
];

/// Gauges of the overview, with their names and meanings for people.
const LEVELS: [(&str, &str, &str); 4] = [
    ("unknown", "Unknown outcomes", "records that wait for evidence"),
    ("processing", "Processing", "commands that run"),
    ("claimed", "Waiting for a worker", "commands that were accepted and have not begun"),
    ("store_queue", "Queue of the store", "changes that wait for the store's writer"),
];

/// Number of samples for which a chart has room at least.
const FEWEST: usize = 30;

/// Series of which a single event in the last hour is marked.
const MARKED: [&str; 3] = ["mismatch", "became_unknown", "store_errors"];

struct LevelRow {
    name: &'static str,
    meaning: &'static str,
    now: String,
    path: String,
    most: String,
}

struct RateRow {
    name: &'static str,
    meaning: &'static str,
    now: String,
    hour: String,
    path: String,
    most: String,
    is_trouble: bool,
}

/// Records of one operation.
#[derive(Default)]
struct OperationRow {
    counts: BTreeMap<&'static str, u64>,
    estimated: bool,
}

struct CountedOperation {
    name: String,
    /// Name as a part of a query.
    query: String,
    counts: Vec<String>,
    is_estimate: bool,
}

/// Number of open records in one state, and the time at which the oldest entered it.
pub(super) struct OpenState {
    pub(super) count: String,
    is_none: bool,
    pub(super) oldest: Option<String>,
}

struct StoreTile {
    tier: u8,
    is_away: bool,
    size: Option<String>,
    bytes: Option<String>,
    is_closing: bool,
}

struct OutboxTile {
    pending: String,
    dead: String,
    is_bad: bool,
    oldest: Option<String>,
}

struct LedgerTile {
    findings: String,
    agrees: bool,
    at: Option<String>,
    failed: bool,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    now: String,
    unknown: OpenState,
    processing: OpenState,
    claimed: OpenState,
    store: StoreTile,
    outbox: Option<OutboxTile>,
    ledger: Option<LedgerTile>,
    holds: Vec<HoldRow>,
    rates: Vec<RateRow>,
    levels: Vec<LevelRow>,
    /// Number of rates in each line.
    samples: usize,
    /// Drawn time, in words.
    window: String,
    width: usize,
    height: usize,
    states: Vec<&'static str>,
    operations: Vec<CountedOperation>,
}

/// Shows the overview.
pub(super) async fn page(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let admin = &call.admin;
    // No turn is taken: all open overviews share one count.
    let counted = admin.gate.counted.read(&*admin.store, admin.outbox.as_deref());
    let counted = counted.await.map_err(unavailable)?;
    let (now, census) = (counted.now, &counted.census);
    let holds = admin.holds.holds().await.map_err(unavailable)?;
    let (series, levels) = (admin.history.series(), admin.history.levels());
    let kept = series.first().map_or(0, |series| series.rates.len());
    fragment(&Overview {
        now: time(now),
        unknown: open(census, StateName::Unknown),
        processing: open(census, StateName::Processing),
        claimed: open(census, StateName::Claimed),
        store: StoreTile {
            tier: admin.store.tier().number(),
            is_away: admin.store.is_open(),
            size: census.bytes.map(size),
            bytes: census.bytes.map(exact),
            is_closing: admin.closing.load(Ordering::SeqCst),
        },
        outbox: counted.depth.map(outbox),
        ledger: ledger(&call),
        holds: holds.iter().map(HoldRow::of).collect(),
        rates: RATES.iter().filter_map(|rate| rate_row(*rate, &series)).collect(),
        levels: LEVELS.iter().filter_map(|level| level_row(*level, &levels)).collect(),
        samples: kept,
        window: window(kept),
        width: WIDTH,
        height: HEIGHT,
        states: StateName::ALL.iter().map(|state| state.as_str()).collect(),
        operations: operations(census),
    })
}

/// Returns the number of records in a state that is counted exactly.
pub(super) fn open(census: &Census, state: StateName) -> OpenState {
    let groups = || census.groups.iter().filter(move |group| group.state == state);
    let count: u64 = groups().map(|group| group.count).sum();
    OpenState {
        count: exact(count),
        is_none: count == 0,
        oldest: groups().filter_map(|group| group.oldest).min().map(time),
    }
}

fn outbox(depth: Depth) -> OutboxTile {
    OutboxTile {
        pending: exact(depth.pending),
        dead: exact(depth.dead),
        is_bad: depth.dead > 0,
        oldest: depth.oldest_pending.map(time),
    }
}

fn ledger(call: &AdminCall) -> Option<LedgerTile> {
    let news = call.admin.ledger.as_ref()?.news();
    let run = news.compared.as_ref();
    let since = |at: Timestamp| run.is_none_or(|run| at > run.at);
    Some(LedgerTile {
        findings: exact(run.map_or(0, |run| run.totals.iter().map(|(_, total)| total).sum::<u64>())),
        agrees: run.is_some_and(|run| run.agrees()),
        at: run.map(|run| time(run.at)),
        failed: news.failed.is_some_and(|failure| since(failure.at)),
    })
}

fn rate_row(
    (source, name, meaning): (&str, &'static str, &'static str),
    series: &[Series],
) -> Option<RateRow> {
    let series = series.iter().find(|series| series.name == source)?;
    let values = drawn(series.rates.iter().copied().map(Some));
    let most = series.rates.iter().copied().fold(0.0, f64::max);
    let hour = (series.rates.iter().sum::<f64>() * INTERVAL.as_secs_f64()).round();
    Some(RateRow {
        name,
        meaning,
        now: rate(series.rates.last().copied().unwrap_or(0.0)),
        // A rate is never negative, and a number of events in an hour is far below the end of a u64.
        hour: exact(hour as u64),
        path: line(&values, most),
        most: rate(most),
        is_trouble: MARKED.contains(&source) && hour > 0.0,
    })
}

fn level_row(
    (source, name, meaning): (&str, &'static str, &'static str),
    levels: &[LevelSeries],
) -> Option<LevelRow> {
    let level = levels.iter().find(|level| level.name == source)?;
    let most = level.values.iter().flatten().copied().fold(0.0, f64::max);
    let now = level.values.last().copied().flatten();
    // Counts are whole and not negative.
    Some(LevelRow {
        name,
        meaning,
        now: now.map_or_else(|| "–".to_owned(), |now| exact(now as u64)),
        path: line(&drawn(level.values.iter().copied()), most),
        most: exact(most as u64),
    })
}

/// Returns the time that a chart with this number of samples shows, in words.
fn window(samples: usize) -> String {
    match INTERVAL * u32::try_from(samples.max(FEWEST)).unwrap_or(u32::MAX) {
        hour if samples >= KEPT => format!("Last {} minutes", hour.as_secs() / 60),
        time => format!("Last {} minutes, since the start", time.as_secs() / 60),
    }
}

/// Returns the samples of the drawn time, at least five minutes: those before the first are missing.
fn drawn(samples: impl ExactSizeIterator<Item = Option<f64>>) -> Vec<Option<f64>> {
    let missing = FEWEST.saturating_sub(samples.len());
    std::iter::repeat_n(None, missing).chain(samples).collect()
}

/// Returns a rate with as many digits as a person compares.
fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_owned(),
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => exact(rate.round() as u64),
    }
}

fn operations(census: &Census) -> Vec<CountedOperation> {
    let mut rows: BTreeMap<&str, OperationRow> = BTreeMap::new();
    for group in &census.groups {
        let row = rows.entry(&group.operation).or_default();
        *row.counts.entry(group.state.as_str()).or_default() += group.count;
        row.estimated |= group.is_estimate;
    }
    let shown = |(name, row): (&str, OperationRow)| CountedOperation {
        name: name.to_owned(),
        query: encoded(name),
        counts: StateName::ALL
            .iter()
            .map(|state| row.counts.get(state.as_str()).map_or_else(String::new, |count| exact(*count)))
            .collect(),
        is_estimate: row.estimated,
    };
    rows.into_iter().map(shown).collect()
}
