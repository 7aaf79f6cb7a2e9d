//! The SQLite store conforms, and its settlements without a read equal those with one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use semel_core::{
    Change, Claim, Decision, Fence, Holds, Reason, Records, StateName, Store, StoreError, Upkeep,
};
use semel_stores::SqliteStore;
use semel_testkit::conformance::{Capabilities, Subject};
use semel_testkit::sample;
use tempfile::TempDir;

struct Sqlite {
    store: Arc<SqliteStore>,
    folder: TempDir,
}

fn sqlite() -> Sqlite {
    let folder = TempDir::new().expect("there is room for a test");
    let store = SqliteStore::open(folder.path().join("semel.db")).expect("a new file can be opened");
    Sqlite { store: Arc::new(store), folder }
}

#[async_trait::async_trait]
impl Subject for Sqlite {
    fn store(&self) -> Arc<dyn Records> {
        self.store.clone()
    }

    fn holds(&self) -> Arc<dyn Holds> {
        self.store.clone()
    }

    fn advance(&self, by: Duration) {
        self.store.shift_clock(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: true, loses_answers: true, references: true }
    }

    fn lose_next_answer(&self) {
        self.store.lose_next_commit_answer();
    }

    async fn open_again(&self) -> Arc<dyn Records> {
        Arc::new(
            SqliteStore::open(self.folder.path().join("semel.db")).expect("the file can be opened again"),
        )
    }
}

semel_testkit::conformance_tests!(sqlite());

/// Change by another process while the executor runs the command.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// The lease is renewed.
    Renewed,
    /// The lease expires, and the command becomes unknown.
    Swept,
    /// The lease expires, and the command is run again.
    RunAgain,
    /// The command is released.
    Released,
    /// The command is released, and claimed again.
    ClaimedAnew,
    /// The settlement is written, by the executor's own token.
    Settled,
    /// The command is settled, and deleted.
    Forgotten,
    /// The command is deferred until the very moment at which its lease would have expired.
    Deferred,
}

impl Meanwhile {
    const ALL: [Meanwhile; 9] = [
        Meanwhile::Nothing,
        Meanwhile::Renewed,
        Meanwhile::Swept,
        Meanwhile::RunAgain,
        Meanwhile::Released,
        Meanwhile::ClaimedAnew,
        Meanwhile::Settled,
        Meanwhile::Forgotten,
        Meanwhile::Deferred,
    ];

    async fn happens(self, other: &SqliteStore, claim: &Claim, file: &Path) {
        let (id, fence) = (sample::id(claim), Fence { epoch: 1, token: claim.attempt.token });
        let apply = async |change: Change| other.apply(&id, &change).await.expect("it is applied").decision;
        let again = Claim {
            scope: claim.scope.clone(),
            ..sample::under(sample::claim("other"), claim.attempt.terms)
        };
        let done = |decision| assert_eq!(decision, Decision::Applied, "{self:?}");
        match self {
            Meanwhile::Nothing => {}
            Meanwhile::Renewed => {
                other.shift_clock(Duration::from_secs(10));
                done(apply(Change::renew(fence)).await);
            }
            Meanwhile::Swept => {
                other.shift_clock(Duration::from_secs(31));
                assert_eq!(other.sweep(10).await.expect("it is swept").len(), 1);
            }
            Meanwhile::RunAgain => {
                other.shift_clock(Duration::from_secs(31));
                let answer = other.claim(&again).await.expect("it is claimed");
                assert_eq!(answer.decision, Decision::Execute);
            }
            Meanwhile::Released => done(apply(Change::release(fence, Reason::NotExecuted)).await),
            Meanwhile::ClaimedAnew => {
                done(apply(Change::release(fence, Reason::NotExecuted)).await);
                let answer = other.claim(&again).await.expect("it is claimed");
                assert_eq!(answer.decision, Decision::Execute);
            }
            Meanwhile::Settled => done(apply(Change::complete(fence, sample::created("theirs"))).await),
            Meanwhile::Forgotten => {
                done(apply(Change::complete(fence, sample::created("theirs"))).await);
                other.shift_clock(Duration::from_secs(25 * 60 * 60));
                assert_eq!(other.reap(10).await.expect("it is forgotten").len(), 1);
            }
            Meanwhile::Deferred => {
                edit(file, "reason = 'deferred', history = history || char(10) || '1 1 processing deferred'");
            }
        }
    }
}

