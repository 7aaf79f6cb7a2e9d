//! Runs one or many seeds and sums up their results.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use semel_checker::{Event, Tally};
use sha2::{Digest, Sha256};

use crate::broken::Broken;
use crate::coverage::Coverage;
use crate::panics;
use crate::world::World;

/// Options of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Deliberate fault, if any.
    pub broken: Option<Broken>,
    /// True if the trace is kept for display.
    pub trace: bool,
}

/// Result of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Hash of all events. Runs with equal hashes were equal.
    pub hash: String,
    /// Violations and failures, as stories.
    pub wrong: Option<String>,
    /// Numbers of the violated invariants; 0 for failures that the history alone does not show.
    pub violated: Vec<u8>,
    /// Simulated duration.
    pub simulated: Duration,
    /// Number of events of each kind.
    pub tally: Tally,
    /// Situations that were met.
    pub coverage: Coverage,
    /// All events, if the trace was kept.
    pub trace: Vec<String>,
    /// History that was judged, if the trace was kept.
    pub history: Vec<Event>,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    panics::watch();
    let mut world = World::new(seed, options.broken, options.trace);
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    let World { now, scribe, coverage, mut wrong, .. } = world;
    wrong.extend(panics::take().into_iter().map(|panic| format!("something panicked: {panic}")));
    let written = scribe.finish();
    let mut violated: Vec<u8> = wrong.iter().map(|_| 0).collect();
    let mut stories = wrong.join("\n");
    match semel_checker::check(&written.events) {
        Ok(report) if report.violations.is_empty() => {}
        Ok(report) => {
            violated.extend(report.violations.iter().map(|violation| violation.invariant));
            stories = format!("{report}\n{stories}");
        }
        // An aborted run has no complete history, and its failure is reported already.
        Err(_) if ran.is_err() => {}
        Err(malformed) => {
            violated.push(0);
            stories = format!("the history cannot be judged: {malformed}\n{stories}");
        }
    }
    violated.sort_unstable();
    violated.dedup();
    Outcome {
        seed,
        hash: written.hash,
        wrong: (!violated.is_empty()).then(|| stories.trim_end().to_owned()),
        violated,
        simulated: Duration::from_millis(now),
        tally: Tally::of(&written.events),
        coverage,
        trace: written.trace,
        history: if options.trace { written.events } else { Vec::new() },
    }
}

/// Largest number of failing seeds that are reported as stories.
const MOST_STORIES: usize = 3;

/// Result of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of seeds that were run.
    pub seeds: u64,
    /// Failing seeds, with their stories.
    pub failing: BTreeMap<u64, String>,
    /// Hash of all hashes, in the order of the seeds.
    pub hash: String,
    /// Situations that were met.
    pub coverage: Coverage,
    tally: Tally,
    simulated: Duration,
    took: Duration,
}

/// Runs `count` seeds from `from` on, in `threads` threads. With `first`, ends at the first failing seed.
pub fn run_many(from: u64, count: u64, threads: usize, options: Options, first: bool) -> Summary {
    let begun = Instant::now();
    let next = AtomicU64::new(from);
    let hashes = Mutex::new(BTreeMap::new());
    let summary = Mutex::new(Summary::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= from.saturating_add(count) {
                return;
            }
            let outcome = run(seed, options);
            if first && outcome.wrong.is_some() {
                next.store(u64::MAX / 2, Ordering::SeqCst);
            }
            hashes.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, outcome.hash.clone());
            summary.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let hashes = hashes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut all = Sha256::new();
    hashes.values().for_each(|hash| all.update(hash));
    let hash = all.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    Summary { hash, took: begun.elapsed(), ..summary }
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.simulated += outcome.simulated;
        self.coverage.add(&outcome.coverage);
        self.tally.keys += outcome.tally.keys;
        self.tally.requests += outcome.tally.requests;
        self.tally.effects += outcome.tally.effects;
        add(&mut self.tally.answers, outcome.tally.answers);
        add(&mut self.tally.faults, outcome.tally.faults);
        add(&mut self.tally.verdicts, outcome.tally.verdicts);
        add(&mut self.tally.records, outcome.tally.records);
        if let Some(wrong) = outcome.wrong {
            self.failing.insert(outcome.seed, wrong);
        }
    }

    /// Returns the failing seeds as stories, each with the command that reruns it.
    pub fn stories(&self, broken: Option<Broken>) -> String {
        let mut told = String::new();
        for (seed, wrong) in self.failing.iter().take(MOST_STORIES) {
            told.push_str(&format!(
                "seed {seed} fails:\n{wrong}\n\nrun it again: {}\n\n",
                replay(*seed, broken)
            ));
        }
        let others: Vec<String> = self.failing.keys().skip(MOST_STORIES).map(u64::to_string).collect();
        if !others.is_empty() {
            told.push_str(&format!("these fail, too: {}\n", others.join(", ")));
        }
        told
    }
}

/// Returns the command that reruns a seed.
fn replay(seed: u64, broken: Option<Broken>) -> String {
    let broken = broken.map_or(String::new(), |broken| format!(" --broken {}", broken.as_str()));
    format!("cargo xtask simulate --seed {seed}{broken} --trace")
}

fn add<N: Ord>(sum: &mut BTreeMap<N, usize>, counts: BTreeMap<N, usize>) {
    for (name, count) in counts {
        *sum.entry(name).or_default() += count;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64().max(0.001);
        writeln!(f, "  seeds      {}, {:.1} a second", self.seeds, self.seeds as f64 / seconds)?;
        writeln!(f, "  simulated  {:.1} hours in {seconds:.0} s", self.simulated.as_secs_f64() / 3600.0)?;
        writeln!(f, "{}", self.tally)?;
        writeln!(f, "  failing    {}", self.failing.len())?;
        write!(f, "  hash       {}", self.hash)
    }
}
