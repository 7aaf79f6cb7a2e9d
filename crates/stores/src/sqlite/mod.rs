//! Records in a SQLite file: one file, no server, every write on disk before it is answered.
//!
//! `schema.rs` has the tables, `queries.rs` all SQL about records, `rows.rs` the meaning of a row, `change.rs` one change, `known.rs` the
//! outcomes that need no look, `job.rs` a change on its way to the writer, `writer.rs` the thread that commits changes in groups, `outbox.rs` hands messages to workers, `phases.rs` writes the phases of commands, `evidence.rs` keeps
//! what others say about commands, `usage.rs` what everybody has used, `place.rs` notices that the file is gone, `clock.rs` that the clock was set, `errors.rs` what SQLite's errors mean.
//! Several processes may use one file, such as a server and an operator's tool beside it.

mod api_keys;
mod change;
mod clock;
pub mod doctor;
mod errors;
mod evidence;
mod job;
mod join;
mod known;
mod outbox;
mod phases;
mod place;
mod queries;
mod reseal;
mod rows;
mod savepoint;
mod schema;
mod usage;
mod waiting;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use semel_core::{
    AuditEntry, AuditId, AuditLog, Backend, Census, Change, Claim, Filter, Item, Note, NoteTaken,
    OperationId, Outbox, Principal, Progress, Record, RecordId, Records, Snapshot, Store, StoreAnswer,
    StoreError, StoreId, StoredRequest, Tier, Timestamp, Unreadable, Upkeep, WaitingFilter, WaitingPage,
};
use semel_faults::Point;
use tokio::sync::{Semaphore, mpsc};

use crate::access::Access;
pub use api_keys::ApiKeys;
use errors::store_error;
use job::{Job, Task, Turn, point_of};
pub use join::{
    apply_within, claim_within, find_command, find_within, has_message, mark, now, open_connection, place_of,
    push_message, store_id, write_anew,
};
use known::KnownRecords;
pub use phases::{has_phase, is_held};
pub use place::Place;
pub use schema::{SCHEMA_VERSION, known_version};
use writer::{Counters, Levers, Writer};

/// How many pages the log has before they are written to the file itself: 16 MiB. Most of them belong to the latest records,
/// which change twice within a moment: the longer they wait, the fewer writes they are.
const LOG_PAGES: u32 = 4096;

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

/// Why a file cannot be used. Each says what to do about it; none has changed the file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file or its folder cannot be read or written.
    #[error("cannot open {path}: {why}; the folder must exist, and both must be writable")]
    Inaccessible {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The file is not a database, or a damaged one.
    #[error("{path} is not an intact SQLite database: {why}; restore it from a backup, do not delete it")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// The file was written by a newer version.
    #[error(
        "{path} has schema version {found}, and this version of Semel knows versions up to {}; \
         run the version of Semel that wrote it, or a newer one",
        known_version()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: u32,
    },
    /// The file was written by an older version, and may only be read.
    #[error(
        "{path} has schema version {found}, and this version of Semel reads version {}. Nothing was changed: run \
         `semel migrate`, or start the gateway, to bring it forward; or read it with the version of Semel that wrote it",
        known_version()
    )]
    OlderSchema {
        /// The file.
        path: PathBuf,
        /// The file's version; 0 if it has no records yet.
        found: u32,
    },
    /// The file system does not do what durability needs.
    #[error("{path} cannot be put into WAL mode (it stays in {mode:?}); use a local disk")]
    NotDurable {
        /// The file.
        path: PathBuf,
        /// The journal mode it stays in.
        mode: String,
    },
    /// A store was here: its log is, and its file is missing or empty.
    #[error(
        "{path} is missing or empty, and its log {left} is there: a store was here. Put its file back beside the log, or restore \
         both from a backup; without its records, retries run again. To begin anew, move the log away"
    )]
    Remains {
        /// The file.
        path: PathBuf,
        /// The log, or the log's index.
        left: PathBuf,
    },
    /// A store was here: its marker is, and its file is missing, empty, or has no records.
    #[error(
        "{path} is missing or has no records, and {marker} says that a store was here. Put the file back, or restore it from a backup; \
         without its records, retries run again. To begin anew, run `semel migrate --create`, or delete the marker"
    )]
    Gone {
        /// The file.
        path: PathBuf,
        /// The file with the store's id.
        marker: PathBuf,
    },
    /// Another store was here.
    #[error(
        "{path} is not the store that was here: {marker} names another one. Put the right file back; without its records, \
         retries run again. To use this one in its place, run `semel migrate --create`, or delete the marker"
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// The file with the store's id.
        marker: PathBuf,
    },
    /// The marker cannot be read or written.
    #[error(
        "{marker}, which says which store is at {path}: {why}; it must be readable, and its folder writable"
    )]
    Marker {
        /// The store's file.
        path: PathBuf,
        /// The file with the store's id.
        marker: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The file was deleted or replaced while it was opened.
    #[error("{path} was deleted or replaced while it was opened: {why}; see which program does that")]
    Moved {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// Another process held the file for too long, the disk is full, or the like.
    #[error("cannot prepare {path}: {why}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
}

/// An [`OpenError`] before it knows its file.
enum Trouble {
    Sqlite(rusqlite::Error),
    Damaged(String),
    NewerSchema(u32),
    OlderSchema(u32),
    NotDurable(String),
    Remains(PathBuf),
    Gone(PathBuf),
    Other(PathBuf),
    Marker(PathBuf, String),
    Moved(String),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Sqlite(error)
    }
}

