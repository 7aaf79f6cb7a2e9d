//! Last hour of this process's counters, and the latest value of its gauges, for the console's overview. They are read from the
//! page `/metrics`, every 10 seconds.
//!
//! Invariant: memory is bounded. The set of series is fixed, whatever labels the page has, and each keeps an hour.

mod page;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::{Clock, SystemClock, Timestamp};
use tokio::time::{Instant, MissedTickBehavior};

use self::page::{MalformedPage, PageLine, lines};

/// Interval between two samples.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Number of intervals that are kept: one hour.
pub const KEPT: usize = 360;

/// Counters of the page that one series sums up.
#[derive(Debug)]
pub struct SeriesSource {
    /// Name of the series.
    pub name: &'static str,
    /// Name of the metric.
    pub metric: &'static str,
    /// Label that a line must have, and its value; all lines count without one.
    pub label: Option<(&'static str, &'static str)>,
}

/// Returns the source of a series of decisions with this outcome.
const fn claims(outcome: &'static str) -> SeriesSource {
    SeriesSource { name: outcome, metric: "idempotency_claims_total", label: Some(("outcome", outcome)) }
}

/// Returns the source of a series that is the whole of a counter.
const fn whole(name: &'static str, metric: &'static str) -> SeriesSource {
    SeriesSource { name, metric, label: None }
}

/// Number of series.
const SERIES: usize = 14;

/// Every series: the decisions by outcome, then other counters.
pub const SOURCES: [SeriesSource; SERIES] = [
    claims("executed"),
    claims("accepted"),
    claims("reacquired"),
    claims("replayed"),
    claims("in_progress"),
    claims("mismatch"),
    claims("unknown"),
    claims("expired"),
    claims("refused"),
    claims("store_error"),
    whole("replays", "idempotency_replays_total"),
    whole("duplicates", "idempotency_duplicates_total"),
    whole("became_unknown", "idempotency_unknown_total"),
    whole("store_errors", "idempotency_store_errors_total"),
];

/// Gauge of the page: its name here, the metric, and the label that its lines must have.
type GaugeSource = (&'static str, &'static str, Option<(&'static str, &'static str)>);

/// Number of gauges.
const GAUGES: usize = 6;

/// Every gauge.
pub const GAUGE_SOURCES: [GaugeSource; GAUGES] = [
    ("claimed", "idempotency_records_active", Some(("state", "claimed"))),
    ("processing", "idempotency_records_active", Some(("state", "processing"))),
    ("unknown", "idempotency_records_active", Some(("state", "unknown"))),
    ("store_queue", "idempotency_store_queue_length", None),
    ("outbox_pending", "outbox_pending", None),
    ("outbox_dead", "outbox_dead", None),
];

/// Values of one gauge over the last hour.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelSeries {
    /// Name of the gauge.
    pub name: &'static str,
    /// Values every 10 seconds, the oldest first; at most 360. A page without such a line has none.
    pub values: Vec<Option<f64>>,
}

/// Rates of one series over the last hour.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the series, such as the outcome of a decision.
    pub name: &'static str,
    /// Events per second in each interval of 10 seconds, the oldest first; at most 360.
    pub rates: Vec<f64>,
    /// Time of the newest sample, which ends the last interval; `None` before the first.
    pub newest: Option<Timestamp>,
}

/// Samples of the page `/metrics` of this process.
#[derive(Debug, Default)]
pub struct MetricsHistory(Mutex<MetricsSamples>);

impl MetricsHistory {
    /// Makes an empty history.
    pub fn new() -> Arc<MetricsHistory> {
        Arc::default()
    }

    /// Samples the page again and again until it is dropped.
    pub async fn run(self: Arc<Self>, page: Arc<dyn Fn() -> String + Send + Sync>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut was_malformed) = (Instant::now(), false);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            match self.samples().take(&page(), SystemClock.now(), now.duration_since(last)) {
                Ok(()) => (last, was_malformed) = (now, false),
                Err(MalformedPage { line }) if !was_malformed => {
                    was_malformed = true;
                    tracing::warn!(line, "the page of metrics cannot be read: the console has no new rates");
                }
                Err(_) => {}
            }
        }
    }

    /// Returns every series, in the order of [`SOURCES`].
    pub fn series(&self) -> Vec<Series> {
        let samples = self.samples();
        let newest = samples.newest;
        let of = |(index, source): (usize, &SeriesSource)| Series {
            name: source.name,
            rates: samples.rates.iter().filter_map(|rates| rates.get(index).copied()).collect(),
            newest,
        };
        SOURCES.iter().enumerate().map(of).collect()
    }

    /// Returns every gauge, in the order of [`GAUGE_SOURCES`].
    pub fn levels(&self) -> Vec<LevelSeries> {
        let samples = self.samples();
        let of = |(index, source): (usize, &GaugeSource)| LevelSeries {
            name: source.0,
            values: samples.levels.iter().filter_map(|levels| levels.get(index).copied()).collect(),
        };
        GAUGE_SOURCES.iter().enumerate().map(of).collect()
    }

    fn samples(&self) -> MutexGuard<'_, MetricsSamples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rates of the last hour, and the totals that the next ones are measured from.
