//! Failures of the service's own code: it fails, refuses, panics, or ends its transaction itself.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use semel_testkit::Chance;

/// Last attempt in one process whose code may fail.
const PATIENT_ATTEMPT: u32 = 2;

/// End of a command's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Well,
    /// Fails for good.
    Refuses,
    /// Fails for now.
    Fails,
    Panics,
    /// Ends its transaction itself, and then fails for good or for now.
    EndsAndRefuses,
    EndsAndFails,
}

impl End {
    pub(super) fn ends(self) -> bool {
        matches!(self, End::EndsAndRefuses | End::EndsAndFails)
    }
}

/// Ends of code, drawn from the seed.
pub(super) struct Moods {
    seed: u64,
    /// Number of attempts in this process, by name. Bounded by the commands of a run.
    attempts: Mutex<HashMap<String, u32>>,
}

impl Moods {
    pub(super) fn new(seed: u64) -> Moods {
        Moods { seed, attempts: Mutex::default() }
    }

    fn draw(&self, name: &str) -> Option<u64> {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = attempts.entry(name.to_owned()).or_default();
        *attempt += 1;
        let mut chance = Chance::of(self.seed, &format!("{name} {attempt}"));
        (*attempt <= PATIENT_ATTEMPT).then(|| chance.below(100))
    }

    /// Returns the end of the work of a whole command.
    pub(super) fn of_work(&self, canary: &str) -> End {
        match self.draw(canary) {
            Some(0..8) => End::Refuses,
            Some(8..18) => End::Fails,
            Some(18..25) => End::Panics,
            Some(25..31) => End::EndsAndRefuses,
            Some(31..37) => End::EndsAndFails,
            _ => End::Well,
        }
    }

    /// Returns the end of an item, or of a deferred command.
    pub(super) fn of_item(&self, name: &str) -> End {
        match self.draw(name) {
            Some(0..8) => End::Refuses,
            Some(8..25) => End::Fails,
            Some(25..32) => End::Panics,
            _ => End::Well,
        }
    }

    /// Returns the end of a local phase, or of the work that settles a command. Nothing is refused there, since a
    /// charge may be paid.
    pub(super) fn of_phase(&self, name: &str) -> End {
        match self.draw(name) {
            Some(0..10) => End::Fails,
            Some(10..18) => End::Panics,
            _ => End::Well,
        }
    }
}
