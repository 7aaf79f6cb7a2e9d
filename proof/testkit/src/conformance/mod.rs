//! One suite for all stores, written against the trait. A store conforms if every case passes; the cases are
//! the contract of [`Store`](semel_core::Store) in sentences.
//!
//! A store's tests are `semel_testkit::conformance_tests!(subject)`, where `subject` makes a [`Subject`]: one
//! test for each case. [`failures`] runs them all and names those that fail, for stores that must not pass.

mod claims;
mod expiry;
mod faults;
mod fences;
mod fencing;
mod leases;
mod records;
mod references;
mod requests;
mod verdicts;
mod workers;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_core::{Change, Claim, Decision, Fence, Holds, Record, RecordId, Records, StoreAnswer};

use crate::sample;

/// A store under test, with the controls of a test.
#[async_trait]
pub trait Subject: Send + Sync + 'static {
    /// Returns the store.
    fn store(&self) -> Arc<dyn Records>;

    /// Returns the holds of the store, one of which fences it.
    fn holds(&self) -> Arc<dyn Holds>;

    /// Moves the store's clock forward.
    fn advance(&self, by: Duration);

    /// Returns the optional abilities of this store.
    fn capabilities(&self) -> Capabilities;

    /// Makes the store lose the answer to its next write, which is made. Called only if
    /// [`Capabilities::loses_answers`] is true.
    fn lose_next_answer(&self) {}

    /// Returns a second store on the same data, as another process would open it. Called only if
    /// [`Capabilities::durable`] is true.
    async fn open_again(&self) -> Arc<dyn Records> {
        self.store()
    }
}

/// Optional abilities of a store.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// True if its records outlive it, and several stores can be open on the same data.
    pub durable: bool,
    /// True if a test can make it lose the answer to a write.
    pub loses_answers: bool,
    /// True if it keeps business references, former names of operations, and notes.
    pub references: bool,
}

type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// The requirement, as a sentence.
    pub name: &'static str,
    /// Runs the case; panics if the requirement does not hold.
    pub run: for<'a> fn(&'a dyn Subject) -> Running<'a>,
}

/// Names every case to a macro. A case that is not named here is dead code, which does not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_conformance_case {
    ([$($callback:tt)*] $($argument:tt)*) => {
        $($callback)*! { ($($argument)*)
            claims: one_of_64_racing_claims_wins
            claims: each_of_many_racing_keys_has_one_winner
            claims: a_claim_waits_while_another_runs
            claims: another_request_is_a_mismatch_before_anything_else
            claims: a_request_is_compared_in_the_version_of_its_record
            claims: a_claim_sent_again_is_recognised_as_the_same
            claims: scopes_do_not_see_each_other
            claims: a_released_key_is_acquired_by_exactly_one
            claims: a_look_never_acquires
            claims: a_claim_overtaken_by_its_own_release_runs_nothing
            claims: a_worker_starts_a_claimed_command_once
            claims: a_command_that_no_worker_starts_is_free_again
            fencing: a_completed_command_is_replayed
            fencing: a_failed_command_is_replayed
            fencing: a_completion_sent_again_is_recognised_as_the_same
            fencing: a_wrong_epoch_or_token_changes_nothing
            fencing: an_executor_that_was_replaced_is_fenced
            fencing: a_settled_record_never_changes
            fencing: of_racing_completions_one_is_stored
            leases: an_ended_lease_is_unknown_not_free
            leases: a_sweep_makes_ended_leases_unknown
            leases: two_sweepers_do_not_sweep_twice
            leases: a_renewal_extends_the_lease
            leases: a_renewal_never_leaves_unknown
            leases: the_current_executor_may_settle_an_unknown_late
            leases: an_operation_declared_safe_is_run_again_by_one
            leases: a_sweep_tells_what_became_of_each_record
            leases: the_age_of_a_state_counts_from_its_beginning
            verdicts: a_verdict_settles_an_unknown
            verdicts: a_late_completion_does_not_overwrite_a_verdict
            verdicts: not_executed_is_refused_while_a_call_may_be_in_flight
            verdicts: a_late_completion_is_evidence_against_not_executed
            verdicts: only_an_unknown_takes_a_verdict
            verdicts: a_postponed_look_for_evidence_is_counted
            verdicts: possible_effect_of_an_earlier_attempt_is_remembered_until_known
            expiry: an_expired_key_is_a_new_command
            expiry: an_expired_key_with_a_tombstone_is_refused
            expiry: only_settled_records_are_reaped
            expiry: reaping_goes_in_batches_beside_live_traffic
            expiry: two_reapers_do_not_reap_twice
            expiry: a_purge_leaves_a_tombstone_until_caches_have_noticed
            expiry: only_a_command_that_did_not_run_is_freed
            expiry: a_claim_survives_that_its_row_vanishes
            expiry: a_claim_tells_what_had_lapsed_before_it
            faults: an_ambiguous_claim_is_decided_by_its_token
            faults: an_ambiguous_completion_is_decided_by_its_token
            faults: a_dropped_claim_is_decided_by_sending_it_again
            faults: answered_changes_are_visible_to_another_process
            faults: two_processes_race_for_one_key
            records: large_and_binary_bodies_come_back_byte_for_byte
            records: repeated_headers_come_back_line_for_line
            records: a_record_says_why_and_what_it_made
            records: a_record_remembers_how_it_came_there
            records: a_record_is_found_by_its_operation_id
            records: records_are_listed_by_what_describes_them
            records: a_record_keeps_the_trace_of_its_first_attempt
            records: a_census_counts_records_by_operation_and_state
            records: operator_changes_are_noted_for_good
            fences: under_a_fence_only_what_the_store_knows_is_answered
            fences: under_a_fence_only_a_verdict_frees_what_counted_as_not_executed
            fences: under_a_fence_missing_keys_are_looked_up_first_where_an_operator_says_so
            fences: under_a_fence_no_new_command_takes_a_business_reference
            fences: under_a_fence_younger_keys_run_where_an_operator_says_so
            fences: a_command_whose_end_may_be_forgotten_is_unknown_and_no_worker_starts_it
            references: a_business_reference_is_held_by_one_command
            references: one_of_racing_commands_gets_the_reference
            references: a_reference_is_given_back_only_if_nothing_came_of_its_command
            references: a_reference_outlives_its_record
            references: a_reference_that_was_given_back_may_be_gone
            references: a_late_completion_takes_its_reference_back
            references: a_reference_that_another_command_holds_is_not_taken_back_silently
            references: a_reference_is_kept_while_an_earlier_attempt_may_have_run
            references: a_claim_that_is_taken_back_after_its_lease_gives_its_reference_back
            references: a_former_name_of_an_operation_still_counts
            references: commands_are_found_by_their_business_reference
            requests: a_request_is_kept_until_the_outcome_is_known
            requests: the_request_of_an_executor_that_died_is_kept
            requests: a_command_that_is_claimed_again_keeps_its_last_request
            requests: a_workers_command_keeps_its_request_while_it_is_unknown
            requests: reading_a_request_writes_a_note
            workers: a_command_for_later_waits_with_its_request
            workers: waiting_commands_are_listed_page_by_page
            workers: one_tenants_backlog_leaves_room_for_others
            workers: a_waiting_command_is_started_by_one_worker
            workers: a_requeued_command_waits_until_it_is_ready
            workers: a_new_attempt_brings_its_own_request
            workers: a_command_that_is_started_again_after_its_lease_may_have_run
            workers: a_command_with_phases_is_resumed_while_its_time_lasts
            workers: a_deferred_command_is_settled_by_its_message
            workers: the_items_of_a_bulk_request_are_shown_as_long_as_it_is
            workers: unknown_commands_come_up_for_reconciliation_in_turn
        }
    };
}

