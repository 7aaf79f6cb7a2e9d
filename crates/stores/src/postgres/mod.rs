//! Records in PostgreSQL: the store for several gateways, and for services that keep their own data there.
//!
//! The SQL keeps to the common subset of PostgreSQL's relatives: one primary key of bytes, `ON CONFLICT DO
//! NOTHING` without a target, guarded writes whose row count decides, `now()`, and on the path of a request
//! no named locks, sequences, triggers or foreign keys.
//!
//! - Connection: `address.rs`, `hosts.rs`, `password.rs`, `tls.rs`, `link.rs`; `expected.rs` refuses another store,
//!   `timelines.rs` a former primary; `commit_probe.rs` commits for evidence; `clock.rs` notices a clock that was set; `side_link.rs` is a connection beside the lanes; `errors.rs`
//!   interprets errors.
//! - Records: `schema.rs` has the tables, `queries.rs` all SQL about one record, `group.rs` that about many,
//!   `rows.rs` the meaning of a row, `records.rs` and `lists.rs` show records, `upkeep.rs` sweeps and reaps,
//!   `census.rs` counts.
//! - Changes: `lane.rs` sends them in groups and pursues lost answers, `job.rs` and `decide.rs` hold and
//!   decide them, `locked.rs` is the queue for locked records, `known.rs` completes without a read.
//! - More: `holds.rs` holds, `fence.rs` the fence, `witnesses.rs` what notices a restored database, `outbox.rs` messages, `phases.rs` phases, `evidence.rs` received evidence, `usage.rs` quotas,
//!   `doctor.rs` the examination of a database without changes.

mod address;
mod api_keys;
mod census;
mod clock;
mod commit_probe;
mod decide;
pub mod doctor;
mod errors;
mod evidence;
mod executor;
mod expected;
mod fence;
mod first;
mod group;
mod holds;
mod hosts;
mod items;
mod job;
mod known;
mod lane;
mod link;
mod lists;
mod locked;
mod outbox;
mod password;
mod phases;
mod queries;
mod records;
mod reseal;
mod rows;
mod schema;
mod session;
mod side_link;
mod standbys;
mod steps;
mod timelines;
mod tls;
mod upkeep;
mod usage;
mod waiting;
mod witnesses;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use semel_core::{
    Backend, Change, Claim, Formats, Item, OperationId, Outbox, Principal, Progress, RecordId, Snapshot,
    Store, StoreAnswer, StoreError, StoreId, Tier, Timestamp, WaitingFilter, WaitingPage,
};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::access::Access;
use crate::queue_metrics;
use crate::store_schema::{KnownSchema, SchemaAge, StoreSchema, finish_advice};
pub use address::{DatabaseAddress, DatabaseAddressError};
pub use api_keys::PostgresKeys;
pub use clock::{SentAt, StoreClock};
use commit_probe::CommitProbe;
pub use errors::DbError;
pub use executor::{Cell, Executor, SqlRow, SqlValue};
pub use expected::store_id;
use job::{JobResult, Pending, Work};
use lane::{Lane, LaneCounters, LaneLevers};
use link::Dialer;
use locked::WaitingRoom;
pub use phases::{CommandLock, begin_phase, lock_fenced, mark};
pub use queries::{
    Attempted, apply, claim, confirm, has_message, is_claimed_by, lock_command, push_message, settle_first,
};
use schema::SchemaRefusal;
pub use schema::{SCHEMA_VERSION, known_version};
pub use session::{GIVE_LOCKS_BACK, IS_SESSION_UNCHANGED, RESET_LOCK_TIMEOUT, begin};
use side_link::SideLink;
pub use standbys::Standbys;
pub use steps::confirm_phase;

/// Options of a PostgreSQL store.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Number of connections that send changes. More connections send less each: few are fast.
    pub lanes: usize,
    /// Maximum number of changes that wait for a connection; more are refused at once.
    pub queue: usize,
    /// Timeout of an answer of the database. After it, the connection is dropped.
    pub patience: Duration,
    /// Access of this process to the database.
    pub access: Access,
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions { lanes: 3, queue: 8192, patience: Duration::from_secs(10), access: Access::Write }
    }
}

