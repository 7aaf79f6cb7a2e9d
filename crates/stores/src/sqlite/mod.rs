//! Records in a SQLite file: one file, no server, every write on disk before it is answered.
//!
//! `connection.rs` opens it (`open_error.rs` says why it cannot), `schema.rs` has the tables, `queries.rs` all SQL about records, `records.rs` shows and ages them, `rows.rs` the meaning of a row, `change.rs` one change, `known.rs` the
//! outcomes that need no look, `job.rs` a change on its way to the writer, `writer.rs` the thread that commits changes in groups, `outbox.rs` hands messages to workers, `phases.rs` writes the phases of commands, `evidence.rs` keeps
//! what others say about commands, `usage.rs` what everybody has used, `place.rs` notices that the file is gone, `clock.rs` that the clock was set, `errors.rs` what SQLite's errors mean.
//! Several processes may use one file, such as a server and an operator's tool beside it.

mod api_keys;
mod change;
mod clock;
mod connection;
pub mod doctor;
mod errors;
mod evidence;
mod job;
mod join;
mod known;
mod open_error;
mod outbox;
mod phases;
mod place;
mod queries;
mod readers;
mod records;
mod reseal;
mod rows;
mod savepoint;
mod schema;
mod trouble;
mod usage;
mod waiting;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use semel_core::{
    Backend, Change, Claim, Item, OperationId, Outbox, Principal, Progress, RecordId, Snapshot, Store,
    StoreAnswer, StoreError, StoreId, Tier, Timestamp, WaitingFilter, WaitingPage,
};
use semel_faults::Point;
use tokio::sync::mpsc;

use crate::access::Access;
pub use api_keys::ApiKeys;
use connection::{check, connect};
use job::{Job, Task, WriteTransaction, point_of};
pub use join::{
    apply_within, claim_within, find_command, find_within, has_message, mark, now, open_connection, place_of,
    push_message, store_id, write_anew,
};
use known::ClaimedRecords;
pub use open_error::SqliteOpenError;
pub use phases::{has_phase, is_held};
pub use place::StoreFiles;
use readers::Readers;
pub use schema::{SCHEMA_VERSION, known_version};
use trouble::Trouble;
use writer::{Writer, WriterCounters, WriterLevers};

/// What the store promises.
pub const TIER: Tier = Tier::One;

/// How a file is used.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// How long to wait for another process that writes.
    pub busy_timeout: Duration,
    /// How many changes may wait for the writer; more are refused at once.
    pub queue: usize,
    /// How many connections read.
    pub readers: usize,
    /// The file may not grow beyond this many bytes; `None` leaves it to the disk.
    pub max_file_bytes: Option<u64>,
    /// The largest single response, in bytes as stored.
    pub max_record_bytes: u32,
    /// A file up to this many bytes is checked for damage when it is opened. A damaged index may hide a record,
    /// and what is hidden would be run again. Larger files take too long; check those with `PRAGMA
    /// integrity_check` when you can.
    pub check_up_to_bytes: u64,
    /// Makes a new store where one was before and is gone, or takes the one that is there in its place. Its commands may run
    /// again.
    pub create: bool,
    /// What this process may do with the file.
    pub access: Access,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions {
            // Shorter than a layer waits for its store, so that "busy" is answered and not guessed.
            busy_timeout: Duration::from_secs(2),
            queue: 8192,
            readers: 4,
            max_file_bytes: None,
            // The largest body that a policy allows, with its head.
            max_record_bytes: 66 << 20,
            check_up_to_bytes: 1 << 30,
            create: false,
            access: Access::Write,
        }
    }
}

/// Keeps records in a SQLite file.
pub struct SqliteStore {
    writer: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    readers: Readers,
    place: StoreFiles,
    levers: WriterLevers,
    counters: Arc<WriterCounters>,
}

/// How many commits carried how many changes: the second by the first is what group commit saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Transactions that were tried, whatever came of them.
    pub tried: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Changes that they carried.
    pub changes: u64,
}