/// Changes the one row outside of any store, to a state that no clock reaches in time.
fn edit(file: &Path, what: &str) {
    let connection = rusqlite::Connection::open(file).expect("the file opens");
    let changed = connection.execute(&format!("UPDATE semel_records SET {what}"), []);
    assert_eq!(changed.expect("it is changed"), 1);
}

/// Result of a settlement, without its times.
type CameTo = (Decision, Option<(StateName, u32, bool, Option<bytes::Bytes>, String)>);

/// Claims a command, lets another process change it, and settles it: by the store that claimed it, or by one
/// that has never seen it.
async fn outcome(meanwhile: Meanwhile, late: bool, failed: bool, own: bool) -> CameTo {
    let folder = TempDir::new().expect("there is room for a test");
    let file = folder.path().join("semel.db");
    let open = || SqliteStore::open(&file).expect("the file opens");
    let (claimer, other, stranger) = (open(), open(), open());
    let terms = match meanwhile {
        Meanwhile::RunAgain | Meanwhile::Deferred => sample::terms_with_rerun(),
        _ => sample::terms(),
    };
    let claim = sample::under(sample::claim("remembered"), terms);
    let claimed = claimer.claim(&claim).await.expect("it is claimed");
    assert_eq!(claimed.decision, Decision::Execute);
    meanwhile.happens(&other, &claim, &file).await;
    let store = if own { &claimer } else { &stranger };
    if late {
        store.shift_clock(Duration::from_secs(60));
    }
    let fence = Fence { epoch: 1, token: claim.attempt.token };
    let outcome = if failed {
        Change::fail(fence, Reason::Answered, sample::result(&sample::response(422, "own")))
    } else {
        Change::complete(fence, sample::created("own"))
    };
    let answer = store.apply(&sample::id(&claim), &outcome).await.expect("it is answered");
    let kept = stranger.get(&sample::id(&claim)).await.expect("it can be read").record;
    assert_eq!(answer.record, kept, "what is answered is what is there: {meanwhile:?}");
    let told = kept.map(|record| {
        let steps: Vec<_> = record
            .history
            .steps()
            .map(|step| (step.epoch, step.state, step.reason, step.again.map(|(times, _)| times)))
            .collect();
        let head = record.head;
        let body = record.result.map(|result| result.response.bytes);
        (head.state.name(), head.epoch, head.token == claim.attempt.token, body, format!("{steps:?}"))
    });
    (answer.decision, told)
}

#[tokio::test]
async fn an_outcome_written_from_memory_equals_one_written_after_a_read() {
    for meanwhile in Meanwhile::ALL {
        for (late, failed) in [(false, false), (true, false), (false, true), (true, true)] {
            let remembered = outcome(meanwhile, late, failed, true).await;
            let looked = outcome(meanwhile, late, failed, false).await;
            assert_eq!(remembered, looked, "{meanwhile:?}, late: {late}, failed: {failed}");
        }
    }
}

/// Shows also that the record was not read.
#[tokio::test]
async fn an_outcome_is_stored_in_a_record_with_an_unreadable_column() {
    let folder = TempDir::new().expect("there is room for a test");
    let file = folder.path().join("semel.db");
    let store = SqliteStore::open(&file).expect("the file opens");
    let claim = sample::claim("damaged");
    assert_eq!(store.claim(&claim).await.expect("it is claimed").decision, Decision::Execute);
    edit(&file, "fingerprint_version = 0");
    let outcome = Change::complete(Fence { epoch: 1, token: claim.attempt.token }, sample::created("done"));
    let answer = store.apply(&sample::id(&claim), &outcome).await.expect("it is written");
    assert_eq!(answer.decision, Decision::Applied);
    let retried = store.claim(&sample::claim("damaged")).await;
    assert!(matches!(retried, Err(StoreError::Corrupt(_))), "nothing is decided on it: {retried:?}");
    edit(&file, "fingerprint_version = 1");
    let mended = store.get(&sample::id(&claim)).await.expect("it can be read").record;
    assert_eq!(mended, answer.record);
}
