//! Sealed stores conform. Their data cannot be read without its key, does not open in another place, and can
//! be resealed under another key while other processes use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use semel_core::reconcile::{Heard, LookUpAnswer};
use semel_core::reseal::{KeyUse, Resealed, ResealedBatch};
use semel_core::vault::{Sealed, SealedKind, Sealing};
use semel_core::{
    Backend, Change, Claim, Decision, Evidence, Fence, Holds, OperationId, OperationName, Plaintext,
    Principal, Reason, Record, RecordId, Records, Statement, Store, StoredRequest, StoredResult, Vault,
    VaultError, Waiting, WaitingFilter,
};
use semel_stores::encryption::{AesVault, Rotated, Rotation, RotationStep, SealedStore};
use semel_stores::{MemoryStore, PostgresStore, SqliteStore};
use semel_testkit::conformance::{Capabilities, Subject};
use semel_testkit::postgres::Database;
use semel_testkit::{ManualClock, sample};
use tempfile::TempDir;

use crate::postgres::postgres;

const CANARY: &str = "canary-7f3a9c";
const HOUR: Duration = Duration::from_secs(3600);

/// Returns a vault that seals under the first of these keys.
pub(crate) fn vault(ids: &[&str]) -> Arc<dyn Vault> {
    let key = |id: &&str| ((*id).to_owned(), [id.as_bytes()[0]; 32]);
    Arc::new(AesVault::new(ids[0], ids.iter().map(key)).expect("the keys are good"))
}

struct SealedMemory {
    store: Arc<SealedStore<MemoryStore>>,
    clock: ManualClock,
}

fn memory() -> SealedMemory {
    let clock = ManualClock::new();
    let inner = Arc::new(MemoryStore::with_clock(clock.clone()));
    SealedMemory { store: Arc::new(SealedStore::new(inner, vault(&["a"]))), clock }
}

#[async_trait::async_trait]
impl Subject for SealedMemory {
    fn store(&self) -> Arc<dyn Records> {
        self.store.clone()
    }

    fn holds(&self) -> Arc<dyn Holds> {
        self.store.clone()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: false, loses_answers: false, references: true }
    }
}

struct SealedSqlite {
    inner: Arc<SqliteStore>,
    folder: TempDir,
}

fn sqlite() -> SealedSqlite {
    let folder = TempDir::new().expect("there is room for a test");
    let inner = SqliteStore::open(folder.path().join("semel.db")).expect("a new file can be opened");
    SealedSqlite { inner: Arc::new(inner), folder }
}

#[async_trait::async_trait]
impl Subject for SealedSqlite {
    fn store(&self) -> Arc<dyn Records> {
        Arc::new(SealedStore::new(self.inner.clone(), vault(&["a"])))
    }

    fn holds(&self) -> Arc<dyn Holds> {
        Arc::new(SealedStore::new(self.inner.clone(), vault(&["a"])))
    }

    fn advance(&self, by: Duration) {
        self.inner.shift_clock(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: true, loses_answers: true, references: true }
    }

    fn lose_next_answer(&self) {
        self.inner.lose_next_commit_answer();
    }

    async fn open_again(&self) -> Arc<dyn Records> {
        let again = SqliteStore::open(self.folder.path().join("semel.db")).expect("it can be opened again");
        Arc::new(SealedStore::new(Arc::new(again), vault(&["a"])))
    }
}

struct SealedPostgres {
    inner: Arc<PostgresStore>,
    database: Database,
}

async fn sealed_postgres() -> SealedPostgres {
    let plain = postgres("").await;
    SealedPostgres { inner: plain.store, database: plain.database }
}

#[async_trait::async_trait]
impl Subject for SealedPostgres {
    fn store(&self) -> Arc<dyn Records> {
        Arc::new(SealedStore::new(self.inner.clone(), vault(&["a"])))
    }

    fn holds(&self) -> Arc<dyn Holds> {
        Arc::new(SealedStore::new(self.inner.clone(), vault(&["a"])))
    }

    fn advance(&self, by: Duration) {
        self.inner.shift_clock(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: true, loses_answers: true, references: true }
    }

    fn lose_next_answer(&self) {
        self.inner.lose_next_answer();
    }

