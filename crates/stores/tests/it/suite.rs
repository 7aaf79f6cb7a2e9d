//! The suite itself is tried: it must reject every broken store, and for the right reason.

use semel_testkit::broken::{BrokenSubject, Flaw};
use semel_testkit::conformance;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_rejects_every_broken_store() {
    for (flaw, noticed_by) in Flaw::ALL {
        let failed = conformance::failures(|| BrokenSubject::new(Some(flaw))).await;
        assert!(failed.contains(&noticed_by), "{flaw:?} was not noticed by {noticed_by}, only by {failed:?}");
        println!("{flaw:?} fails {} of {} cases", failed.len(), conformance::CASES.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_store_without_a_flaw_passes() {
    let failed = conformance::failures(|| BrokenSubject::new(None)).await;
    assert!(failed.is_empty(), "{failed:?}");
}
