//! A lane: one connection, and the task that sends changes over it in groups. Changes that arrive while it is
//! busy share its next round; changes that a round does not settle go into the one after. Invariant: a change
//! is answered only after its transaction is durable, or if nothing was written for it. A change *in doubt*,
//! whose write may have been made, is sent again with its token; if found made, it is written once more
//! unchanged, since a visible commit is not yet a lasting one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use semel_core::{AttemptToken, Event, Record, RecordId, Snapshot, Timestamp};
use semel_faults::Lever;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::clock::{SentAt, StoreClock};
use super::decide::{Decided, JobDecision, decide};
use super::errors::DbError;
use super::executor::Executor;
use super::first;
use super::group::{self, Writes};
use super::job::{JobResult, LockWait, Pending, Work, give_up, settle_failed};
use super::known::{ClaimedRecords, KnownCompletion};
use super::link::{BEGIN_BRIEFLY, Dialer, Link};
use super::locked::WaitingRoom;
use super::queries::{self, Attempted};
use crate::columns::RecordColumns;
use crate::queue_metrics;

/// Maximum number of changes in a group.
const MAX_GROUP: usize = 256;

/// Maximum bytes of responses in a group, not counting the last one: large ones go in smaller groups.
const MAX_GROUP_BYTES: usize = 4 << 20;

/// Maximum number of rounds of a change that others overtake.
const MAX_ROUNDS: usize = 24;

/// Controls for tests.
#[derive(Clone, Default)]
pub(super) struct LaneLevers {
    /// The store's clock, which tests move.
    pub(super) clock: StoreClock,
    /// True to lose the answer of the next write after it is made.
    pub(super) lose_answer: Arc<AtomicBool>,
}

impl LaneLevers {
    /// Lets a test outside of this process use them, in a build with fault points.
    pub(super) fn obey(&self) {
        let levers = self.clone();
        semel_faults::levers(move |lever| {
            match lever {
                Lever::Clock(millis) => levers.clock.passed.store(millis, Ordering::SeqCst),
                Lever::Jump(millis) => levers.clock.jumped.store(millis, Ordering::SeqCst),
                Lever::LoseAnswer => levers.lose_answer.store(true, Ordering::SeqCst),
                // A server has its own read-only setting.
                Lever::ReadOnly(_) | Lever::LoseCommit => return false,
            }
            true
        });
    }
}

/// Numbers of statements and of the changes that they carried.
#[derive(Default)]
pub(super) struct LaneCounters {
    pub(super) writes: AtomicU64,
    pub(super) changes: AtomicU64,
}

/// One of a store's connections at work.
pub(super) struct Lane {
    pub(super) dialer: Dialer,
    pub(super) queue: Arc<Mutex<mpsc::Receiver<Pending>>>,
    pub(super) waiting_room: WaitingRoom,
    pub(super) levers: LaneLevers,
    pub(super) counters: Arc<LaneCounters>,
    pub(super) known: ClaimedRecords,
}

impl Lane {
    /// Works until the store is dropped and every job is done.
    pub(super) async fn run(self) {
        let mut link = None;
        loop {
            let mut group = Vec::new();
            {
                // An idle lane holds the queue; the others are busy.
                let mut queue = self.queue.lock().await;
                match queue.recv().await {
                    Some(job) => group.push(job),
                    None => return,
                }
                let mut bytes = group[0].job.work.bytes();
                while group.len() < MAX_GROUP
                    && bytes < MAX_GROUP_BYTES
                    && let Ok(job) = queue.try_recv()
                {
                    bytes += job.job.work.bytes();
                    group.push(job);
                }
                queue_metrics::length(queue.len());
            }
            group.iter().for_each(|pending| queue_metrics::waited(pending.queued_at.elapsed()));
            self.serve(&mut link, group).await;
        }
    }

