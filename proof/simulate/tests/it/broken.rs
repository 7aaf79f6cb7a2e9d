//! Detection: deliberate faults are found, and Semel itself has none.

use semel_simulate::{Broken, Options, run_many};

/// Number of seeds for each fault: the 65th finds the last one.
const ENOUGH: u64 = 200;
/// Number of seeds without a fault; `cargo xtask simulate` runs many more.
const GOOD: u64 = 60;

fn is_found(broken: Broken) {
    let summary = run_many(0, ENOUGH, 2, Options { broken: Some(broken), trace: false }, true);
    assert!(!summary.failing.is_empty(), "{ENOUGH} seeds do not show {}", broken.as_str());
}

#[test]
fn semel_violates_no_invariant() {
    let summary = run_many(0, GOOD, 2, Options::default(), false);
    assert!(summary.failing.is_empty(), "{}", summary.stories(None));
    assert_eq!(summary.seeds, GOOD);
}

#[test]
fn store_that_loses_acknowledged_writes_is_found() {
    is_found(Broken::LostWrite);
}

#[test]
fn a_store_without_a_fence_is_found() {
    is_found(Broken::NoFence);
}

#[test]
fn a_store_that_looks_first_and_inserts_later_is_found() {
    is_found(Broken::RacyClaim);
}

#[test]
fn a_store_that_forgets_too_early_is_found() {
    is_found(Broken::EarlyReap);
}

#[test]
fn driver_that_reports_a_possible_write_as_unavailable_is_found() {
    is_found(Broken::SilentCommit);
}

#[test]
fn command_that_is_rerun_after_lease_expiry_is_found() {
    is_found(Broken::Rerun);
}

#[test]
fn lookup_that_releases_at_once_is_found() {
    is_found(Broken::HastyVerdict);
}

#[test]
fn a_call_that_is_sent_twice_is_found() {
    is_found(Broken::SecondCall);
}

#[test]
fn a_claim_without_the_request_that_it_promises_is_found() {
    is_found(Broken::MissingRequest);
}

#[test]
fn every_fault_has_a_name() {
    for broken in Broken::ALL {
        assert_eq!(Broken::parse(broken.as_str()), Some(broken));
    }
    assert_eq!(Broken::parse("nothing"), None);
}