/// Reason why a database cannot be used, with advice.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// The database cannot be reached, or refuses the login.
    #[error(
        "cannot use the PostgreSQL database {address}: {why}; check that the server runs there, and that \
         the address of the store has the right host, port, database and user; a password that is not in it \
         is read from PGPASSWORD or from the file that PGPASSFILE names (~/.pgpass)"
    )]
    Unreachable {
        /// The database, without user or password.
        address: String,
        /// Message of the driver or the server.
        why: String,
    },
    /// A newer version wrote the database, and this one cannot read it.
    #[error(
        "{address} has schema version {found}, readable from version {readable_from} on, and this version of Semel knows versions up \
         to {}; run the version of Semel that wrote it, or a newer one",
        known_version()
    )]
    NewerSchema {
        /// The database.
        address: String,
        /// Schema version of the database.
        found: u32,
        /// Oldest version that can read the database.
        readable_from: u32,
    },
    /// Programs that this version's schema leaves behind may still open the database.
    #[error(
        "{address} has schema version {found}, readable from version {readable_from} on, and the schema of this version of Semel is \
         readable from version {needed} on. Nothing was changed: upgrade every gateway to a version of Semel with schema version \
         {needed}, run `semel migrate --finish` of that version, and then upgrade to this one"
    )]
    NotFinished {
        /// The database.
        address: String,
        /// Schema version of the database.
        found: u32,
        /// Oldest version that can read the database.
        readable_from: u32,
        /// Oldest version that can read the schema of this version.
        needed: u32,
    },
    /// The database has another schema version than the program that is to finish its upgrade.
    #[error(
        "{address} has schema version {found}, and that of this version of Semel is {}. Nothing was changed: {}",
        known_version(),
        finish_advice(*found, known_version())
    )]
    NotFinishable {
        /// The database.
        address: String,
        /// Schema version of the database; 0 if it has no tables yet.
        found: u32,
    },
    /// An older version wrote the database, and this process may only read.
    #[error(
        "{address} has schema version {found}, and this version of Semel reads version {}. Nothing was \
         changed: run `semel migrate`, or start the gateway, to migrate it; or read it with the version of \
         Semel that wrote it",
        known_version()
    )]
    OlderSchema {
        /// The database.
        address: String,
        /// Schema version of the database; 0 if it has no tables yet.
        found: u32,
    },
    /// The tables cannot be created or changed.
    #[error(
        "{address}: cannot migrate it to schema version {}: {why}; run `semel migrate` with a role that may \
         create tables",
        known_version()
    )]
    NotMigrated {
        /// The database.
        address: String,
        /// Message of the server.
        why: String,
    },
    /// TLS cannot be set up, or the server's certificate is not trusted.
    #[error("cannot use the PostgreSQL database {address}: {why}")]
    Tls {
        /// The database, without user or password.
        address: String,
        /// Description of the fault, with the parameter of the address that changes it.
        why: String,
    },
}

/// Keeps records in PostgreSQL.
pub struct PostgresStore {
    jobs: mpsc::Sender<Pending>,
    /// The other end of `jobs`. It ends with the last lane, and work that is sent then is refused.
    queue: Weak<Mutex<mpsc::Receiver<Pending>>>,
    sweeps: SideLink,
    polls: SideLink,
    reports: SideLink,
    probe: CommitProbe,
    outbox: outbox::Connections,
    dialer: Dialer,
    #[cfg_attr(not(feature = "test-levers"), allow(dead_code, reason = "only tests pull them"))]
    levers: LaneLevers,
    counters: Arc<LaneCounters>,
    tier: Arc<std::sync::Mutex<KnownTier>>,
    schema: KnownSchema,
}

