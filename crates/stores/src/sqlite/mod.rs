//! Records in a SQLite file: one file, no server, every write on disk before it is answered. Several processes
//! may use one file, such as a server and an operator's tool beside it.
//!
//! - Records: `schema.rs` has the tables, `queries.rs` all SQL about records, `rows.rs` the meaning of a row,
//!   `records.rs` shows and ages records, `lists.rs` lists and counts them.
//! - Changes: `change.rs` makes one, `known.rs` settles without a read, `job.rs` carries a change to the
//!   writer, `writer.rs` is the thread that commits changes in groups.
//! - File: `connection.rs` opens it (`open_error.rs` has the reasons for a failure), `place.rs` notices that
//!   the file is gone, `backup.rs` copies it and puts it back, `clock.rs` notices that the clock was set, `errors.rs` interprets errors.
//! - More: `outbox.rs` messages, `phases.rs` phases, `evidence.rs` received evidence, `usage.rs` quotas, `holds.rs` holds and the
//!   fence, `witnesses.rs` what notices a restored file.

mod api_keys;
mod backup;
mod change;
mod clock;
mod connection;
pub mod doctor;
mod errors;
mod evidence;
mod holds;
mod job;
mod join;
mod known;
mod lists;
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
mod witnesses;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use semel_core::{
    Backend, Change, Claim, Formats, Item, OperationId, Outbox, Principal, Progress, RecordId, Snapshot,
    Store, StoreAnswer, StoreError, StoreId, Tier, Timestamp, WaitingFilter, WaitingPage,
};
use semel_faults::Point;
use tokio::sync::mpsc;

use crate::access::Access;
use crate::store_schema::{KnownSchema, StoreSchema};
pub use api_keys::ApiKeys;
pub use backup::{BackupContent, BackupError, back_up, restore};
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
use witnesses::LastBeat;
use writer::{Writer, WriterCounters, WriterLevers};

/// Tier of the store.
pub const TIER: Tier = Tier::One;

/// Options of a SQLite store.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Time limit of a wait for another process that writes.
    pub busy_timeout: Duration,
    /// Maximum number of changes that wait for the writer; more are refused at once.
    pub queue: usize,
    /// Number of reading connections.
    pub readers: usize,
    /// Maximum size of the file in bytes; `None` leaves it to the disk.
    pub max_file_bytes: Option<u64>,
    /// Largest single response, in bytes as stored.
    pub max_record_bytes: u32,
    /// Size up to which a file is checked for damage when it is opened. A damaged index may hide a record,
    /// and its command would run again. Larger files take too long; check those with `PRAGMA integrity_check`
    /// when you can.
    pub check_up_to_bytes: u64,
    /// True to create a new store where an earlier one is gone, or to accept another store in its place.
    /// Commands of the earlier one may run again.
    pub create: bool,
    /// Access of this process to the file.
    pub access: Access,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions {
            // Shorter than a layer's timeout for its store, so that "busy" is answered and not guessed.
            busy_timeout: Duration::from_secs(2),
            queue: 8192,
            readers: 4,
            max_file_bytes: None,
            // Largest body that a policy allows, with its head.
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
    schema: KnownSchema,
    last_beat: LastBeat,
}

/// Numbers of commits and of the changes that they carried: their ratio is the saving by group commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of attempted transactions.
    pub tried: u64,
    /// Number of committed transactions.
    pub commits: u64,
    /// Number of changes that they carried.
    pub changes: u64,
}

impl SqliteStore {
    /// Opens the file. Creates it, or migrates it to this version's schema, if needed.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, SqliteOpenError> {
        SqliteStore::open_with(path, &SqliteOptions::default())
    }

    /// Opens the file with these options.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: &SqliteOptions,
    ) -> Result<SqliteStore, SqliteOpenError> {
        let path = path.as_ref();
        let connect = || connect(path, options).map_err(|trouble| trouble.at(path));
        let mut connection = connect()?;
        check(&connection, path, options).map_err(|trouble| trouble.at(path))?;
        let found = place::adopt(&mut connection, path, options).map_err(|trouble| trouble.at(path))?;
        let schema = KnownSchema::new(found, known_version());
        let place = StoreFiles::of(&connection, path).map_err(|trouble| trouble.at(path))?;
        let readers = (0..options.readers.max(1)).map(|_| connect()).collect::<Result<_, _>>()?;
        // Checks that it is the same file from the first connection to the last.
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
        Ok(SqliteStore {
            writer: Some(sender),
            thread: Some(thread),
            readers,
            place,
            levers,
            counters,
            schema,
            last_beat: LastBeat::default(),
        })
    }

    /// Reads again from which version on the file is readable. Sweeps do this, since an upgrade may be finished meanwhile.
    async fn read_schema_again(&self) {
        match self.read(|connection, _| schema::found(connection)).await {
            Ok(found) => self.schema.learn(found),
            Err(error) => {
                tracing::debug!(%error, "the schema could not be read again");
            }
        }
    }

    /// Moves this store's time into the future, for tests that would otherwise wait for a lease expiry.
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

    /// Makes the next commit and then reports it as failed, for tests, as a failing disk may do.
    #[cfg(feature = "test-levers")]
    pub fn lose_next_commit_answer(&self) {
        self.levers.lose_commit.store(true, Ordering::SeqCst);
    }

    /// Returns the numbers of commits and changes so far.
    pub fn written(&self) -> Written {
        Written {
            tried: self.counters.tried.load(Ordering::Relaxed),
            commits: self.counters.commits.load(Ordering::Relaxed),
            changes: self.counters.changes.load(Ordering::Relaxed),
        }
    }

    /// Queues the change for the writer and waits until it is on disk.
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

/// Migrates the file to this version's schema, as opening it does. Returns the schema that it has now.
pub fn migrate_file(path: &Path) -> Result<StoreSchema, SqliteOpenError> {
    with_file(path, |connection| place::adopt(connection, path, &SqliteOptions::default()))
}

/// Finishes the upgrade of the file, which must be migrated: from now on it is readable from this version on only.
pub fn finish_file(path: &Path) -> Result<StoreSchema, SqliteOpenError> {
    with_file(path, |connection| {
        place::expect_store(connection, path, &SqliteOptions::default())?;
        schema::finish(connection)
    })
}

fn with_file<T>(
    path: &Path,
    work: impl FnOnce(&mut Connection) -> Result<T, Trouble>,
) -> Result<T, SqliteOpenError> {
    let options = SqliteOptions::default();
    let work = || {
        let mut connection = connect(path, &options)?;
        check(&connection, path, &options)?;
        work(&mut connection)
    };
    work().map_err(|trouble| trouble.at(path))
}

impl Drop for SqliteStore {
    /// Lets the writer finish its queue, then closes the file.
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
        self.schema.check()?;
        let claim = claim.clone();
        let task = Task::new(move |turn| {
            let answer = change::claim(turn.connection, &claim, turn.now)?;
            turn.known.claimed(&answer);
            Ok(answer)
        });
        // A claim without a waiting caller would be acquired in vain, and end as unknown.
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

    fn formats(&self) -> Formats {
        self.schema.formats()
    }
}