#[derive(Debug, Default)]
struct MetricsSamples {
    totals: Option<[f64; SERIES]>,
    rates: VecDeque<[f64; SERIES]>,
    levels: VecDeque<[Option<f64>; GAUGES]>,
    newest: Option<Timestamp>,
}

impl MetricsSamples {
    /// Takes a sample of the page, `elapsed` after the last one. A page that cannot be read changes nothing.
    fn take(&mut self, page: &str, at: Timestamp, elapsed: Duration) -> Result<(), MalformedPage> {
        let (mut totals, mut gauges) = ([0.0; SERIES], [None; GAUGES]);
        for line in lines(page, is_wanted) {
            let line = line?;
            for (total, source) in totals.iter_mut().zip(&SOURCES) {
                if is_of(&line, source.metric, source.label) {
                    *total += line.value;
                }
            }
            for (gauge, (_, metric, label)) in gauges.iter_mut().zip(&GAUGE_SOURCES) {
                if is_of(&line, metric, *label) {
                    *gauge = Some(gauge.unwrap_or(0.0) + line.value);
                }
            }
        }
        if let Some(before) = self.totals.replace(totals) {
            push(&mut self.rates, rates(before, totals, elapsed));
        }
        push(&mut self.levels, gauges);
        self.newest = Some(at);
        Ok(())
    }
}

/// Adds the newest, and forgets what is older than an hour.
fn push<T>(kept: &mut VecDeque<T>, newest: T) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(newest);
}

/// Returns the rates between two samples. A counter that fell began again at 0 in between.
fn rates(before: [f64; SERIES], after: [f64; SERIES], elapsed: Duration) -> [f64; SERIES] {
    let seconds = elapsed.as_secs_f64();
    std::array::from_fn(|index| {
        let (before, after) = (before[index], after[index]);
        let risen = if after < before { after } else { after - before };
        if seconds > 0.0 { risen / seconds } else { 0.0 }
    })
}

fn is_wanted(name: &str) -> bool {
    SOURCES.iter().any(|source| source.metric == name)
        || GAUGE_SOURCES.iter().any(|(_, metric, _)| *metric == name)
}