impl Trouble {
    /// Names the file, and tells the cases apart that want different remedies.
    fn at(self, path: &Path) -> OpenError {
        let path = path.to_owned();
        let error = match self {
            Trouble::NewerSchema(found) => return OpenError::NewerSchema { path, found },
            Trouble::OlderSchema(found) => return OpenError::OlderSchema { path, found },
            Trouble::NotDurable(mode) => return OpenError::NotDurable { path, mode },
            Trouble::Damaged(why) => return OpenError::Damaged { path, why },
            Trouble::Remains(left) => return OpenError::Remains { path, left },
            Trouble::Gone(marker) => return OpenError::Gone { path, marker },
            Trouble::Other(marker) => return OpenError::Other { path, marker },
            Trouble::Marker(marker, why) => return OpenError::Marker { path, marker, why },
            Trouble::Moved(why) => return OpenError::Moved { path, why },
            Trouble::Sqlite(error) => error,
        };
        let why = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                OpenError::Inaccessible { path, why }
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => OpenError::Damaged { path, why },
            _ => OpenError::Failed { path, why },
        }
    }
}

/// Keeps records in a SQLite file.
pub struct SqliteStore {
    writer: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    readers: Readers,
    place: Place,
    levers: Levers,
    counters: Arc<Counters>,
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
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
        SqliteStore::open_with(path, &SqliteOptions::default())
    }

    /// The same, with options.
    pub fn open_with(path: impl AsRef<Path>, options: &SqliteOptions) -> Result<SqliteStore, OpenError> {
        let path = path.as_ref();
        let connect = || connect(path, options).map_err(|trouble| trouble.at(path));
        let mut connection = connect()?;
        check(&connection, path, options).map_err(|trouble| trouble.at(path))?;
        place::adopt(&mut connection, path, options).map_err(|trouble| trouble.at(path))?;
        let place = Place::of(&connection, path).map_err(|trouble| trouble.at(path))?;
        let readers = (0..options.readers.max(1)).map(|_| connect()).collect::<Result<_, _>>()?;
        // The same file from the first connection to the last.
        place.check().map_err(|error| Trouble::Moved(error.to_string()).at(path))?;
        let (sender, jobs) = mpsc::channel(options.queue.max(1));
        let levers = Levers::default();
        levers.obey();
        levers.read_only.store(options.access == Access::Read, Ordering::SeqCst);
        let counters = Arc::new(Counters::default());
        let (own_path, own_options) = (path.to_owned(), options.clone());
        let connect = move || {
            self::connect(&own_path, &own_options).map_err(|trouble| trouble.at(&own_path).to_string())
        };
        let writer = Writer {
            connection,
            connect: Box::new(connect),
            jobs,
            known: KnownRecords::default(),
            place: place.clone(),
            levers: levers.clone(),
            counters: counters.clone(),
            damaged: None,
        };
        let thread = std::thread::Builder::new()
            .name("semel-sqlite".into())
            .spawn(move || writer.run())
            .map_err(|error| OpenError::Failed { path: path.to_owned(), why: error.to_string() })?;
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
impl AuditLog for SqliteStore {
    async fn audit(&self, before: Option<AuditId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.read(move |connection, _| queries::audit(connection, before, limit)).await
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
        let announce =
            move |turn: &mut Turn<'_>| change::announce(turn.connection, operation_id, &items, turn.now);
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

#[async_trait]
impl Upkeep for SqliteStore {
    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        let task = Task::new(move |turn| change::sweep(turn.connection, limit, turn.now));
        self.write(task.held_at(Some(Point::SweepSent))).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        let task = Task::new(move |turn| change::reap(turn.connection, limit, turn.now));
        self.write(task.held_at(Some(Point::ReapSent))).await
    }

    async fn census(&self) -> Result<Vec<Census>, StoreError> {
        self.read(|connection, _| queries::census(connection)).await
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.read(move |connection, now| queries::due_to_reconcile(connection, limit, now)).await
    }
}

#[async_trait]
impl Records for SqliteStore {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        self.read(move |connection, now| {
            Ok(Snapshot { record: queries::find(connection, operation_id)?, now })
        })
        .await
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.read(move |connection, _| queries::notes(connection, operation_id)).await
    }

    /// Noted first, read then: nobody reads it without a note.
    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let note = note.clone();
        // A note that is taken twice is about a request that was read at least once.
        let take_note =
            move |turn: &mut Turn<'_>| change::note_reading(turn.connection, operation_id, &note, turn.now);
        match self.write(Task::new(take_note)).await? {
            0 => Ok(None),
            _ => self.read(move |connection, _| queries::request(connection, operation_id)).await,
        }
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        let filter = filter.clone();
        self.read(move |connection, _| queries::list(connection, &filter)).await
    }

    async fn unreadable(&self, filter: &Filter) -> Result<Vec<Unreadable>, StoreError> {
        let filter = filter.clone();
        self.read(move |connection, _| queries::unreadable(connection, &filter)).await
    }
}