    /// Processes every job of a group to its end.
    async fn serve(&self, link: &mut Option<Link>, group: Vec<Pending>) {
        let mut pending: Vec<Pending> =
            group.into_iter().filter_map(|pending| self.waiting_room.admit(pending)).collect();
        let mut rounds = 0;
        while !pending.is_empty() && rounds < MAX_ROUNDS {
            if link.as_ref().is_none_or(|link| !link.is_usable()) {
                // Dropped before the next one is made: a full server then has room for it.
                *link = None;
                match self.dialer.connect().await {
                    Ok(fresh) => *link = Some(fresh),
                    Err(error) => {
                        // A change in doubt is worth waiting for; one that was never sent is not.
                        let now = Instant::now();
                        pending = give_up(pending, &error, |pending| {
                            pending.doubt.as_ref().is_none_or(|doubt| doubt.until <= now)
                        });
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                }
            }
            if let Some(link) = link {
                pending = self.round(link, pending).await;
            }
            let is_held = |pending: &mut Pending| pending.lock.is_some_and(|lock| lock.is_held);
            let held: Vec<Pending> = pending.extract_if(.., is_held).collect();
            for held in held {
                let lock = held.lock.map(|lock| LockWait { is_held: false, ..lock });
                self.waiting_room.locked(Pending { lock, ..held });
            }
            // Each try may use the whole timeout, and leave a waiting process on the server.
            let (now, late) = (Instant::now(), DbError::Conflict("it took too long to find out".to_owned()));
            pending = give_up(pending, &late, |pending| {
                pending.doubt.as_ref().is_some_and(|doubt| doubt.until <= now)
            });
            rounds += 1;
            if rounds > 2 && !pending.is_empty() {
                // Other processes are faster: back off.
                tokio::time::sleep(Duration::from_millis(1 << rounds.min(6))).await;
            }
        }
        let tired = DbError::Conflict("others kept changing the record".to_owned());
        give_up(pending, &tired, |_| true);
    }

    /// Tries every job once. Returns the jobs to retry.
    async fn round(&self, link: &mut Link, pending: Vec<Pending>) -> Vec<Pending> {
        let pending: Vec<Pending> = pending.into_iter().filter(Pending::is_wanted).collect();
        let (alone, together): (Vec<Pending>, Vec<Pending>) = pending.into_iter().partition(|pending| {
            let needs = pending.lock.is_some() || pending.job.work.needs_a_transaction();
            needs || !self.dialer.address.groups
        });
        let mut again = self.at_once(link, together).await;
        if link.is_usable() {
            again = self.changes(link, again).await;
        }
        for one in alone {
            if !link.is_usable() {
                again.push(one);
                continue;
            }
            let wait = if one.lock.is_some() { LockPatience::Brief } else { LockPatience::Group };
            again.extend(self.one(link, one, wait).await);
        }
        again
    }

    /// Sends the jobs that need no read: claims that may be the first, which one INSERT decides, and
    /// completions of this store's own claims. One transaction for both. Returns the jobs that it did not
    /// settle.
    async fn at_once(&self, link: &mut Link, pending: Vec<Pending>) -> Vec<Pending> {
        let mut rest = Vec::with_capacity(pending.len());
        let (mut claims, mut completions) = (Vec::new(), Vec::new());
        for pending in pending {
            match &pending.job.work {
                Work::Claim(claim) if !pending.must_read => {
                    match first::fresh(claim, Timestamp::from_millis(0)) {
                        Some(fresh) => claims.push((pending, fresh)),
                        None => rest.push(pending),
                    }
                }
                Work::Apply(id, change) if !pending.must_read => match self.known.complete(id, change) {
                    Some(known) => completions.push((pending, known)),
                    None => rest.push(pending),
                },
                Work::Claim(_) | Work::Apply(..) | Work::Get(_) | Work::Now => rest.push(pending),
            }
        }
        if claims.is_empty() && completions.is_empty() {
            return rest;
        }
        claims.sort_by_key(|(_, fresh)| *fresh.id.as_bytes());
        completions.sort_by_key(|(_, known)| *known.after.id.as_bytes());
        let written = self.write_at_once(link, &claims, &completions).await;
        self.count(claims.len() + completions.len());
        let (first, completed) = match self.answered(link, written) {
            Ok(written) => written,
            Err(error) => {
                let claims = claims.into_iter().map(|(pending, _)| pending);
                let both = claims.chain(completions.into_iter().map(|(pending, _)| pending)).collect();
                rest.extend(match error.blames_a_record() {
                    true => self.one_by_one(link, both).await,
                    false => settle_failed(both, &error, |_| true),
                });
                return rest;
            }
        };
        for (pending, _) in claims {
            let Work::Claim(claim) = &pending.job.work else { continue };
            match first.get(&claim.attempt.token) {
                Some(now) => {
                    let answer = first::first(claim, *now);
                    if let Some(record) = &answer.record {
                        self.known.remember(record, 1);
                    }
                    pending.reply(Ok(JobResult::Answer(Box::new(answer))));
                }
                None => rest.push(Pending { must_read: true, ..pending }),
            }
        }
        for (pending, known) in completions {
            let Work::Apply(id, change) = &pending.job.work else { continue };
            match completed.get(id) {
                Some(now) => {
                    let answer = known.answer(change, *now);
                    pending.reply(Ok(JobResult::Answer(Box::new(answer))));
                }
                None => rest.push(Pending { must_read: true, ..pending }),
            }
        }
        rest
    }

    async fn write_at_once(
        &self,
        link: &mut Link,
        claims: &[(Pending, Record)],
        completions: &[(Pending, KnownCompletion)],
    ) -> Result<(HashMap<AttemptToken, Timestamp>, HashMap<RecordId, Timestamp>), DbError> {
        let offset = self.offset();
        let fresh: Vec<RecordColumns<'_>> =
            claims.iter().map(|(_, fresh)| RecordColumns::of(fresh)).collect();
        let known: Vec<&KnownCompletion> = completions.iter().map(|(_, known)| known).collect();
        let after: Vec<RecordColumns<'_>> =
            known.iter().map(|known| RecordColumns::of(&known.after)).collect();
        let mut statements = Vec::with_capacity(2);
        if !fresh.is_empty() {
            statements.push(group::first_claims(&fresh, offset));
        }
        if !after.is_empty() {
            statements.push(group::completions(&known, &after, offset));
        }
        let mut results = link.write(&statements).await?;
        let completed = match completions.is_empty() {
            true => HashMap::new(),
            false => group::were_completed(&results.pop().unwrap_or_default()),
        };
        let first = match claims.is_empty() {
            true => HashMap::new(),
            false => group::were_first(&results.pop().unwrap_or_default()),
        };
        Ok((first, completed))
    }

    /// Processes jobs with existing records: read, decide, write. Returns the jobs that it did not settle.
    async fn changes(&self, link: &mut Link, pending: Vec<Pending>) -> Vec<Pending> {
        let (pending, later): (Vec<Pending>, Vec<Pending>) = pending
            .into_iter()
            .partition(|pending| !matches!(pending.job.work, Work::Claim(_)) || pending.must_read);
        if pending.is_empty() {
            return later;
        }
        let mut ids: Vec<RecordId> =
            pending.iter().filter_map(|pending| pending.job.work.record_id()).collect();
        ids.sort_unstable_by_key(|id| *id.as_bytes());
        ids.dedup();
        let asked = self.levers.clock.ask();
        let read = match group::get(link, &ids, asked.offset).await {
            Ok(read) if !self.levers.clock.is_steady(asked, read.now) => {
                let again = match self.levers.clock.look(link).await {
                    Ok(()) => pending,
                    Err(error) => settle_failed(pending, &error, |_| true),
                };
                return again.into_iter().chain(later).collect();
            }
            Ok(read) => read,
            // Nothing was written in this round.
            Err(error) => {
                let not_written = DbError::Unconnected(error.to_string());
                let error = if error.is_ambiguous() { not_written } else { error };
                let again = settle_failed(pending, &error, |_| true);
                return again.into_iter().chain(later).collect();
            }
        };
        let mut decided: Vec<Decided<'_>> = Vec::new();
        let mut again = later;
        let is_change = |pending: &Pending| matches!(pending.job.work, Work::Claim(_) | Work::Apply(..));
        let (fenced, pending): (Vec<Pending>, Vec<Pending>) =
            pending.into_iter().partition(|pending| read.is_fenced && is_change(pending));
        again.extend(self.one_by_one(link, fenced).await);
        let mut written = HashSet::new();
        for pending in pending {
            match decide(pending, &read, &mut written) {
                JobDecision::Now => {}
                JobDecision::Again(pending) => again.push(*pending),
                JobDecision::Write(change) => decided.push(*change),
            }
        }
        let mut writes = Writes::default();
        decided.iter().for_each(|change| change.plan(&mut writes));
        if writes.updates.is_empty() && writes.deletes.is_empty() {
            return again;
        }
        let outcome = writes.write(link, read.now).await;
        drop(writes);
        self.count(decided.len());
        match self.answered(link, outcome) {
            Ok(counted) => {
                for change in decided {
                    if counted.contains(&change.before.record.id) {
                        if let (Work::Apply(_, renewal), Some(record)) =
                            (&change.pending.job.work, &change.answer.record)
                            && matches!(renewal.event(), Event::Renew { .. })
                        {
                            self.known.renewed(record, change.before.revision + 1);
                        }
                        change.pending.reply(Ok(JobResult::Answer(Box::new(change.answer))));
                    } else {
                        again.push(change.pending);
                    }
                }
                again
            }
            Err(error) => {
                let pending: Vec<Pending> = decided.into_iter().map(|change| change.pending).collect();
                if error.blames_a_record() {
                    again.extend(self.one_by_one(link, pending).await);
                } else {
                    again.extend(settle_failed(pending, &error, |_| true));
                }
                again
            }
        }
    }

    /// Sends each job in a transaction of its own, so that one that cannot be written fails alone.
    async fn one_by_one(&self, link: &mut Link, pending: Vec<Pending>) -> Vec<Pending> {
        let mut again = Vec::new();
        for one in pending {
            if link.is_usable() {
                again.extend(self.one(link, one, LockPatience::Brief).await);
            } else {
                again.push(one);
            }
        }
        again
    }

    /// Sends one job in a transaction of its own. Returns it if it must be retried.
    async fn one(&self, link: &mut Link, pending: Pending, wait: LockPatience) -> Option<Pending> {
        let (asked, confirm) = (self.levers.clock.ask(), pending.doubt.is_some());
        let (offset, way) = (asked.offset, Way { confirm, wait, asked, clock: &self.levers.clock });
        let attempted = match &pending.job.work {
            Work::Get(id) => {
                let read = queries::get(link, id, offset).await.map_err(DbError::not_committed);
                return pending.end(read.map(|(found, now)| {
                    let record = found.map(|found| found.record);
                    Some(JobResult::Snapshot(Box::new(Snapshot { record, now })))
                }));
            }
            Work::Now => {
                let read = group::get(link, &[], offset).await.map_err(DbError::not_committed);
                return pending.end(read.map(|read| {
                    Some(JobResult::Snapshot(Box::new(Snapshot { record: None, now: read.now })))
                }));
            }
            Work::Claim(claim) => {
                transaction(link, way, async |link| queries::claim(link, claim, offset).await).await
            }
            Work::Apply(id, change) => {
                transaction(link, way, async |link| queries::apply(link, id, change, offset).await).await
            }
        };
        self.count(1);
        let attempted = self.answered(link, attempted);
        if let (Ok(_), Some(_), Some(id)) = (&attempted, pending.lock, pending.job.work.record_id()) {
            self.waiting_room.free(&id);
        }
        pending.end(attempted.map(|answer| answer.map(|answer| JobResult::Answer(Box::new(answer)))))
    }

    fn offset(&self) -> i64 {
        self.levers.clock.ask().offset
    }

    fn count(&self, changes: usize) {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.changes.fetch_add(changes as u64, Ordering::Relaxed);
    }

    /// Returns the answer to a write, unless a test loses it.
    fn answered<T>(&self, link: &mut Link, answer: Result<T, DbError>) -> Result<T, DbError> {
        if answer.is_ok() && self.levers.lose_answer.swap(false, Ordering::SeqCst) {
            link.lose();
            return Err(DbError::Lost("a test lost the answer".to_owned()));
        }
        answer
    }
}

/// Time for which a transaction waits for locks.
#[derive(Clone, Copy)]
enum LockPatience {
    /// The time of a group.
    Group,
    /// Almost none: a lock was met already.
    Brief,
}

/// Options of a transaction.
struct Way<'a> {
    /// True if the change was sent before with an unknown result. The row is locked and written once more, so
    /// that this commit waits for everything that the earlier one should have waited for.
    confirm: bool,
    wait: LockPatience,
    asked: SentAt,
    clock: &'a StoreClock,
}