fn is_of(line: &PageLine<'_>, metric: &str, label: Option<(&str, &str)>) -> bool {
    line.name == metric && label.is_none_or(|(name, value)| line.has_label(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP idempotency_claims_total Decisions about commands: accepted, executed.\n\
        # TYPE idempotency_claims_total counter\n\
        idempotency_claims_total{operation=\"payments.create\",outcome=\"executed\"} 10\n\
        idempotency_claims_total{operation=\"orders.create\",outcome=\"executed\"} 5\n\
        idempotency_claims_total{operation=\"executed\",outcome=\"replayed\"} 7\n\
        idempotency_claims_total{operation=\"a\",outcome=\"from_the_future\"} 99\n\
        \n\
        idempotency_replays_total{operation=\"a\"} 7\n\
        idempotency_store_errors_total{call=\"claim\"} 1\n\
        idempotency_store_errors_total{call=\"apply\"} 2\n\
        idempotency_records_active{operation=\"a\",state=\"unknown\"} 3\n\
        idempotency_records_active{operation=\"b\",state=\"unknown\"} 4\n\
        idempotency_records_active{operation=\"a\",state=\"succeeded\"} 1000\n\
        idempotency_store_breaker_open 1\n";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    /// Returns a history that took these pages, 10 seconds apart.
    fn history(pages: &[&str]) -> MetricsHistory {
        let history = MetricsHistory::default();
        for (page, number) in pages.iter().zip(1..) {
            history.samples().take(page, at(10 * number), INTERVAL).expect("it can be read");
        }
        history
    }

    fn rates_of(history: &MetricsHistory, name: &str) -> Vec<f64> {
        let series = history.series();
        series.into_iter().find(|series| series.name == name).expect("it is a series").rates
    }

    #[test]
    fn the_rate_of_a_series_is_the_rise_of_its_counters_per_second() {
        let later = PAGE
            .replace("\"executed\"} 10\n", "\"executed\"} 40\n")
            .replace("outcome=\"executed\"} 5\n", "outcome=\"executed\"} 25\n");
        let history = history(&[PAGE, &later, &later]);
        assert_eq!(rates_of(&history, "executed"), [5.0, 0.0]);
        assert_eq!(rates_of(&history, "replayed"), [0.0, 0.0]);
        assert!(
            history.series().iter().all(|series| series.newest == Some(at(30)) && series.rates.len() == 2)
        );
    }

    #[test]
    fn a_first_sample_has_no_rate_and_a_counter_that_appears_began_at_zero() {
        assert!(rates_of(&history(&[PAGE]), "replayed").is_empty());
        assert_eq!(rates_of(&history(&["", PAGE]), "replayed"), [0.7]);
        let empty = MetricsHistory::default();
        assert!(empty.series().iter().all(|series| series.newest.is_none() && series.rates.is_empty()));
    }

    #[test]
    fn a_counter_that_fell_was_restarted_and_counts_from_zero() {
        let before = "idempotency_claims_total{outcome=\"executed\"} 1000\n";
        let after = "idempotency_claims_total{outcome=\"executed\"} 30\n";
        assert_eq!(rates_of(&history(&[before, after]), "executed"), [3.0]);
    }

    #[test]
    fn a_late_sample_spreads_its_rise_over_the_time_that_passed() {
        let (history, claims) =
            (MetricsHistory::default(), "idempotency_claims_total{outcome=\"executed\"} 30\n");
        history.samples().take("", at(0), INTERVAL).expect("it can be read");
        history.samples().take(claims, at(60), Duration::from_secs(60)).expect("it can be read");
        assert_eq!(rates_of(&history, "executed"), [0.5]);
        history.samples().take("", at(60), Duration::ZERO).expect("it can be read");
        assert_eq!(rates_of(&history, "executed"), [0.5, 0.0], "no time is no division by zero");
    }

    #[test]
    fn the_history_keeps_one_hour() {
        let history = MetricsHistory::default();
        for number in 0..1000 {
            let page = format!("idempotency_replays_total {}\n", number * number);
            history.samples().take(&page, at(10 * number), INTERVAL).expect("it can be read");
        }
        let rates = rates_of(&history, "replays");
        assert_eq!(rates.len(), KEPT);
        assert!(history.levels().iter().all(|level| level.values.len() == KEPT));
        // The rise from n - 1 to n is 2 n - 1.
        assert_eq!((rates[0], rates[KEPT - 1]), ((2.0 * 640.0 - 1.0) / 10.0, (2.0 * 999.0 - 1.0) / 10.0));
        assert_eq!(KEPT as u32 * INTERVAL, Duration::from_secs(3600));
    }

    #[test]
    fn levels_are_summed_over_their_operations_and_missing_where_the_page_does_not_say() {
        let history = history(&["", PAGE, ""]);
        let of = |name: &str| {
            let levels = history.levels();
            levels.into_iter().find(|level| level.name == name).expect("it is a gauge").values
        };
        assert_eq!(of("unknown"), [None, Some(7.0), None], "an old value is not kept");
        assert_eq!(of("processing"), [None; 3]);
    }

    #[test]
    fn a_page_that_cannot_be_read_changes_nothing() {
        let history = history(&[PAGE, PAGE]);
        let before = (history.series(), history.levels());
        let broken = format!("{PAGE}idempotency_replays_total many\n");
        let error = history.samples().take(&broken, at(30), INTERVAL).expect_err("it cannot be read");
        assert_eq!(error.line, PAGE.lines().count() + 1);
        assert_eq!((history.series(), history.levels()), before);
    }

    #[tokio::test(start_paused = true)]
    async fn the_page_is_sampled_every_ten_seconds() {
        let (history, count) = (MetricsHistory::new(), Arc::new(Mutex::new(0)));
        let counting = count.clone();
        let page = move || {
            let mut count = counting.lock().expect("nobody panics with it");
            *count += 20;
            format!("idempotency_replays_total {count}\n")
        };
        let running = tokio::spawn(history.clone().run(Arc::new(page)));
        tokio::time::sleep(INTERVAL * 3 + INTERVAL / 2).await;
        running.abort();
        assert_eq!(rates_of(&history, "replays"), [2.0, 2.0, 2.0]);
    }
}