    async fn open_again(&self) -> Arc<dyn Records> {
        let address = self.database.url().parse().expect("it is an address");
        let again = PostgresStore::open(&address).await.expect("the database can be used");
        Arc::new(SealedStore::new(Arc::new(again), vault(&["a"])))
    }
}

mod memory_conforms {
    semel_testkit::conformance_tests!(super::memory());
}

mod sqlite_conforms {
    semel_testkit::conformance_tests!(super::sqlite());
}

mod postgres_conforms {
    semel_testkit::conformance_tests!(super::sealed_postgres().await);
}

/// An unsealed store of each kind.
struct Below {
    store: Arc<dyn Backend>,
    kept: (Option<TempDir>, Option<Database>),
}

async fn each() -> [Below; 3] {
    let memory = Arc::new(MemoryStore::new());
    let SealedSqlite { inner: sqlite, folder } = sqlite();
    let SealedPostgres { inner: postgres, database } = sealed_postgres().await;
    [
        Below { store: memory, kept: (None, None) },
        Below { store: sqlite, kept: (Some(folder), None) },
        Below { store: postgres, kept: (None, Some(database)) },
    ]
}

impl Below {
    /// Returns the store sealed with these keys, the first of them the current one.
    fn sealed(&self, ids: &[&str]) -> SealedStore<dyn Backend> {
        SealedStore::new(self.store.clone(), vault(ids))
    }

    async fn record(&self, id: &RecordId) -> Record {
        self.store.get(id).await.expect("it reads").record.expect("it is there")
    }

    async fn uses(&self) -> Vec<(SealedKind, Option<String>, u64)> {
        let uses = self.store.key_uses().await.expect("it reads");
        let mut uses: Vec<_> =
            uses.into_iter().map(|KeyUse { kind, key_id, count }| (kind, key_id, count)).collect();
        uses.sort_by_key(|(kind, key, _)| (kind.as_str(), key.clone()));
        uses
    }

    async fn rotate(&self, ids: &[&str], batch: usize) -> Rotated {
        let mut rotation = Rotation::new(self.store.clone(), vault(ids), batch);
        while rotation.step().await.expect("the store works") != RotationStep::Done {}
        rotation.so_far().clone()
    }
}

async fn complete(store: &dyn Records, key: &str) -> Claim {
    let claim = sample::claim(key);
    let record = store.claim(&claim).await.expect("it is decided").record.expect("it is there");
    let change = Change::complete(record.head.fence(), sample::created(&format!("{CANARY} {key}")));
    let answer = store.apply(&sample::id(&claim), &change).await.expect("it is decided");
    assert_eq!(answer.decision, Decision::Applied);
    assert_eq!(answer.record.expect("it is there").result.as_ref(), change.result(), "as it was given");
    claim
}

fn for_later(key: &str) -> Claim {
    let request = StoredRequest::input(Bytes::from(format!("{CANARY} {key}")));
    Claim { request: Some(request), ..sample::for_worker(sample::claim(key), HOUR) }
}

async fn waiting(store: &dyn Records) -> Vec<Waiting> {
    store.waiting(&WaitingFilter::default()).await.expect("it reads").found
}

fn has_canary(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
}

