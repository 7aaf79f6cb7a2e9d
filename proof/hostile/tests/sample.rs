//! A sample of the cases finds no violation in the gateway, and finds every relay with a mistake.

use semel_hostile::{Defect, Group, Options, Outcome, run};

/// Number of cases in the sample, with some in every group.
const CASES: u64 = 3_200;

fn sample(only: Option<Group>, defect: Option<Defect>) -> Outcome {
    let options = Options { seed: 1, first: 0, cases: CASES, only, threads: 2, defect, tells: false };
    run(&options, &|_| {})
}

#[test]
fn upstream_sees_accepted_requests_and_clients_get_their_own_responses() {
    let outcome = sample(None, None);
    assert!(outcome.violations.is_empty(), "{}", outcome.stories.join("\n"));
    assert_eq!((outcome.cases(), outcome.counts.len()), (CASES, Group::ALL.len()));
    assert_eq!(
        outcome.one_sided(),
        [],
        "each group has accepted requests and refused ones: {:?}",
        outcome.counts
    );
}

/// Asserts that the mistake is found by cases of this group, for this reason.
fn is_found(defect: Defect, group: Group, reason: &str) {
    let outcome = sample(Some(group), Some(defect));
    let is_reason = outcome.violations.iter().any(|violation| violation.what.contains(reason));
    assert!(is_reason, "{} is not found: {:?}", defect.as_str(), outcome.violations);
}

#[test]
fn a_front_that_prefers_a_length_to_chunks_is_found() {
    is_found(Defect::PrefersLength, Group::Framing, "must be refused");
}

#[test]
fn a_front_that_passes_upgrades_is_found() {
    is_found(Defect::PassesUpgrades, Group::Upgrade, "it asks to switch protocols");
}

#[test]
fn a_front_that_decodes_paths_late_is_found() {
    is_found(Defect::DecodesLate, Group::Path, "it walked around a rule");
}

#[test]
fn front_that_forwards_claimed_identities_is_found() {
    is_found(Defect::PassesReads, Group::HeaderName, "nothing has proven that");
}

#[test]
fn a_front_that_moves_trailers_into_the_head_is_found() {
    is_found(Defect::MovesTrailers, Group::Trailer, "must be refused");
}

#[test]
fn front_that_takes_truncated_messages_for_complete_is_found() {
    is_found(Defect::BelievesResets, Group::Http2, "must be refused");
}

#[test]
fn relay_that_shares_one_upstream_connection_is_found() {
    is_found(Defect::SharesConnection, Group::Surplus, "which it did not ask for");
}

#[test]
fn a_relay_that_repeats_requests_is_found() {
    is_found(Defect::Repeats, Group::Surplus, "it saw it 2 times");
}
