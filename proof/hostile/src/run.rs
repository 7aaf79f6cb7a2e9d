//! A run: several scenes at a time, each on a gateway that has seen others; every fourth before an HTTP/2 upstream.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::book::{Count, Violation};
use crate::broken::Defect;
use crate::case::Group;
use crate::lab::{Lab, Protocol};
use crate::scene::{self, CASES, Log};

/// Maximum number of scenes of one gateway, which bounds its book.
const SCENES: u64 = 250;
/// Number of violations of one gateway after which a run ends.
const ENOUGH: usize = 5;
/// Number of violations after which a run with a mistake ends: the mistake must be found for its own reason.
const ENOUGH_OF_A_MISTAKE: usize = 60;

/// Selection of cases.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed that draws the cases.
    pub seed: u64,
    /// Number of the first case.
    pub first: u64,
    /// Number of cases, rounded up to complete scenes.
    pub cases: u64,
    /// Group to run alone.
    pub only: Option<Group>,
    /// Number of gateways at the same time.
    pub threads: usize,
    /// Mistake to find.
    pub defect: Option<Defect>,
    /// True if every case is described, also without a violation.
    pub tells: bool,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Counts by group.
    pub counts: BTreeMap<Group, Count>,
    /// Violations, each with its case.
    pub violations: Vec<Violation>,
    /// Descriptions of violations for people: the bytes, the responses, and the upstream's record.
    pub stories: Vec<String>,
    /// Descriptions of all cases, if requested.
    pub told: Vec<String>,
    /// Duration of the run.
    pub took: Duration,
}

impl Outcome {
    /// Returns the number of cases that were run.
    pub fn cases(&self) -> u64 {
        self.counts.values().map(|count| count.cases).sum()
    }

    /// Returns groups whose requests were all accepted, or all refused: they prove nothing.
    pub fn one_sided(&self) -> Vec<Group> {
        let is_one_sided = |count: &Count| count.accepted == 0 || count.refused == 0;
        self.counts.iter().filter(|(_, count)| is_one_sided(count)).map(|(group, _)| *group).collect()
    }
}

/// Runs all cases, or until there are enough violations. Calls `progress` with the number of finished cases.
pub fn run(options: &Options, progress: &(dyn Fn(u64) + Sync)) -> Outcome {
    let begun = Instant::now();
    let first = options.first / CASES;
    let last = first + options.cases.div_ceil(CASES).max(1);
    let threads = options.threads.max(1) as u64;
    let share = (last - first).div_ceil(threads).clamp(1, SCENES);
    let (next, done, is_over) = (AtomicU64::new(first), AtomicU64::new(0), AtomicBool::new(false));
    let outcome = Mutex::new(Outcome::default());
    let enough = if options.defect.is_some() { ENOUGH_OF_A_MISTAKE } else { ENOUGH };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let from = next.fetch_add(share, Ordering::SeqCst);
                    if from >= last {
                        return;
                    }
                    let mut done_so_far = |violations: usize| {
                        progress(CASES * (done.fetch_add(1, Ordering::SeqCst) + 1));
                        if violations >= enough {
                            is_over.store(true, Ordering::SeqCst);
                        }
                        is_over.load(Ordering::SeqCst)
                    };
                    let part = life(options, from..last.min(from + share), &mut done_so_far);
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    outcome.add(part);
                }
            });
        }
    });
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.took = begun.elapsed();
    outcome
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        for (group, count) in other.counts {
            let sum = self.counts.entry(group).or_default();
            sum.cases += count.cases;
            sum.accepted += count.accepted;
            sum.refused += count.refused;
            sum.seen += count.seen;
        }
        self.violations.extend(other.violations);
        self.stories.extend(other.stories);
        self.told.extend(other.told);
    }
}

/// Runs the scenes of one gateway, from its start to its end.
fn life(options: &Options, scenes: std::ops::Range<u64>, is_over: &mut dyn FnMut(usize) -> bool) -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(async {
        let mut outcome = Outcome::default();
        let (mut http1, mut h2c) = (None, None);
        for scene in scenes {
            // Relays with a mistake speak HTTP/1.
            let protocol = if options.defect.is_some() { Protocol::Http1 } else { Protocol::of(scene) };
            let place = if protocol == Protocol::Http1 { &mut http1 } else { &mut h2c };
            if place.is_none() {
                *place = Some(Lab::start(protocol, options.defect).await);
            }
            let Some(lab) = place else { continue };
            let logs = scene::play(lab, options.seed, scene, options.only).await;
            let violations = std::mem::take(&mut lab.world.book().violations);
            let record = lab.world.take_record();
            outcome
                .stories
                .extend(violations.iter().map(|violation| tell(options, violation, scene, &logs, &record)));
            outcome.violations.extend(violations);
            if options.tells {
                outcome.told.extend(logs.into_iter().map(|log| format!("case {}\n{}", log.number, log.text)));
            }
            if is_over(outcome.violations.len()) {
                break;
            }
        }
        for lab in [http1, h2c].into_iter().flatten() {
            let world = lab.stop().await;
            let mut book = world.book();
            let violations = std::mem::take(&mut book.violations);
            let record = world.take_record();
            let story =
                |violation: &Violation| tell(options, violation, violation.case / CASES, &[], &record);
            let stories = violations.iter().map(story).collect();
            outcome.add(Outcome { counts: book.counts(), violations, stories, ..Outcome::default() });
        }
        outcome
    })
}

type Record = [(usize, &'static str, Vec<u8>)];

/// Describes a violation with its bytes and records.
fn tell(options: &Options, violation: &Violation, scene: u64, logs: &[Log], record: &Record) -> String {
    let Violation { case, what } = violation;
    let is_known = *case != u64::MAX;
    let place = if is_known { format!("case {case}") } else { format!("a case of scene {scene}") };
    let mut text = format!("VIOLATION in {place}, seed {}: {what}\n", options.seed);
    let again = if is_known { *case } else { scene * CASES };
    let only = options.only.map(|group| format!(" --only {group}")).unwrap_or_default();
    let broken = options.defect.map(|defect| format!(" --broken {}", defect.as_str())).unwrap_or_default();
    text += &format!("  again: cargo xtask hostile --seed {} --case {again}{only}{broken}\n", options.seed);
    if again / CASES != scene {
        text += &format!("  it showed in scene {scene}, cases {} and after\n", scene * CASES);
    }
    let theirs: Vec<&Log> = logs.iter().filter(|log| !is_known || log.number == *case).collect();
    theirs.iter().for_each(|log| text += &log.text);
    text += "  the upstream, in this scene:\n";
    for (connection, direction, bytes) in record {
        text += &format!("    connection {connection} {direction}: {}\n", bytes.escape_ascii());
    }
    text
}
