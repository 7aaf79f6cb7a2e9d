//! A sample of the cases holds for the gateway, and finds every relay with a mistake.

use semel_hostile::{Defect, Group, Options, Outcome, run};

/// Cases of the sample: some of them in every group.
const CASES: u64 = 3_200;

fn sample(only: Option<Group>, defect: Option<Defect>) -> Outcome {
    let options = Options { seed: 1, first: 0, cases: CASES, only, threads: 2, defect, tells: false };
    run(&options, &|_| {})
}

#[test]
fn the_upstream_sees_what_was_accepted_and_everybody_gets_their_own_answers() {
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

/// The mistake is found among the cases of this group, and for this reason.
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
fn a_front_that_passes_what_clients_say_about_themselves_is_found() {
    is_found(Defect::PassesReads, Group::HeaderName, "nothing has proven that");
}

#[test]
fn a_front_that_moves_trailers_into_the_head_is_found() {
    is_found(Defect::MovesTrailers, Group::Trailer, "must be refused");
}

#[test]
fn a_front_that_takes_half_messages_for_whole_ones_is_found() {
    is_found(Defect::BelievesResets, Group::Http2, "must be refused");
}

#[test]
fn one_connection_to_the_upstream_for_all_callers_is_found() {
    is_found(Defect::SharesConnection, Group::Surplus, "which it did not ask for");
}

#[test]
fn a_relay_that_repeats_requests_is_found() {
    is_found(Defect::Repeats, Group::Surplus, "it saw it 2 times");
}