impl SqliteStore {
    /// Opens the file, creating it or bringing it to this version's schema where needed.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, SqliteOpenError> {
        SqliteStore::open_with(path, &SqliteOptions::default())
    }

    /// The same, with options.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: &SqliteOptions,
    ) -> Result<SqliteStore, SqliteOpenError> {
        let path = path.as_ref();
        let connect = || connect(path, options).map_err(|trouble| trouble.at(path));
        let mut connection = connect()?;
        check(&connection, path, options).map_err(|trouble| trouble.at(path))?;
        place::adopt(&mut connection, path, options).map_err(|trouble| trouble.at(path))?;
        let place = StoreFiles::of(&connection, path).map_err(|trouble| trouble.at(path))?;
        let readers = (0..options.readers.max(1)).map(|_| connect()).collect::<Result<_, _>>()?;
        // The same file from the first connection to the last.
        place.check().map_err(|error| Trouble::Moved(error.to_string()).at(path))?;
        let (sender, jobs) = mpsc::channel(options.queue.max(1));
        let levers = WriterLevers::default();
        levers.obey();
        levers.read_only.store(options.access == Access::Read, Ordering::SeqCst);
        let counters = Arc::new(WriterCounters::default());
        let (own_path, own_options) = (path.to_owned(), options.clone());
        let connect = move || {
            self::connect(&own_path, &own_options).map_err(|trouble| trouble.at(&own_path).to_string())
        };
        let writer = Writer {
            connection,
            connect: Box::new(connect),
            jobs,
            known: ClaimedRecords::default(),
            place: place.clone(),
            levers: levers.clone(),
            counters: counters.clone(),
            damaged: None,
        };
        let thread = std::thread::Builder::new()
            .name("semel-sqlite".into())
            .spawn(move || writer.run())
            .map_err(|error| SqliteOpenError::Failed { path: path.to_owned(), why: error.to_string() })?;
        let readers = Readers::new(readers);
        Ok(SqliteStore { writer: Some(sender), thread: Some(thread), readers, place, levers, counters })
    }

    /// Moves this store's present into the future, for tests: nobody has to wait for a lease to end.
    #[cfg(feature = "test-levers")]
    pub fn shift_clock(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.levers.clock_offset.fetch_add(millis, Ordering::SeqCst);
    }

    /// Sets the machine's clock forward, for tests, as far as this store can see.
    #[cfg(feature = "test-levers")]
    pub fn jump_clock(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.levers.jumped.fetch_add(millis, Ordering::SeqCst);
    }

    /// Sets the machine's clock back, for tests.
    #[cfg(feature = "test-levers")]
    pub fn jump_clock_back(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.levers.jumped.fetch_sub(millis, Ordering::SeqCst);
    }

    /// The next commit is made and then reported as failed, for tests, as a failing disk may do.
    #[cfg(feature = "test-levers")]
    pub fn lose_next_commit_answer(&self) {
        self.levers.lose_commit.store(true, Ordering::SeqCst);
    }

    /// How many commits carried how many changes so far.
    pub fn written(&self) -> Written {
        Written {
            tried: self.counters.tried.load(Ordering::Relaxed),
            commits: self.counters.commits.load(Ordering::Relaxed),
            changes: self.counters.changes.load(Ordering::Relaxed),
        }
    }

    /// Hands the change to the writer and waits until it is on disk.
    async fn write<T: Send + 'static>(&self, task: Task<T>) -> Result<T, StoreError> {
        let (job, answer) = task.job();
        let writer =
            self.writer.as_ref().ok_or_else(|| StoreError::Unavailable("the store is closed".into()))?;
        writer.try_send(job).map_err(|error| {
            let why = match error {
                mpsc::error::TrySendError::Full(_) => "too many changes wait to be written",
                mpsc::error::TrySendError::Closed(_) => "the writer has ended",
            };
            StoreError::Unavailable(why.into())
        })?;
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Ambiguous("the writer ended during the write".into())))
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection, Timestamp) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let levers = self.levers.clone();
        self.place.check()?;
        self.readers
            .with(move |connection| {
                let now = levers.passed(clock::peek(connection, levers.jumped())?);
                query(connection, now)
            })
            .await
    }
}

impl Drop for SqliteStore {
    /// Lets the writer finish what it was given, then closes the file.
    fn drop(&mut self) {
        self.writer = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl Backend for SqliteStore {
    async fn store_id(&self) -> Result<Option<StoreId>, StoreError> {
        self.read(|connection, _| join::store_id(connection).map(Some)).await
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        Some(self)
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        let claim = claim.clone();
        let task = Task::new(move |turn| {
            let answer = change::claim(turn.connection, &claim, turn.now)?;
            turn.known.claimed(&answer);
            Ok(answer)
        });
        // A claim that nobody waits for would be acquired for nobody, and end as an unknown.
        self.write(task.needs_caller().held_at(Some(Point::ClaimSent))).await
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
        let (id, change) = (*id, change.clone());
        let (is_repeatable, point) = (change.event().is_repeatable(), point_of(change.event()));
        let task = Task::new(move |turn| {
            if let Some(answer) = turn.known.settle(turn.connection, &id, &change, turn.now)? {
                return Ok(answer);
            }
            let answer = change::apply(turn.connection, &id, &change, turn.now)?;
            turn.known.applied(&change, &answer);
            Ok(answer)
        });
        self.write(task.repeatable(is_repeatable).held_at(point)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        let id = *id;
        self.read(move |connection, now| Ok(Snapshot { record: queries::get(connection, &id)?, now })).await
    }

    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        let principal = principal.clone();
        self.read(move |connection, now| {
            Ok(Snapshot { record: queries::find_own(connection, operation_id, &principal)?, now })
        })
        .await
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        let filter = filter.clone();
        self.read(move |connection, now| waiting::page(connection, &filter, now)).await
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        let items = items.to_vec();
        let announce = move |turn: &mut WriteTransaction<'_>| {
            change::announce(turn.connection, operation_id, &items, turn.now)
        };
        self.write(Task::new(announce)).await.map(drop)
    }

    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        self.read(move |connection, _| queries::progress(connection, operation_id)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.read(|_, now| Ok(now)).await
    }

    fn tier(&self) -> Tier {
        TIER
    }
}
