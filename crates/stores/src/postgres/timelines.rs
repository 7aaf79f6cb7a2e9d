//! The timeline of the server: a number that rises with every failover. A former primary that comes back as it was,
//! such as a paused one that takes its failover manager's lock back, has a lower one, and lacks what was written
//! since. Called by `link.rs` for every connection, and for every answer.
//!
//! Invariant: once an answer came from a timeline, none from a lower one counts while this process lives. A session
//! that can write keeps its timeline: a primary never changes its own, and a standby that is promoted meanwhile only
//! had read-only sessions, which are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::errors::DbError;
use super::executor::Executor;

/// Reads the number of the timeline, which every role may.
const TIMELINE: &str = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint";

/// Highest timeline that was seen, shared by all connections of one store; 0 if none was.
#[derive(Clone, Debug, Default)]
pub(super) struct Timelines(Arc<AtomicU64>);

impl Timelines {
    /// Returns the memory of a store whose timelines begin here.
    pub(super) fn from(lowest: u64) -> Timelines {
        Timelines(Arc::new(AtomicU64::new(lowest)))
    }

    /// Reads the timeline of a new connection, and refuses one that is lower than the highest. Returns `None` if the
    /// server has none, such as a relative of PostgreSQL. Any other refusal is an error: a server that does not answer
    /// may be a former primary.
    pub(super) async fn check(&self, db: &mut impl Executor) -> Result<Option<u64>, DbError> {
        let read = match db.query(TIMELINE, &[]).await {
            Ok(rows) => rows.first().and_then(|row| row.int(0)).and_then(|read| u64::try_from(read).ok()),
            Err(error) if error.is_not_offered() => {
                tracing::debug!(%error, "the database does not say its timeline");
                None
            }
            Err(error) => return Err(DbError::Unconnected(error.to_string())),
        };
        let Some(timeline) = read else { return Ok(None) };
        let before = self.0.fetch_max(timeline, Ordering::SeqCst);
        if timeline > before {
            metrics::gauge!("idempotency_store_timeline").set(timeline as f64);
            if before > 0 {
                tracing::warn!(before, timeline, "the database has failed over: it is on a new timeline");
            }
        }
        if timeline < before {
            return Err(refusal(timeline, before));
        }
        Ok(Some(timeline))
    }

    /// Returns true if answers of this timeline still count.
    pub(super) fn is_current(&self, timeline: Option<u64>) -> bool {
        timeline.is_none_or(|timeline| timeline >= self.0.load(Ordering::SeqCst))
    }
}

fn refusal(timeline: u64, highest: u64) -> DbError {
    metrics::counter!("idempotency_store_timeline_refused_total").increment(1);
    tracing::error!(
        timeline,
        highest,
        "a former primary answers at the store's address: it lacks what was written on the higher timeline, and \
         nothing is sent there. See which server leads; to go on without those records, restart every gateway"
    );
    DbError::Unconnected(format!(
        "a former primary on timeline {timeline} answers, and timeline {highest} was seen: it lacks what was written \
         since; see which server leads, and restart to accept the loss"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::executor::{Cell, SqlRow, SqlValue};

    /// A server on this timeline; 0 is a relative without timelines.
    struct OnTimeline(i64);

    impl Executor for OnTimeline {
        async fn query(&mut self, _: &'static str, _: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, DbError> {
            match self.0 {
                0 => Err(DbError::from_sqlstate("42883", "there is no such function".to_owned())),
                timeline => Ok(vec![SqlRow(vec![Cell::Int(timeline)])]),
            }
        }

        async fn run(&mut self, _: &'static str) -> Result<(), DbError> {
            Ok(())
        }
    }

    /// A server that refuses to say its timeline, with this SQLSTATE.
    struct Refusing(&'static str);

    impl Executor for Refusing {
        async fn query(&mut self, _: &'static str, _: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, DbError> {
            Err(DbError::from_sqlstate(self.0, "refused".to_owned()))
        }

        async fn run(&mut self, _: &'static str) -> Result<(), DbError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn only_a_server_that_offers_no_timelines_has_none() {
        let timelines = Timelines::from(4);
        for code in ["42883", "42501", "0A000"] {
            let read = timelines.check(&mut Refusing(code)).await;
            assert!(matches!(read, Ok(None)), "{code}: {read:?}");
        }
        for code in ["57014", "53200", "55000", "25P02", "XX000", "40001", "55P03", "57P01"] {
            let read = timelines.check(&mut Refusing(code)).await;
            assert!(matches!(read, Err(DbError::Unconnected(_))), "{code}: {read:?}");
        }
    }

    #[tokio::test]
    async fn a_lower_timeline_than_the_highest_is_refused_and_counted() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let timelines = Timelines::default();
        let first = timelines.check(&mut OnTimeline(1)).await.expect("nothing was seen before");
        assert!(timelines.is_current(first));
        timelines.check(&mut OnTimeline(3)).await.expect("it is higher");
        assert!(!timelines.is_current(first), "an older session is not used again");
        assert!(page.render().contains("\nidempotency_store_timeline 3\n"), "{}", page.render());
        let refused = timelines.check(&mut OnTimeline(2)).await.expect_err("it is lower").to_string();
        assert!(refused.contains("timeline 2") && refused.contains("timeline 3"), "{refused}");
        assert!(
            page.render().contains("\nidempotency_store_timeline_refused_total 1\n"),
            "{}",
            page.render()
        );
        let none = timelines.check(&mut OnTimeline(0)).await.expect("a relative has no timeline");
        assert!(none.is_none() && timelines.is_current(none));
        assert!(Timelines::from(4).check(&mut OnTimeline(3)).await.is_err(), "the address has a lowest one");
    }
}
