//! Runs the checker over a configuration, with the real protocol or with a variant.

use std::time::{Duration, Instant};

use stateright::{Checker, Model};

use crate::configuration::Configuration;
use crate::invariants::SIGHTS;
use crate::model::Step;
use crate::promises::Promise;
use crate::protocol::Protocol;
use crate::story;
use crate::variants::Case;
use crate::world::World;

/// Result of a run of the checker.
pub struct Walk {
    /// Number of distinct states.
    pub states: usize,
    /// Number of steps to the deepest state.
    pub depth: usize,
    /// Duration of the run.
    pub time: Duration,
    /// Broken promises, each with a path to the violation.
    pub broken: Vec<Broken>,
    /// Names of the [`SIGHTS`] that were reached.
    pub seen: Vec<&'static str>,
}

/// A promise that does not hold.
pub struct Broken {
    /// The promise.
    pub promise: Promise,
    /// Path to the violation.
    pub path: Vec<(World, Option<Step>)>,
    /// The path in plain English, a line for each step.
    pub story: Vec<String>,
}

impl Broken {
    /// Returns the number of steps in the path.
    pub fn steps(&self) -> usize {
        self.path.len().saturating_sub(1)
    }
}

/// Checks every state of a configuration under the real protocol.
pub fn walk(configuration: &Configuration, threads: usize) -> Walk {
    run(&Protocol::real(configuration), threads)
}

/// Searches for the shortest path to the promise that a variant breaks.
pub fn refute(case: &Case) -> Walk {
    // One thread searches breadth first, so the path is a shortest one.
    run(&Protocol::wrong(case), 1)
}

fn run(model: &Protocol, threads: usize) -> Walk {
    let begun = Instant::now();
    let checker = model.clone().checker().threads(threads).spawn_bfs().join();
    let mut found = checker.discoveries();
    let broken = Promise::ALL.into_iter().filter_map(|promise| {
        let path = found.remove(promise.name())?.into_vec();
        let story = story::tell(model, &path, promise);
        Some(Broken { promise, path, story })
    });
    let broken = broken.collect();
    let seen = SIGHTS.iter().map(|(name, _)| *name).filter(|name| found.contains_key(name)).collect();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    Walk { states, depth, time: begun.elapsed(), broken, seen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        shipped,
        variants::{self, Variant},
    };

    fn is_kept_in(configuration: &Configuration) {
        let walk = walk(configuration, 1);
        let broken: Vec<_> = walk.broken.iter().map(|broken| (broken.promise, &broken.story)).collect();
        assert!(broken.is_empty(), "{}: {broken:#?}", configuration.name);
        assert!(walk.states > 1000, "{}: {} states are not worth a walk", configuration.name, walk.states);
    }

    #[test]
    fn no_promise_is_broken_when_nodes_die() {
        is_kept_in(&shipped::TWO_AND_A_CRASH);
    }

    #[test]
    fn no_promise_is_broken_when_the_clock_leaps() {
        is_kept_in(&shipped::TWO_AND_A_LEAP);
    }

    #[test]
    fn no_promise_is_broken_by_workers() {
        is_kept_in(&shipped::ONE_FOR_WORKERS);
    }

    #[test]
    fn late_evidence_counts_when_an_operator_errs() {
        is_kept_in(&shipped::LATE_EVIDENCE);
    }

    #[test]
    fn no_promise_is_broken_when_the_store_is_restored() {
        is_kept_in(&shipped::TWO_RESTORED);
    }

    #[test]
    fn no_promise_is_broken_when_the_fence_is_lifted() {
        is_kept_in(&shipped::RESTORED_LIFTED);
    }

    fn are_refuted(cases: &[variants::Case], is_meant: impl Fn(&Configuration) -> bool) {
        for case in cases.iter().filter(|case| is_meant(case.configuration)) {
            let walk = refute(case);
            assert_eq!(walk.broken.len(), 1, "{}: not refuted in {} states", case.name, walk.states);
            assert_eq!(walk.broken[0].promise, case.breaks, "{}", case.name);
        }
    }

    #[test]
    fn wrong_protocols_are_refuted() {
        are_refuted(&variants::ALL, |configuration| configuration.requests.len() < 3);
    }

    #[test]
    fn wrong_protocols_that_take_three_requests_are_refuted() {
        are_refuted(&variants::ALL, |configuration| configuration.requests.len() == 3);
    }

    #[test]
    fn wrong_protocols_for_a_restored_store_are_refuted() {
        are_refuted(&variants::RESTORED, |configuration| configuration.requests.len() < 3);
    }

    #[test]
    fn wrong_evidence_about_a_lost_command_is_refuted_before_its_second_effect() {
        // The effect itself takes a third request, and more states.
        for variant in [Variant::DoubtLookedUpEarly, Variant::LookedUpById, Variant::OldQuarantine] {
            let case = variants::RESTORED.iter().find(|case| case.variant == variant);
            let case = case.expect("it is one of them");
            let (breaks, configuration) = (Promise::EvidenceEndsUnknown, &shipped::TWO_RESTORED);
            are_refuted(&[variants::Case { breaks, configuration, ..*case }], |_| true);
        }
    }

    #[test]
    fn dropping_an_assumption_breaks_a_promise() {
        are_refuted(&variants::ASSUMED, |_| true);
    }

    #[test]
    fn refutation_reads_as_a_story() {
        let case = variants::ALL.iter().find(|case| case.name == "sweep-frees").expect("it is one of them");
        let story = refute(case).broken.remove(0).story;
        assert_eq!(story[0], "request 1 reaches A, which sends a claim");
        assert_eq!(story[1], "the store takes the claim of A (request 1): epoch 1");
        assert_eq!(story[2], "A (request 1) looks at its lease: it may send");
        assert_eq!(story[3], "10 s pass: A (request 1) sleeps between looking and sending");
        assert_eq!(story[11], "=> two effects: of request 1 and of request 2");
    }

    #[test]
    fn names_tell_configurations_and_variants_apart() {
        let cases = variants::all().chain(&variants::ASSUMED).map(|case| case.name);
        let configurations = shipped::ALL.iter().map(|configuration| configuration.name);
        for mut names in [cases.collect::<Vec<_>>(), configurations.collect()] {
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{names:?}");
        }
    }
}
