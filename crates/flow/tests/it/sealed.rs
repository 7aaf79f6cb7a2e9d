//! Transactions with a vault: what they store is sealed, and what they give back is clear.

use std::sync::Arc;

use semel_core::{Decision, Note, Record, Transacted, Vault};
use semel_flow::Settled;
use semel_stores::encryption::{AesVault, SealedStore};

use crate::lab::{End, Lab, PAY, Postgres, Saw, Sqlite, Step, Work, both, command, pays, stored};

both!(
    a_response_is_sealed_and_replayed_in_the_clear,
    a_stable_failure_is_sealed_too,
    a_deferred_command_is_settled_with_a_sealed_response,
    evidence_is_stored_sealed,
    without_its_key_a_command_is_not_run_again,
    what_was_stored_in_the_clear_is_replayed,
);

fn vault(id: &str) -> Arc<dyn Vault> {
    let key = [id.as_bytes()[0]; 32];
    Arc::new(AesVault::new(id, [(id.to_owned(), key)]).expect("the key is good"))
}

/// The same database, with a vault or another one.
trait Sealable: Lab {
    fn under(self, id: &str) -> Self;
}

impl Sealable for Postgres {
    fn under(mut self, id: &str) -> Postgres {
        self.transactions = self.transactions.vault(vault(id));
        self
    }
}

impl Sealable for Sqlite {
    fn under(mut self, id: &str) -> Sqlite {
        self.transactions = self.transactions.vault(vault(id));
        self
    }
}

/// The record as it is stored, which shows nothing of its response, and as whoever has the key sees it.
async fn opened(lab: &impl Lab, record: &Record, id: &str) -> Record {
    let store = lab.store().await;
    let kept = store.get(&record.id).await.expect("it reads").record.expect("it is there");
    let result = kept.result.expect("it is settled");
    assert_eq!(result.response.encryption_key_id.as_deref(), Some(id));
    assert_eq!(result.resource, None);
    let shows = |text: &[u8]| result.response.bytes.windows(text.len()).any(|window| window == text);
    assert!(!shows(b"answer of") && !shows(b"/payments"), "{result:?}");
    let store = SealedStore::new(store, vault(id));
    semel_core::Store::get(&store, &record.id).await.expect("it reads").record.expect("it is there")
}

async fn a_response_is_sealed_and_replayed_in_the_clear(lab: impl Sealable) {
    let lab = lab.under("a");
    let answered = lab.transact(&command("k"), pays()).await;
    let Transacted::Executed { record, .. } = answered.outcome() else { panic!("it runs: {answered:?}") };
    let answer = format!("answer of {}", record.operation_id);
    assert_eq!(stored(record), (201, answer.clone().into()), "the layer gets it in the clear");
    assert_eq!(opened(&lab, record, "a").await, **record);
    assert_eq!(record.result.as_ref().and_then(|result| result.resource.as_deref()), Some("/payments/7"));
    assert_eq!(lab.see(&command("k"), pays()).await, Saw::Replayed(201, answer));
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn a_stable_failure_is_sealed_too(lab: impl Sealable) {
    let lab = lab.under("a");
    let answered = lab.transact(&command("k"), pays().ending(End::Final(402))).await;
    let Transacted::Executed { record, .. } = answered.outcome() else { panic!("it runs: {answered:?}") };
    assert_eq!(stored(&opened(&lab, record, "a").await).0, 402);
}

async fn a_deferred_command_is_settled_with_a_sealed_response(lab: impl Sealable) {
    let lab = lab.under("a");
    let later = Work { steps: vec![Step::Sql(PAY), Step::Push("charge")], end: End::Deferred };
    let answered = lab.transact(&command("k"), later.clone()).await;
    let Transacted::Deferred { record, .. } = answered.outcome() else { panic!("{answered:?}") };
    let done = Work { steps: Vec::new(), end: End::Created };
    let Settled::Now(settled) = lab.settle(record.operation_id, None, done.clone()).await else {
        panic!("its message settles it")
    };
    assert_eq!(stored(&settled).0, 201);
    assert_eq!(opened(&lab, &settled, "a").await, *settled);
    let Settled::Before(before) = lab.settle(record.operation_id, None, done).await else {
        panic!("it is settled")
    };
    assert_eq!(*before, *settled);
    assert!(lab.see(&command("k"), later).await.replayed());
}

async fn evidence_is_stored_sealed(lab: impl Sealable) {
    let lab = lab.under("a");
    let later = Work { steps: vec![Step::Sql(PAY), Step::Push("charge")], end: End::Deferred };
    let answered = lab.transact(&command("k"), later).await;
    let Transacted::Deferred { record, .. } = answered.outcome() else { panic!("{answered:?}") };
    let note = Note { who: "a test".into(), action: "resolve".into(), why: "it was captured".into() };
    let done = Work { steps: Vec::new(), end: End::Created };
    let Settled::Now(settled) = lab.settle(record.operation_id, Some(note), done).await else {
        panic!("evidence settles it")
    };
    assert_eq!(opened(&lab, &settled, "a").await, *settled);
}

async fn without_its_key_a_command_is_not_run_again(lab: impl Sealable) {
    let lab = lab.under("a");
    assert!(lab.see(&command("k"), pays()).await.executed());
    let lab = lab.under("b");
    let answered = lab.transact(&command("k"), pays()).await;
    let Transacted::Decided { decision: Decision::Replay, record: Some(record), .. } = answered.outcome()
    else {
        panic!("it is not run: {answered:?}")
    };
    assert!(record.result.as_ref().expect("it is settled").response.decode().is_err());
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn what_was_stored_in_the_clear_is_replayed(lab: impl Sealable) {
    assert!(lab.see(&command("k"), pays()).await.executed());
    assert!(lab.under("a").see(&command("k"), pays()).await.replayed());
}