/// Tier that the server promised when it was last asked.
pub(super) struct KnownTier {
    tier: Tier,
    asked: tokio::time::Instant,
}

/// Numbers of statements and of the changes that they carried: their ratio is the saving by groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of writing statements.
    pub writes: u64,
    /// Number of changes that they carried.
    pub changes: u64,
}

impl PostgresStore {
    /// Connects, and migrates the database to this version's schema if needed.
    pub async fn open(address: &DatabaseAddress) -> Result<PostgresStore, PostgresOpenError> {
        PostgresStore::open_with(address, &PostgresOptions::default()).await
    }

    /// Opens a store with these options.
    pub async fn open_with(
        address: &DatabaseAddress,
        options: &PostgresOptions,
    ) -> Result<PostgresStore, PostgresOpenError> {
        let (dialer, mut link) = connect(address, options).await?;
        let found = prepare(address, options.access, &mut link).await?;
        let schema = KnownSchema::new(found, known_version());
        learn(address, &dialer, &mut link).await?;
        let tier = upkeep::tier(&mut link).await.map_err(|error| unreachable(address, &error))?;
        let tier = KnownTier { tier, asked: tokio::time::Instant::now() };
        let tier = Arc::new(std::sync::Mutex::new(tier));
        let (jobs, queue) = mpsc::channel(options.queue.max(1));
        let queue = Arc::new(Mutex::new(queue));
        let waiting_room = WaitingRoom::new(jobs.downgrade(), dialer.lock_wait, options.queue);
        let (levers, counters) = (LaneLevers::default(), Arc::new(LaneCounters::default()));
        levers.obey();
        levers.clock.look(&mut link).await.map_err(|error| unreachable(address, &error))?;
        let known = known::ClaimedRecords::default();
        for _ in 0..options.lanes.max(1) {
            let lane = Lane {
                dialer: dialer.for_groups(),
                queue: queue.clone(),
                waiting_room: waiting_room.clone(),
                levers: levers.clone(),
                counters: counters.clone(),
                known: known.clone(),
            };
            tokio::spawn(lane.run());
        }
        let outbox = outbox::Connections::new(&dialer, &levers.clock);
        // Sweeps, worker polls and lists do not wait for one another.
        let sweeps = SideLink::new(dialer.for_groups(), None, levers.clock.clone());
        let polls = SideLink::new(dialer.clone(), Some(link), levers.clock.clone());
        let reports = SideLink::new(dialer.clone(), None, levers.clock.clone());
        let (queue, probe) = (Arc::downgrade(&queue), CommitProbe::new(&dialer));
        Ok(PostgresStore {
            jobs,
            queue,
            sweeps,
            polls,
            reports,
            probe,
            outbox,
            dialer,
            levers,
            counters,
            tier,
            schema,
        })
    }

    /// Moves this store's time into the future, for tests that would otherwise wait for a lease expiry.
    #[cfg(feature = "test-levers")]
    pub fn shift_clock(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.levers.clock.passed.fetch_add(millis, Ordering::SeqCst);
    }

    /// Sets the database's clock forward, for tests, as far as this store can see.
    #[cfg(feature = "test-levers")]
    pub fn jump_clock(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.levers.clock.jumped.fetch_add(millis, Ordering::SeqCst);
    }

    /// Loses the answer of the next write together with its connection, for tests. The write is made.
    #[cfg(feature = "test-levers")]
    pub fn lose_next_answer(&self) {
        self.levers.lose_answer.store(true, Ordering::SeqCst);
    }

    /// Returns the numbers of statements and changes so far.
    pub fn sent(&self) -> Sent {
        Sent {
            writes: self.counters.writes.load(Ordering::Relaxed),
            changes: self.counters.changes.load(Ordering::Relaxed),
        }
    }

