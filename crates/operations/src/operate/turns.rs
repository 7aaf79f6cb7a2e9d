//! Turns of operators' reads that look at many records: lists, counts, and pages of exports. A few are made at a time,
//! and the others wait in the order of their arrival, so that operators and their programs leave the store to commands.
//!
//! Invariant: an export takes a turn for each page, and so never keeps a list from its turn for longer than a page.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Largest number of concurrent reads of many records.
const MAX_READS: usize = 2;
/// Largest number of requests that wait for their turn. Over it, a request is refused at once.
const MAX_WAITING: usize = 16;
/// Longest wait for a turn.
const TURN_TIME: Duration = Duration::from_secs(5);
/// Largest number of concurrent exports. Each has a page in memory while its client reads.
const MAX_EXPORTS: usize = 8;

/// Turns of one process.
pub struct ReadTurns {
    reads: Arc<Semaphore>,
    waiting: Semaphore,
    exports: Arc<Semaphore>,
}

/// Turn to read. It ends when it is dropped.
#[derive(Debug)]
pub struct ReadTurn {
    _permit: OwnedSemaphorePermit,
}

/// Place among the exports. It is given back when it is dropped.
#[derive(Debug)]
pub struct ExportPlace {
    _permit: OwnedSemaphorePermit,
}

/// Reason for which a request gets no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTurn {
    /// Too many requests wait already.
    Crowded,
    /// The wait was too long.
    TooLate,
    /// Too many exports are made, and none of them ended in time.
    TooManyExports,
}

impl fmt::Display for NoTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = TURN_TIME.as_secs();
        match self {
            NoTurn::Crowded => {
                write!(f, "{MAX_READS} lists, counts or exports read now, and {MAX_WAITING} others wait")
            }
            NoTurn::TooLate => write!(
                f,
                "{MAX_READS} lists, counts or exports read at a time, and the turn of this one did not come within {wait} s"
            ),
            NoTurn::TooManyExports => {
                write!(f, "{MAX_EXPORTS} exports are made now, and none of them ended within {wait} s")
            }
        }
    }
}

impl Default for ReadTurns {
    fn default() -> ReadTurns {
        ReadTurns {
            reads: Arc::new(Semaphore::new(MAX_READS)),
            waiting: Semaphore::new(MAX_WAITING),
            exports: Arc::new(Semaphore::new(MAX_EXPORTS)),
        }
    }
}

impl ReadTurns {
    /// Waits for a turn, for a bounded time.
    ///
    /// # Errors
    /// Fails if too many wait already, or if the turn does not come in time.
    pub async fn take(&self) -> Result<ReadTurn, NoTurn> {
        let permit = self.wait_for(&self.reads, NoTurn::TooLate).await?;
        Ok(ReadTurn { _permit: permit })
    }

    /// Waits for a place among the exports, for a bounded time.
    ///
    /// # Errors
    /// Fails if too many wait already, or if no place is free in time.
    pub async fn open_export(&self) -> Result<ExportPlace, NoTurn> {
        let permit = self.wait_for(&self.exports, NoTurn::TooManyExports).await?;
        Ok(ExportPlace { _permit: permit })
    }

    /// Waits for the turn of a further page, however long that takes: its answer has begun, and turns come in order.
    pub async fn take_next(&self, _: &ExportPlace) -> ReadTurn {
        ReadTurn { _permit: permit(&self.reads).await }
    }

    async fn wait_for(
        &self,
        places: &Arc<Semaphore>,
        too_late: NoTurn,
    ) -> Result<OwnedSemaphorePermit, NoTurn> {
        // Nobody is overtaken: a place is free at once only if nobody waits for it.
        if let Ok(permit) = places.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| NoTurn::Crowded)?;
        timeout(TURN_TIME, permit(places)).await.map_err(|_| too_late)
    }
}

async fn permit(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    places.clone().acquire_owned().await.expect("it is never closed")
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;
    use tokio::time::Instant;

    use super::*;

    async fn taken(turns: &ReadTurns) -> ReadTurn {
        turns.take().await.expect("it is free")
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_read_at_a_time_and_the_next_waits_for_the_end_of_one() {
        let turns = Arc::new(ReadTurns::default());
        let (first, _second) = (taken(&turns).await, taken(&turns).await);
        let waiting = turns.clone();
        let third = tokio::spawn(async move { waiting.take().await });
        yield_now().await;
        assert!(!third.is_finished());
        drop(first);
        assert!(third.await.expect("it does not panic").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_a_turn_ends_after_its_time() {
        let turns = ReadTurns::default();
        let _both = (taken(&turns).await, taken(&turns).await);
        let start = Instant::now();
        assert_eq!(turns.take().await.err(), Some(NoTurn::TooLate));
        assert_eq!(start.elapsed(), TURN_TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn over_the_bound_of_those_that_wait_a_request_is_refused_at_once() {
        let turns = Arc::new(ReadTurns::default());
        let _both = (taken(&turns).await, taken(&turns).await);
        let waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| {
                let turns = turns.clone();
                tokio::spawn(async move { turns.take().await })
            })
            .collect();
        yield_now().await;
        let start = Instant::now();
        assert_eq!(turns.take().await.err(), Some(NoTurn::Crowded));
        assert_eq!(start.elapsed(), Duration::ZERO);
        for waiting in waiting {
            assert_eq!(waiting.await.expect("it does not panic").err(), Some(NoTurn::TooLate));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_has_its_turn_between_two_pages_of_an_export() {
        let turns = Arc::new(ReadTurns::default());
        let _other = taken(&turns).await;
        let export = turns.open_export().await.expect("a place is free");
        let page = turns.take_next(&export).await;
        let listing = turns.clone();
        let list = tokio::spawn(async move { listing.take().await });
        yield_now().await;
        let exporting = turns.clone();
        drop(page);
        let next = tokio::spawn(async move { exporting.take_next(&export).await });
        yield_now().await;
        assert!(list.is_finished() && !next.is_finished(), "the list came first");
        drop(list.await.expect("it does not panic"));
        next.await.expect("it does not panic");
    }

    #[tokio::test(start_paused = true)]
    async fn exports_have_a_bound_of_their_own_and_the_next_waits_for_a_place() {
        let turns = Arc::new(ReadTurns::default());
        let mut exports = Vec::new();
        for _ in 0..MAX_EXPORTS {
            exports.push(turns.open_export().await.expect("a place is free"));
        }
        assert_eq!(turns.open_export().await.err(), Some(NoTurn::TooManyExports));
        assert!(turns.take().await.is_ok(), "an export whose client reads has no turn");
        let waiting = turns.clone();
        let next = tokio::spawn(async move { waiting.open_export().await });
        yield_now().await;
        exports.pop();
        assert!(next.await.expect("it does not panic").is_ok());
    }
}