/// A few connections that only read, handed from one blocking task to the next.
struct Readers {
    free: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    fn new(connections: Vec<Connection>) -> Readers {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Readers { free: Arc::new(Mutex::new(connections)), permits }
    }

    async fn with<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let unavailable = |why: &str| StoreError::Unavailable(why.into());
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| unavailable("the store is closed"))?;
        let free = self.free.clone();
        let reading = tokio::task::spawn_blocking(move || {
            // The permit goes with the connection, also if nobody waits for the result any more.
            let _permit = permit;
            let connection = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = connection.ok_or(rusqlite::Error::InvalidQuery)?;
            let result = query(&connection);
            free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            result
        });
        match reading.await {
            Ok(result) => result.map_err(|error| store_error(&error)),
            Err(_) => Err(unavailable("the reading task ended early")),
        }
    }
}

/// A connection with the settings that durability needs.
fn connect(path: &Path, options: &SqliteOptions) -> Result<Connection, Trouble> {
    place::refuse_remains(path, options)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if options.access == Access::Read {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(options.busy_timeout)?;
        connection.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF")?;
        return Ok(connection);
    }
    make_private(path);
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_CREATE)?;
    connection.busy_timeout(options.busy_timeout)?;
    let max_record = i32::try_from(options.max_record_bytes).unwrap_or(i32::MAX);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, max_record)?;
    let mode = wal_mode(&connection, options.busy_timeout)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(Trouble::NotDurable(mode));
    }
    make_durable(&connection)?;
    connection.execute_batch("PRAGMA trusted_schema = OFF")?;
    connection.query_row(&format!("PRAGMA wal_autocheckpoint = {LOG_PAGES}"), [], |_| Ok(()))?;
    if let Some(max) = options.max_file_bytes {
        let page: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        connection.query_row(
            &format!("PRAGMA max_page_count = {}", max / u64::from(page)),
            [],
            |_| Ok(()),
        )?;
    }
    Ok(connection)
}

/// The log reaches the disk at every commit, not merely the operating system, nor (macOS) the disk's cache.
fn make_durable(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;")
}

/// A new file is for its owner only: it will hold responses in the clear. SQLite gives the files beside it the
/// same mode. If it cannot be made, opening it says why.
fn make_private(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let _ = options.open(path);
}

/// Puts the file into WAL mode. Whoever does so first holds it for a moment, and SQLite does not wait here.
fn wal_mode(connection: &Connection, patience: Duration) -> rusqlite::Result<String> {
    let begun = Instant::now();
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begun.elapsed() < patience =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            mode => return mode,
        }
    }
}

/// Refuses a damaged file: one whose index had lost a record would run its command again.
fn check(connection: &Connection, path: &Path, options: &SqliteOptions) -> Result<(), Trouble> {
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if size > options.check_up_to_bytes {
        tracing::warn!(size, "the file is too large to be checked for damage at every start");
        return Ok(());
    }
    match damage(connection)? {
        Some(found) => Err(Trouble::Damaged(found)),
        None => Ok(()),
    }
}

/// What is damaged in our tables and their indexes.
fn damage(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let ours = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'semel!_%' ESCAPE '!'";
    let tables: Vec<String> =
        connection.prepare(ours)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for table in tables {
        let found: String =
            connection.query_row(&format!("PRAGMA integrity_check('{table}')"), [], |row| row.get(0))?;
        if found != "ok" {
            return Ok(Some(format!("{table}: {found}")));
        }
    }
    Ok(None)
}
