//! The benchmark: one module for each section, and the rounds they share.
//!
//! Compared subjects take turns within one run: one round of each, then the next round of each. Changes of the machine
//! meanwhile affect all of them alike. Results are medians with the spread of the rounds.

pub mod apart;
pub mod commands;
pub mod compared;
mod finding;
pub mod growth;
pub mod instructions;
pub mod machine;
pub mod outbox;
pub mod proxies;
pub mod replay;
pub mod report;
pub mod requests;
pub mod served;
pub mod size;
pub mod stores;
pub mod storm;
pub mod ways;

use std::time::{Duration, Instant};

use semel_core::{Clock, SystemClock};

use crate::chart::figure;

pub use crate::Result;

/// Extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Some minutes: a test of the benchmark with rough figures.
    Quick,
    /// The full run that `bench/RESULTS.md` is made of.
    Whole,
}

impl Form {
    /// Returns the number of rounds.
    pub const fn rounds(self) -> usize {
        match self {
            Form::Quick => 2,
            Form::Whole => 7,
        }
    }

    /// Returns the number of rounds for subjects that take long or hardly vary.
    pub const fn few_rounds(self) -> usize {
        match self {
            Form::Quick => 1,
            Form::Whole => 3,
        }
    }

    /// Returns the number of rounds for comparisons with a floor: the shorter the turns, the less the machine changes
    /// between the two.
    pub const fn many_rounds(self) -> usize {
        match self {
            Form::Quick => 4,
            Form::Whole => 20,
        }
    }

    /// Returns the duration of a turn.
    pub const fn turn(self) -> Duration {
        match self {
            Form::Quick => Duration::from_millis(500),
            Form::Whole => Duration::from_secs(1),
        }
    }

    /// Returns the duration of a turn when there are [many](Form::many_rounds).
    pub const fn short_turn(self) -> Duration {
        match self {
            Form::Quick => Duration::from_millis(250),
            Form::Whole => Duration::from_millis(500),
        }
    }
}

/// Figures of several rounds, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(Vec<f64>);

impl Figures {
    /// Adds the figure of one more round.
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// Returns the median; 0 without figures.
    pub fn median(&self) -> f64 {
        self.sorted().get(self.0.len() / 2).copied().unwrap_or(0.0)
    }

    /// Returns the ratios to the figures of `floor`, round by round, since changes of the machine in a round affect
    /// both.
    pub fn beside(&self, floor: &Figures) -> Figures {
        self.0.iter().zip(&floor.0).map(|(figure, floor)| figure / floor.max(f64::MIN_POSITIVE)).collect()
    }

    /// Returns the figures in a larger unit, one of which is `so_many` of this one.
    pub fn in_units_of(&self, so_many: f64) -> Figures {
        self.0.iter().map(|figure| figure / so_many).collect()
    }

    /// Returns the least and the greatest figure.
    pub fn spread(&self) -> (f64, f64) {
        let sorted = self.sorted();
        (sorted.first().copied().unwrap_or(0.0), sorted.last().copied().unwrap_or(0.0))
    }

    /// Formats median and spread: `5.00 (1.00 to 9.00)`.
    pub fn words(&self) -> String {
        let (low, high) = self.spread();
        format!("{} ({} to {})", figure(self.median()), figure(low), figure(high))
    }
}

impl FromIterator<f64> for Figures {
    fn from_iter<T: IntoIterator<Item = f64>>(figures: T) -> Figures {
        let mut all = Figures::default();
        figures.into_iter().for_each(|figure| all.push(figure));
        all
    }
}

/// Returns the current date, as `2026-01-31`.
pub fn today() -> String {
    SystemClock.now().to_rfc3339().chars().take(10).collect()
}

/// Runs `step` repeatedly in `at_once` tasks for `time`. Returns the rate per second.
pub async fn drive<F, R>(at_once: usize, time: Duration, step: F) -> Result<f64>
where
    F: Fn() -> R + Clone + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..at_once {
        let step = step.clone();
        tasks.spawn(async move {
            let mut done = 0_u32;
            while begun.elapsed() < time {
                step().await;
                done += 1;
            }
            done
        });
    }
    let mut done = 0.0;
    while let Some(part) = tasks.join_next().await {
        done += f64::from(part?);
    }
    Ok(done / begun.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_median_and_spread() {
        let figures: Figures = [5.0, 1.0, 9.0].into_iter().collect();
        assert_eq!((figures.median(), figures.spread()), (5.0, (1.0, 9.0)));
        assert_eq!(figures.words(), "5.00 (1.00 to 9.00)");
        assert_eq!((Figures::default().median(), Figures::default().spread()), (0.0, (0.0, 0.0)));
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let floor: Figures = [100.0, 10.0, 50.0].into_iter().collect();
        let slower: Figures = [90.0, 9.0, 40.0].into_iter().collect();
        // The ratio of the medians would be 0.8.
        assert_eq!(slower.beside(&floor).words(), "0.90 (0.80 to 0.90)");
        assert_eq!(floor.in_units_of(10.0).words(), "5.00 (1.00 to 10.0)");
    }
}