macro_rules! collect_cases {
    (() $($module:ident : $name:ident)*) => {
        /// Every case of the suite.
        pub const CASES: &[Case] =
            &[$(Case { name: stringify!($name), run: |subject| Box::pin($module::$name(subject)) }),*];
    };
}
for_each_conformance_case!([collect_cases]);

/// Makes one test of each case, for the store that `$subject` (an expression) makes anew for each.
#[macro_export]
macro_rules! conformance_tests {
    ((@each $subject:expr) $($module:ident : $name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::conformance::run(stringify!($name), &$subject).await;
            }
        )*
    };
    ($subject:expr) => {
        $crate::for_each_conformance_case!([$crate::conformance_tests] @each $subject);
    };
}

/// Runs the case of this name.
pub async fn run(name: &str, subject: &dyn Subject) {
    let case = CASES.iter().find(|case| case.name == name).expect("the case is in the list");
    (case.run)(subject).await;
}

/// Runs every case and returns the names of those that fail.
pub async fn failures<S: Subject>(subject: impl Fn() -> S) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for case in CASES {
        let (run, subject) = (case.run, subject());
        // A broken store may hang its case; a case that does not end has failed.
        let running = tokio::spawn(async move {
            tokio::time::timeout(Duration::from_secs(20), run(&subject)).await.expect("the case ends");
        });
        if running.await.is_err() {
            failed.push(case.name);
        }
    }
    failed
}

/// Claims, and expects the command to be acquired.
async fn acquire(store: &dyn Records, claim: &Claim) -> Record {
    let answer = store.claim(claim).await.expect("the store takes claims");
    assert_eq!(answer.decision, Decision::Execute, "the claim acquires the command");
    let record = answer.record.expect("an acquired command has a record");
    assert_eq!(record.head.token, claim.attempt.token, "the record carries the claim's token");
    record
}

/// Claims, and returns the decision.
async fn claim_decision(store: &dyn Records, claim: &Claim) -> Decision {
    store.claim(claim).await.expect("the store takes claims").decision
}

/// Applies a change that the store must accept, whatever its decision.
async fn apply(store: &dyn Records, id: &RecordId, change: Change) -> StoreAnswer {
    store.apply(id, &change).await.expect("the store takes changes")
}

/// Applies a change, and expects it to take effect.
async fn applied(store: &dyn Records, id: &RecordId, change: Change) -> Record {
    let answer = apply(store, id, change).await;
    assert_eq!(answer.decision, Decision::Applied);
    answer.record.expect("a change that keeps the record answers with it")
}

/// Returns the record as a reader sees it.
async fn read(store: &dyn Records, id: &RecordId) -> Record {
    store.get(id).await.expect("the store reads").record.expect("the record is there")
}

/// Claims `key`, completes it with `body`, and returns the claim and its fence.
async fn complete(store: &dyn Records, key: &str, body: &str) -> (Claim, Fence) {
    let claim = sample::claim(key);
    let fence = acquire(store, &claim).await.head.fence();
    applied(store, &sample::id(&claim), Change::complete(fence, sample::created(body))).await;
    (claim, fence)
}

/// Spawns `count` tasks that begin together, and collects their results.
async fn race<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(tokio::sync::Barrier::new(count));
    let tasks: Vec<_> = (0..count)
        .map(|number| {
            let (start, task) = (start.clone(), task(number));
            tokio::spawn(async move {
                start.wait().await;
                task.await
            })
        })
        .collect();
    let mut results = Vec::with_capacity(count);
    for task in tasks {
        results.push(task.await.expect("a racing task does not panic"));
    }
    results
}