/// Returns the result of a record, which must be sealed under this key.
fn assert_sealed(record: &Record, key: &str) -> StoredResult {
    let result = record.result.clone().expect("it is settled");
    assert_eq!(result.response.encryption_key_id.as_deref(), Some(key));
    assert!(!has_canary(&result.response.bytes) && result.resource.is_none(), "nothing shows");
    assert!(result.response.decode().is_err(), "it is not decoded as if it were clear");
    result
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_bytes_are_sealed_and_reads_are_clear() {
    for below in each().await {
        let store = below.sealed(&["a"]);
        let claim = complete(&store, "one").await;
        assert_sealed(&below.record(&sample::id(&claim)).await, "a");
        let replay = store.claim(&sample::claim("one")).await.expect("it is decided");
        assert_eq!(replay.decision, Decision::Replay);
        assert_eq!(
            replay.record.expect("it is there").result,
            Some(sample::created(&format!("{CANARY} one")))
        );

        store.claim(&for_later("two")).await.expect("it is decided");
        let kept = waiting(&*below.store).await.remove(0).request;
        assert_eq!(kept.encryption_key_id.as_deref(), Some("a"));
        assert!(!has_canary(&kept.bytes));
        let opened = waiting(&store).await.remove(0).request;
        assert_eq!(Some(opened), for_later("two").request);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_stored_in_the_clear_stay_readable() {
    for below in each().await {
        let claim = complete(&*below.store, "one").await;
        below.store.claim(&for_later("two")).await.expect("it is decided");
        let store = below.sealed(&["a"]);
        let found = store.get(&sample::id(&claim)).await.expect("it reads").record.expect("it is there");
        assert_eq!(found.result, Some(sample::created(&format!("{CANARY} one"))));
        assert_eq!(Some(waiting(&store).await.remove(0).request), for_later("two").request);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_without_its_key_is_neither_readable_nor_executed() {
    for below in each().await {
        let claim = complete(&below.sealed(&["a"]), "one").await;
        below.sealed(&["a"]).claim(&for_later("two")).await.expect("it is decided");
        let other = below.sealed(&["b"]);
        let replay = other.claim(&sample::claim("one")).await.expect("it is decided");
        assert_eq!(replay.decision, Decision::Replay, "it is not run again");
        assert_sealed(&replay.record.expect("it is there"), "a");
        let found = other.get(&sample::id(&claim)).await.expect("it reads").record.expect("it is there");
        assert_sealed(&found, "a");
        assert!(waiting(&other).await.remove(0).request.decode().is_err(), "no worker can start it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_was_put_into_another_record_does_not_open() {
    for below in each().await {
        let store = below.sealed(&["a"]);
        let stolen = assert_sealed(&below.record(&sample::id(&complete(&store, "one").await)).await, "a");
        let claim = sample::claim("two");
        let record = below.store.claim(&claim).await.expect("it is decided").record.expect("it is there");
        let change = Change::complete(record.head.fence(), stolen);
        below.store.apply(&sample::id(&claim), &change).await.expect("it is decided");
        let found = store.get(&sample::id(&claim)).await.expect("it reads").record.expect("it is there");
        assert_sealed(&found, "a");
    }
}

/// Returns a vault with these keys that refuses plaintext.
fn strict(ids: &[&str]) -> Arc<dyn Vault> {
    let key = |id: &&str| ((*id).to_owned(), [id.as_bytes()[0]; 32]);
    let vault = AesVault::new(ids[0], ids.iter().map(key)).expect("the keys are good");
    Arc::new(vault.plaintext(Plaintext::Refuse))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plaintext_in_place_of_a_sealed_value_is_refused_and_not_resealed() {
    for below in each().await {
        // A process that can write to the store can do this without a key.
        complete(&*below.store, "forged").await;
        below.store.claim(&for_later("later")).await.expect("it is decided");
        let command = OperationId::from_bytes([7; 16]);
        let found = LookUpAnswer::Executed(sample::created("forged"));
        let said = Statement::new("provider".into(), "e1".into(), command, found, "seen".into());
        below.store.take_in(&said.expect("it is a verdict")).await.expect("it is kept");
        let own = complete(&below.sealed(&["a"]), "own").await;

        let store = SealedStore::new(below.store.clone(), strict(&["a"]));
        let replay = store.claim(&sample::claim("forged")).await.expect("it is decided");
        assert_eq!(replay.decision, Decision::Replay, "it is not run again");
        let result = replay.record.and_then(|record| record.result).expect("it is there");
        assert!(result.response.decode().is_err() && result.resource.is_none(), "{result:?}");
        assert!(waiting(&store).await.remove(0).request.decode().is_err(), "no worker can start it");
        let evidence = SealedStore::new(below.store.clone(), strict(&["a"]));
        let heard = evidence.open_statements(command, None, 10).await.expect("it reads");
        assert_eq!((heard.statements.len(), heard.unreadable), (0, 1));
        let genuine = store.get(&sample::id(&own)).await.expect("it reads").record.expect("it is there");
        assert_eq!(genuine.result, Some(sample::created(&format!("{CANARY} own"))));

        let mut rotation = Rotation::new(below.store.clone(), strict(&["b", "a"]), 10);
        while rotation.step().await.expect("the store works") != RotationStep::Done {}
        let rotated = rotation.so_far().clone();
        assert_eq!((rotated.resealed, rotated.refused, rotated.is_complete()), (1, 3, false), "{rotated:?}");
        assert!(below.rotate(&["b", "a"], 10).await.is_complete(), "where plaintext is expected");
        let store = SealedStore::new(below.store.clone(), strict(&["b"]));
        let replay = store.claim(&sample::claim("forged")).await.expect("it is decided");
        let result = replay.record.and_then(|record| record.result).expect("it is there");
        assert_eq!(result, sample::created(&format!("{CANARY} forged")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verdicts_and_restarted_executors_settle_with_a_readable_response() {
    for below in each().await {
        let store = below.sealed(&["a"]);
        let claim = sample::claim("lost");
        let record = store.claim(&claim).await.expect("it is decided").record.expect("it is there");
        let abandon = Change::abandon(record.head.fence(), Reason::TimedOut);
        store.apply(&record.id, &abandon).await.expect("it is decided");
        let verdict = Change::resolve_executed(sample::created("found"));
        let settled = below.sealed(&["a"]).apply(&record.id, &verdict).await.expect("it is decided");
        assert_eq!(settled.decision, Decision::Applied);
        assert_sealed(&below.record(&record.id).await, "a");
        let read = store.get(&record.id).await.expect("it reads").record.expect("it is there");
        assert_eq!(read.result, Some(sample::created("found")));

        let claim = sample::claim("restarted");
        let record = store.claim(&claim).await.expect("it is decided").record.expect("it is there");
        let change = Change::complete(record.head.fence(), sample::created("late"));
        below.sealed(&["a"]).apply(&record.id, &change).await.expect("it is decided");
        let read = store.get(&record.id).await.expect("it reads").record.expect("it is there");
        assert_eq!(read.result, Some(sample::created("late")));
    }
}

/// A vault that counts how often something is opened.
struct Counting(Arc<dyn Vault>, Arc<AtomicUsize>);

impl Vault for Counting {
    fn current(&self) -> &str {
        self.0.current()
    }

    fn seal(&self, about: &Sealing, clear: &[u8]) -> Result<Sealed, VaultError> {
        self.0.seal(about, clear)
    }

    fn open(&self, about: &Sealing, key_id: &str, sealed: &[u8]) -> Result<Bytes, VaultError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.open(about, key_id, sealed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_of_another_caller_is_not_opened() {
    for below in each().await {
        let opened = Arc::new(AtomicUsize::new(0));
        let vault = Arc::new(Counting(vault(&["a"]), opened.clone()));
        let store = SealedStore::new(below.store.clone(), vault);
        let claim = complete(&store, "one").await;
        let before = opened.load(Ordering::SeqCst);
        let stranger = Principal::new("globex", "mallory").expect("these are names");
        let foreign = store.find_own(claim.operation_id, &stranger).await.expect("it reads");
        assert_eq!((foreign.record, opened.load(Ordering::SeqCst)), (None, before));
        let own = store.find_own(claim.operation_id, claim.scope.principal()).await.expect("it reads");
        assert!(own.record.is_some() && opened.load(Ordering::SeqCst) == before + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_put_beside_another_record_does_not_open() {
    for below in each().await {
        let store = below.sealed(&["a"]);
        store.claim(&for_later("one")).await.expect("it is decided");
        let stolen = waiting(&*below.store).await.remove(0).request;
        let claim = Claim { request: Some(stolen), ..for_later("two") };
        below.store.claim(&claim).await.expect("it is decided");
        let found = waiting(&store).await;
        let opens = |found: &&Waiting| found.request.encryption_key_id.is_none();
        assert_eq!((found.len(), found.iter().filter(opens).count()), (2, 1));
    }
}

/// The record keeps its id and operation id, which differ from those of the claim that brings the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_attempt_under_a_new_name_of_the_operation_brings_a_request_that_opens() {
    for below in each().await {
        let store = below.sealed(&["a"]);
        let old = for_later("one");
        let record = store.claim(&old).await.expect("it is decided").record.expect("it is there");
        let change = Change::release(record.head.fence(), Reason::NotExecuted);
        assert_eq!(
            store.apply(&record.id, &change).await.expect("it is decided").decision,
            Decision::Applied
        );
        let renamed = OperationName::new("payments.make").expect("it is a name");
        let fresh = for_later("one");
        let scope = fresh.scope.under(renamed);
        let fresh = Claim { former: vec![fresh.scope.operation().clone()], scope, ..fresh };
        let again = store.claim(&fresh).await.expect("it is decided").record.expect("it is there");
        assert_eq!((again.id, again.operation_id), (record.id, record.operation_id));
        assert_eq!(Some(waiting(&store).await.remove(0).request), fresh.request);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_brings_everything_under_the_current_key_and_changes_nothing_else() {
    for below in each().await {
        let (clear, old) = (complete(&*below.store, "clear").await, below.sealed(&["a"]));
        let mut claims = vec![clear];
        for number in 0..25 {
            claims.push(complete(&old, &format!("old-{number}")).await);
            old.claim(&for_later(&format!("later-{number}"))).await.expect("it is decided");
        }
        let new = below.sealed(&["b", "a"]);
        claims.push(complete(&new, "new").await);
        let mut before = Vec::new();
        for claim in &claims {
            before.push(new.get(&sample::id(claim)).await.expect("it reads").record);
        }
        let requests = waiting(&new).await;

        let rotated = below.rotate(&["b", "a"], 10).await;
        assert!(rotated.is_complete(), "{rotated:?}");
        assert_eq!(rotated.resealed, 26 + 25);
        let under_b = Some("b".to_owned());
        assert_eq!(
            below.uses().await,
            [(SealedKind::Request, under_b.clone(), 25), (SealedKind::Response, under_b, 27)]
        );
        let only_new = below.sealed(&["b"]);
        for (claim, before) in claims.iter().zip(before) {
            assert_sealed(&below.record(&sample::id(claim)).await, "b");
            assert_eq!(only_new.get(&sample::id(claim)).await.expect("it reads").record, before);
        }
        let opened = waiting(&only_new).await;
        assert_eq!(opened.len(), 25);
        for (one, other) in opened.iter().zip(&requests) {
            assert_eq!((&one.record, &one.request), (&other.record, &other.request));
        }
        assert_eq!(below.rotate(&["b"], 10).await, Rotated::default(), "nothing is left to do");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_reseals_values_written_behind_it_or_reports_it_was_overtaken() {
    for below in each().await {
        let old = below.sealed(&["a"]);
        for number in 0..20 {
            complete(&old, &format!("first-{number}")).await;
        }
        let mut rotation = Rotation::new(below.store.clone(), vault(&["b", "a"]), 10);
        while rotation.so_far().resealed < 20 {
            rotation.step().await.expect("the store works");
        }
        for number in 0..10 {
            complete(&old, &format!("behind-{number}")).await;
        }
        while rotation.step().await.expect("the store works") != RotationStep::Done {}
        assert!(rotation.so_far().is_complete(), "{:?}", rotation.so_far());
        assert_eq!(below.uses().await, [(SealedKind::Response, Some("b".to_owned()), 30)]);

        let mut rotation = Rotation::new(below.store.clone(), vault(&["b", "a"]), 10);
        for number in 0.. {
            complete(&old, &format!("never-ending-{number}")).await;
            if rotation.step().await.expect("the store works") == RotationStep::Done {
                break;
            }
        }
        assert!(rotation.so_far().overtaken && !rotation.so_far().is_complete());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_names_the_keys_that_are_missing_and_does_the_rest() {
    for below in each().await {
        for number in 0..7 {
            complete(&below.sealed(&["lost"]), &format!("lost-{number}")).await;
            complete(&below.sealed(&["a"]), &format!("old-{number}")).await;
        }
        let stolen =
            assert_sealed(&below.record(&sample::id(&complete(&below.sealed(&["a"]), "x").await)).await, "a");
        let claim = sample::claim("moved");
        let record = below.store.claim(&claim).await.expect("it is decided").record.expect("it is there");
        let change = Change::complete(record.head.fence(), stolen);
        below.store.apply(&sample::id(&claim), &change).await.expect("it is decided");

        let rotated = below.rotate(&["b", "a"], 3).await;
        assert!(!rotated.is_complete());
        assert_eq!(rotated.resealed, 8);
        assert_eq!(rotated.missing.into_iter().collect::<Vec<_>>(), [("lost".to_owned(), 7)]);
        assert_eq!(rotated.unopened.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 1)]);
        let rotated = below.rotate(&["b", "a", "lost"], 3).await;
        assert_eq!((rotated.resealed, rotated.missing.len()), (7, 0), "once the key is back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_is_sealed_opened_and_rotated_like_the_rest() {
    for below in each().await {
        let command = OperationId::from_bytes([7; 16]);
        let evidence = |ids: &[&str]| SealedStore::new(below.store.clone(), vault(ids));
        let says = |number: u32| {
            let found = LookUpAnswer::Executed(sample::created(&format!("{CANARY} {number}")));
            let name = format!("event-{number:02}");
            Statement::new("provider".into(), name, command, found, "seen".into()).expect("it is a verdict")
        };
        let all: Vec<Statement> = (0..12).map(says).collect();
        for (number, statement) in all.iter().enumerate() {
            let heard = match number {
                0 => below.store.take_in(statement).await,
                _ => evidence(&["a"]).take_in(statement).await,
            };
            assert_eq!(heard.expect("it is kept"), Heard::New);
        }
        let kept = below.store.open_statements(command, None, 100).await.expect("it reads").statements;
        let sealed = |kept: &&Statement| {
            let result = kept.result().expect("it brings one");
            result.response.encryption_key_id.is_some() && !has_canary(&result.response.bytes)
        };
        assert_eq!(kept.iter().filter(sealed).count(), 11, "all but the one in the clear");
        let opened = evidence(&["b", "a"]).open_statements(command, None, 100).await.expect("it reads");
        assert_eq!(opened.unreadable, 0);
        let mut opened = opened.statements;
        opened.sort_by(|one, other| one.event_id.cmp(&other.event_id));
        opened.iter_mut().for_each(|opened| opened.received_at = None);
        assert_eq!(opened, all);
        let without = evidence(&["b"]).open_statements(command, None, 100).await.expect("it reads");
        let known: Vec<&str> = without.statements.iter().map(|said| &*said.event_id).collect();
        assert_eq!(known, [&*all[0].event_id], "what does not open is not used");
        let again = evidence(&["b"]).take_in(&all[1]).await;
        assert_eq!(again.expect("it answers"), Heard::Before, "and is still recognised");
        assert_eq!(without.unreadable, 11, "and not forgotten");

        let rotated = below.rotate(&["b", "a"], 5).await;
        assert_eq!((rotated.is_complete(), rotated.resealed), (true, 12));
        let mut opened =
            evidence(&["b"]).open_statements(command, None, 100).await.expect("it reads").statements;
        opened.sort_by(|one, other| one.event_id.cmp(&other.event_id));
        opened.iter_mut().for_each(|opened| opened.received_at = None);
        assert_eq!(opened, all);
        assert_eq!(below.uses().await, [(SealedKind::Evidence, Some("b".to_owned()), 12)]);
    }
}

/// Checks that a rotation reseals the rest if one row of each kind is damaged.
async fn a_rotation_does_the_rest(below: &Below, literal: fn(OperationId) -> String, run: impl Fn(&str)) {
    let store = below.sealed(&["a"]);
    let evidence = SealedStore::new(below.store.clone(), vault(&["a"]));
    let (mut completed, mut left) = (Vec::new(), Vec::new());
    for number in 0..5 {
        completed.push(below.record(&sample::id(&complete(&store, &format!("done-{number}")).await)).await);
        let later = store.claim(&for_later(&format!("later-{number}"))).await.expect("it is decided");
        left.push(later.record.expect("it is there"));
        let found = LookUpAnswer::Executed(sample::created("charged"));
        let said = Statement::new(
            "provider".into(),
            format!("e{number}"),
            completed[0].operation_id,
            found,
            "seen".into(),
        );
        evidence.take_in(&said.expect("it is a verdict")).await.expect("it is kept");
    }
    let (request, response) = (left[1].operation_id, completed[2].operation_id);
    let of = |id| format!("WHERE operation_id = {}", literal(id));
    run(&format!("UPDATE semel_records SET fingerprint_version = 0 {}", of(request)));
    run(&format!("UPDATE semel_records SET response_format = 999 {}", of(response)));
    run("UPDATE semel_evidence SET response_format = 999 WHERE event_id = 'e3'");
    let rotated = below.rotate(&["b", "a"], 1).await;
    assert_eq!((rotated.resealed, rotated.is_complete(), rotated.unreadable), (12, false, 3));
    let named = |kind: SealedKind| {
        let of = rotated.unreadable_named.iter().filter(move |row| row.kind == kind);
        of.map(|row| row.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(named(SealedKind::Request), [request.to_string()]);
    assert_eq!(named(SealedKind::Response), [response.to_string()]);
    assert_eq!(named(SealedKind::Evidence), ["provider e3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_names_unreadable_values_and_reseals_the_others() {
    let [_, sqlite, postgres] = each().await;
    let file = sqlite.kept.0.as_ref().expect("it has a file").path().join("semel.db");
    let blob = |id: OperationId| format!("X'{}'", id.to_string().replace('-', ""));
    a_rotation_does_the_rest(&sqlite, blob, |sql| {
        let file = rusqlite::Connection::open(&file).expect("the file opens");
        assert_eq!(file.execute(sql, []).expect("it runs"), 1);
    })
    .await;
    let database = postgres.kept.1.as_ref().expect("it has a database");
    let uuid = |id: OperationId| format!("'{id}'");
    a_rotation_does_the_rest(&postgres, uuid, |sql| drop(database.sql(sql).expect("it runs"))).await;
}

/// Another process purged the record, brought another request, or rotated before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_does_not_overwrite_a_changed_record() {
    for below in each().await {
        let store = below.sealed(&["a"]);
        let purged = complete(&store, "purged").await;
        let rotated = complete(&store, "rotated").await;
        let waiting_claim = for_later("later");
        let record = store.claim(&waiting_claim).await.expect("it is decided").record.expect("it is there");
        let mut resealed = Vec::new();
        let new = vault(&["b", "a"]);
        for kind in [SealedKind::Response, SealedKind::Request] {
            let page = below.store.kept_otherwise(kind, "b", None, 10).await.expect("it reads");
            let seal = |before: semel_core::reseal::StoredValue| {
                let clear = new.open(&before.about, "a", &before.bytes).expect("it opens");
                Resealed { after: new.seal(&before.about, &clear).expect("it seals"), before }
            };
            resealed.push(page.kept.into_iter().map(seal).collect::<Vec<_>>());
        }
        assert_eq!((resealed[0].len(), resealed[1].len()), (2, 1));

        store.apply(&sample::id(&purged), &Change::purge()).await.expect("it is decided");
        below.rotate(&["c", "a"], 10).await;
        let fence = Fence { ..record.head.fence() };
        store.apply(&record.id, &Change::release(fence, Reason::NotExecuted)).await.expect("it is decided");
        let again = Claim { request: Some(StoredRequest::input("another".into())), ..for_later("later") };
        store.claim(&again).await.expect("it is decided");

        for batch in &resealed {
            let nothing = ResealedBatch { written: 0, held: 0 };
            assert_eq!(below.store.reseal(batch).await.expect("the store works"), nothing);
        }
        assert_sealed(&below.record(&sample::id(&rotated)).await, "c");
        assert_eq!(below.record(&sample::id(&purged)).await.result, None);
        assert_eq!(waiting(&store).await.remove(0).request, StoredRequest::input("another".into()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_notice_nothing_of_a_rotation() {
    for below in each().await {
        let old = below.sealed(&["a", "b"]);
        for number in 0..300 {
            complete(&old, &format!("old-{number}")).await;
        }
        let both = Arc::new(below.sealed(&["b", "a"]));
        let stop = Arc::new(tokio::sync::Semaphore::new(0));
        let tasks: Vec<_> = (0..4)
            .map(|task| {
                let (store, stop) = (both.clone(), stop.clone());
                tokio::spawn(async move {
                    let mut round = 0;
                    while !stop.is_closed() {
                        let key = format!("old-{}", (round * 7 + task) % 300);
                        let answer = store.claim(&sample::claim(&key)).await.expect("it is decided");
                        assert_eq!(answer.decision, Decision::Replay);
                        let result = answer.record.and_then(|record| record.result).expect("it is there");
                        assert_eq!(result, sample::created(&format!("{CANARY} {key}")));
                        complete(&*store, &format!("new-{task}-{round}")).await;
                        round += 1;
                    }
                    round
                })
            })
            .collect();
        let rotated = below.rotate(&["b", "a"], 16).await;
        stop.close();
        for task in tasks {
            task.await.expect("every replay was right");
        }
        assert!(rotated.is_complete(), "{rotated:?}");
        assert_eq!(rotated.resealed, 300);
        assert!(below.uses().await.iter().all(|(_, key, _)| key.as_deref() == Some("b")));
    }
}
