//! Rows of the service with a foreign key to the record of their command, and records that are deleted.

use crate::lab::{Lab, Saw, Step, both, command, pays};

both!(a_foreign_key_set_null_blocks_neither_rerun_nor_reaping, a_restricting_foreign_key_keeps_its_record,);

/// Creates a table whose rows reference the record of their command.
async fn orders<L: Lab>(lab: &L, on_end: &str) {
    let id = L::ID_TYPE;
    lab.run(&format!(
        "CREATE TABLE orders (operation_id {id} REFERENCES semel_records (operation_id) {on_end})"
    ))
    .await;
}

const ORDER: &str = "INSERT INTO orders SELECT operation_id FROM semel_records WHERE state = 'processing'";

async fn a_foreign_key_set_null_blocks_neither_rerun_nor_reaping(lab: impl Lab) {
    orders(&lab, "ON DELETE SET NULL ON UPDATE SET NULL").await;
    let work = || pays().then(Step::Sql(ORDER));
    assert!(lab.see(&command("key"), work()).await.executed());
    assert_eq!(lab.number("SELECT count(operation_id) FROM orders").await, 1);
    // A command that reruns after its record has expired replaces the record.
    lab.expire().await;
    assert!(lab.see(&command("key"), work()).await.executed());
    assert_eq!(lab.number("SELECT count(*) FROM orders").await, 2);
    assert_eq!(lab.number("SELECT count(operation_id) FROM orders").await, 1);
    lab.expire().await;
    assert_eq!(lab.store().await.reap(10).await.expect("it reaps").len(), 1);
    assert_eq!(lab.number("SELECT count(operation_id) FROM orders").await, 0);
    assert_eq!(lab.number("SELECT count(*) FROM orders").await, 2, "the service's rows are all there");
}

async fn a_restricting_foreign_key_keeps_its_record(lab: impl Lab) {
    orders(&lab, "").await;
    assert!(lab.see(&command("key"), pays().then(Step::Sql(ORDER))).await.executed());
    assert!(lab.see(&command("other"), pays()).await.executed());
    lab.expire().await;
    assert_eq!(lab.store().await.reap(10).await.expect("it reaps").len(), 1, "only the one without an order");
    assert_eq!(lab.counts().await, (2, 2, 1));
    // The record cannot be replaced, so nothing runs.
    assert_eq!(lab.see(&command("key"), pays()).await, Saw::Unavailable);
    assert_eq!(lab.counts().await, (2, 2, 1));
}