    fn known_tier(&self) -> std::sync::MutexGuard<'_, KnownTier> {
        self.tier.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Asks the server for its tier, unless it was asked within this time. Sweeps do this regularly: settings
    /// and standbys change while a gateway runs.
    pub async fn read_tier_again(&self, interval: Duration) {
        {
            let mut known = self.known_tier();
            if known.asked.elapsed() < interval {
                return;
            }
            known.asked = tokio::time::Instant::now();
        }
        match self.sweeps.with(|mut lent| async move { upkeep::tier(lent.link()?).await }).await {
            Ok(now) => {
                let before = std::mem::replace(&mut self.known_tier().tier, now);
                if before < now {
                    tracing::error!(
                        ?before,
                        ?now,
                        "the database promises less than it did: see its durability settings"
                    );
                } else if now < before {
                    tracing::info!(?before, ?now, "the database promises more than it did");
                }
            }
            Err(error) => tracing::debug!(%error, "the database does not say what it promises"),
        }
    }

    /// Reads again from which version on the database is readable. Sweeps do this, since an upgrade may be finished meanwhile.
    pub async fn read_schema_again(&self) {
        match self.sweeps.with(|mut lent| async move { schema::found(lent.link()?).await }).await {
            Ok(found) => self.schema.learn(found),
            Err(error) => {
                tracing::debug!(%error, "the schema could not be read again");
            }
        }
    }

    /// Queues the work for a lane and waits until it is done. Queued work is done even if its caller leaves.
    async fn send(&self, work: Work) -> Result<JobResult, StoreError> {
        let (reply, done) = oneshot::channel();
        let sent = self.jobs.try_send(Pending::new(work, reply));
        // An idle lane holds the queue, and takes the work at once. If all are busy, or hang, none would tell.
        if let Some(queue) = self.queue.upgrade()
            && let Ok(queue) = queue.try_lock()
        {
            queue_metrics::length(queue.len());
        }
        sent.map_err(|error| {
            let why = match error {
                mpsc::error::TrySendError::Full(_) => "too many changes wait for the database",
                mpsc::error::TrySendError::Closed(_) => "the store is closed",
            };
            StoreError::Unavailable(why.into())
        })?;
        done.await.unwrap_or_else(|_| Err(StoreError::Ambiguous("the store ended during the write".into())))
    }

    async fn answer(&self, work: Work) -> Result<StoreAnswer, StoreError> {
        match self.send(work).await? {
            JobResult::Answer(answer) => Ok(*answer),
            JobResult::Snapshot(_) => Err(StoreError::Ambiguous("a lane answered something else".into())),
        }
    }

    async fn snapshot(&self, work: Work) -> Result<Snapshot, StoreError> {
        match self.send(work).await? {
            JobResult::Snapshot(snapshot) => Ok(*snapshot),
            JobResult::Answer(_) => Err(StoreError::Unavailable("a lane answered something else".into())),
        }
    }
}

/// Migrates a database to this version's schema. Returns the schema that it has now.
pub async fn migrate_database(address: &DatabaseAddress) -> Result<StoreSchema, PostgresOpenError> {
    let (_, mut link) = connect(address, &PostgresOptions::default()).await?;
    schema::migrate(&mut link).await.map_err(|refusal| refused(address, refusal))
}

/// Finishes the upgrade of a database, which must be migrated: from now on it is readable from this version on only.
pub async fn finish_database(address: &DatabaseAddress) -> Result<StoreSchema, PostgresOpenError> {
    let (_, mut link) = connect(address, &PostgresOptions::default()).await?;
    schema::finish(&mut link).await.map_err(|refusal| refused(address, refusal))
}

/// Returns true if the database has the tables of any version of Semel. Changes nothing.
pub async fn has_tables(address: &DatabaseAddress) -> Result<bool, PostgresOpenError> {
    let (_, mut link) = connect(address, &PostgresOptions::default()).await?;
    let found = schema::found(&mut link).await.map_err(|error| unreachable(address, &error))?;
    Ok(found.version > 0)
}

