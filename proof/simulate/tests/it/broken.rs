//! What is wrong is found, and what is right is not.

use semel_simulate::{Broken, Options, run_many};

/// So many seeds are enough for each: the last is found by the 65th.
const ENOUGH: u64 = 200;
/// `cargo xtask simulate` runs many more.
const GOOD: u64 = 60;

fn is_found(broken: Broken) {
    let summary = run_many(0, ENOUGH, 2, Options { broken: Some(broken), trace: false }, true);
    assert!(!summary.failing.is_empty(), "{ENOUGH} seeds do not show {}", broken.as_str());
}

#[test]
fn nothing_is_wrong_with_semel() {
    let summary = run_many(0, GOOD, 2, Options::default(), false);
    assert!(summary.failing.is_empty(), "{}", summary.stories(None));
    assert_eq!(summary.seeds, GOOD);
}

#[test]
fn a_store_that_loses_what_it_acknowledged_is_found() {
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
fn a_driver_that_says_unavailable_of_what_it_may_have_written_is_found() {
    is_found(Broken::SilentCommit);
}

#[test]
fn a_command_that_is_run_again_when_its_lease_ends_is_found() {
    is_found(Broken::Rerun);
}

#[test]
fn a_look_up_that_releases_at_once_is_found() {
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
fn every_way_to_be_wrong_has_a_name() {
    for broken in Broken::ALL {
        assert_eq!(Broken::parse(broken.as_str()), Some(broken));
    }
    assert_eq!(Broken::parse("nothing"), None);
}