/// Runs a change in a transaction. Commits only if the change counted, and if its time was steady.
async fn transaction(
    link: &mut Link,
    way: Way<'_>,
    change: impl AsyncFnOnce(&mut Link) -> Attempted,
) -> Attempted {
    let begun = match way.wait {
        LockPatience::Group => link.begin().await,
        LockPatience::Brief => link.run(BEGIN_BRIEFLY).await,
    };
    begun.map_err(DbError::not_committed)?;
    let attempted = match change(link).await {
        Ok(Some(answer)) if way.confirm => match &answer.record {
            Some(record) => queries::confirm(link, record).await.map(|counted| counted.then_some(answer)),
            None => Ok(Some(answer)),
        },
        other => other,
    };
    match attempted {
        Ok(Some(answer)) if !way.clock.is_steady(way.asked, answer.now) => {
            link.run("ROLLBACK").await.map_err(DbError::not_committed)?;
            way.clock.look(link).await?;
            Ok(None)
        }
        Ok(Some(answer)) => {
            link.run("COMMIT").await?;
            Ok(Some(answer))
        }
        Ok(None) => {
            link.run("ROLLBACK").await.map_err(DbError::not_committed)?;
            Ok(None)
        }
        Err(error) => {
            let _ = link.run("ROLLBACK").await;
            // Without a COMMIT nothing is written.
            Err(error.not_committed())
        }
    }
}