async fn connect(
    address: &DatabaseAddress,
    options: &PostgresOptions,
) -> Result<(Dialer, link::Link), PostgresOpenError> {
    let tls =
        tls::Tls::new(address).map_err(|why| PostgresOpenError::Tls { address: address.describe(), why })?;
    let dialer = Dialer::new(address.clone(), tls, options.patience);
    let link = dialer.connect().await.map_err(|error| unreachable(address, &error))?;
    Ok((dialer, link))
}

/// Migrates the tables to this version's schema; with read access, refuses an older schema. Returns the schema that they have now.
async fn prepare(
    address: &DatabaseAddress,
    access: Access,
    link: &mut link::Link,
) -> Result<StoreSchema, PostgresOpenError> {
    if access == Access::Write {
        return schema::migrate(link).await.map_err(|refusal| refused(address, refusal));
    }
    let found = schema::found(link).await.map_err(|error| unreachable(address, &error))?;
    match found.age(known_version()) {
        SchemaAge::Current | SchemaAge::Ahead => Ok(found),
        SchemaAge::Older => {
            Err(PostgresOpenError::OlderSchema { address: address.describe(), found: found.version })
        }
        SchemaAge::Unreadable => Err(refused(address, SchemaRefusal::Unreadable(found))),
    }
}

/// Returns the error for a schema that is not changed, with advice.
fn refused(address: &DatabaseAddress, refusal: SchemaRefusal) -> PostgresOpenError {
    let address = address.describe();
    match refusal {
        SchemaRefusal::Unreadable(StoreSchema { version: found, readable_from }) => {
            PostgresOpenError::NewerSchema { address, found, readable_from }
        }
        SchemaRefusal::NotFinished { found: StoreSchema { version: found, readable_from }, needed } => {
            PostgresOpenError::NotFinished { address, found, readable_from, needed }
        }
        SchemaRefusal::NotFinishable(found) => {
            PostgresOpenError::NotFinishable { address, found: found.version }
        }
        SchemaRefusal::Failed(error) => PostgresOpenError::NotMigrated { address, why: error.to_string() },
    }
}

/// Remembers the identity of this store: no later connection may lead to another.
async fn learn(
    address: &DatabaseAddress,
    dialer: &Dialer,
    link: &mut link::Link,
) -> Result<(), PostgresOpenError> {
    dialer.expected.learn(link).await.map_err(|error| unreachable(address, &error))
}

fn unreachable(address: &DatabaseAddress, error: &DbError) -> PostgresOpenError {
    let (address, why) = (address.describe(), error.to_string());
    match error {
        DbError::Tls(_) => PostgresOpenError::Tls { address, why },
        _ => PostgresOpenError::Unreachable { address, why },
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        self.schema.check()?;
        self.answer(Work::Claim(Box::new(claim.clone()))).await
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
        self.answer(Work::Apply(*id, Box::new(change.clone()))).await
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        self.snapshot(Work::Get(*id)).await
    }

    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        let principal = principal.clone();
        self.polls
            .with(move |mut lent| async move { records::find_own(&mut lent, operation_id, &principal).await })
            .await
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        let filter = filter.clone();
        self.polls
            .with(move |mut lent| async move {
                let offset = lent.offset;
                waiting::page(lent.link()?, &filter, offset).await
            })
            .await
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        let items = items.to_vec();
        self.polls
            .with(move |mut lent| async move {
                let offset = lent.offset;
                items::announce(lent.link()?, operation_id, &items, offset).await
            })
            .await
    }

    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        self.polls
            .with(move |mut lent| async move { steps::progress(lent.link()?, operation_id).await })
            .await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.snapshot(Work::Now).await?.now)
    }

    fn tier(&self) -> Tier {
        self.known_tier().tier
    }

    fn formats(&self) -> Formats {
        self.schema.formats()
    }
}

#[async_trait]
impl Backend for PostgresStore {
    async fn store_id(&self) -> Result<Option<StoreId>, StoreError> {
        self.reports.with(move |mut lent| async move { store_id(lent.link()?).await.map(Some) }).await
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        Some(self)
    }
}
