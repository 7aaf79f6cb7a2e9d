//! A change on its way to the writing thread, and its answer on the way back.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use semel_core::{Event, StoreError, Timestamp};
use semel_faults::Point;
use tokio::sync::oneshot;

use super::errors::ambiguous;
use super::known::ClaimedRecords;

/// The transaction that a change runs in.
pub(super) struct WriteTransaction<'a> {
    pub(super) connection: &'a Connection,
    /// The store's time.
    pub(super) now: Timestamp,
    pub(super) known: &'a mut ClaimedRecords,
}

/// The statements of a change.
type ChangeStatements<T> = dyn Fn(&mut WriteTransaction<'_>) -> Result<T, StoreError> + Send;

/// A change to the file. The writer runs it again, alone, if the transaction that it shared with others
/// fails.
pub(super) struct Task<T> {
    run: Box<ChangeStatements<T>>,
    is_repeatable: bool,
    needs_caller: bool,
    point: Option<Point>,
}

impl<T> Task<T> {
    /// Returns a change that may be made twice: the second time changes nothing.
    pub(super) fn new(
        run: impl Fn(&mut WriteTransaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Task<T> {
        Task { run: Box::new(run), is_repeatable: true, needs_caller: false, point: None }
    }

    /// Sets if the change may be made twice. If not, a commit in doubt stays in doubt.
    pub(super) fn repeatable(self, is_repeatable: bool) -> Task<T> {
        Task { is_repeatable, ..self }
    }

    /// Drops the change if its caller has left before it begins.
    pub(super) fn needs_caller(self) -> Task<T> {
        Task { needs_caller: true, ..self }
    }

    /// Sets the point at which a test holds the change before it is made; the point after its commit follows
    /// from it.
    pub(super) fn held_at(self, point: Option<Point>) -> Task<T> {
        Task { point, ..self }
    }

    /// Returns the job of this task, and the receiver of its answer.
    pub(super) fn job(self) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>)
    where
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        (Box::new(Pending { task: self, done: None, queued_at: Instant::now(), reply }), answer)
    }
}

/// A task whose result type the writer does not know.
pub(super) trait Job: Send {
    /// Makes the change and keeps its result.
    fn run(&mut self, turn: &mut WriteTransaction<'_>) -> Result<(), StoreError>;

    /// Answers the caller: with the kept result, or with this error.
    fn answer(self: Box<Self>, result: Result<(), StoreError>);

    /// Returns true if the change may be made twice.
    fn is_repeatable(&self) -> bool;

    /// Returns true if the caller has left, and the change must not be made without one. Checked only once
    /// the transaction has begun, since the wait for it takes the time.
    fn is_orphaned(&self) -> bool;

    /// Returns the point at which a test holds the change before it is made.
    fn point(&self) -> Option<Point>;

    /// Returns the time for which the change has waited for the writer.
    fn waited(&self) -> Duration;
}

struct Pending<T> {
    task: Task<T>,
    done: Option<T>,
    queued_at: Instant,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send> Job for Pending<T> {
    fn run(&mut self, turn: &mut WriteTransaction<'_>) -> Result<(), StoreError> {
        self.done = Some((self.task.run)(turn)?);
        Ok(())
    }

    fn answer(self: Box<Self>, result: Result<(), StoreError>) {
        let Pending { done, reply, .. } = *self;
        let answer = result.and_then(|()| done.ok_or_else(|| ambiguous("the change has no result")));
        // A caller that has left does not need its answer; the change stands.
        let _ = reply.send(answer);
    }

    fn is_repeatable(&self) -> bool {
        self.task.is_repeatable
    }

    fn is_orphaned(&self) -> bool {
        self.task.needs_caller && self.reply.is_closed()
    }

    fn point(&self) -> Option<Point> {
        self.task.point
    }

    fn waited(&self) -> Duration {
        self.queued_at.elapsed()
    }
}

/// Returns the point at which a test holds a change of a record before it is made.
pub(super) fn point_of(event: &Event) -> Option<Point> {
    match event {
        Event::Start { .. } => Some(Point::StartSent),
        Event::Renew { .. } => Some(Point::RenewalSent),
        Event::Complete { .. } | Event::Fail { .. } => Some(Point::SettlementSent),
        Event::Resolve { .. } => Some(Point::VerdictSent),
        _ => None,
    }
}

/// Returns the point after the commit of a change that is held at `sent`.
pub(super) fn committed(sent: Point) -> Point {
    match sent {
        Point::ClaimSent => Point::ClaimCommitted,
        Point::StartSent => Point::StartCommitted,
        Point::RenewalSent => Point::RenewalCommitted,
        Point::VerdictSent => Point::VerdictCommitted,
        Point::SweepSent => Point::SweepCommitted,
        Point::ReapSent => Point::ReapCommitted,
        Point::EvidenceSent => Point::EvidenceCommitted,
        Point::ResealSent => Point::ResealCommitted,
        _ => Point::SettlementCommitted,
    }
}
