//! A run: scenes, some at a time, each in a gateway that has already seen others; one of four before an upstream that speaks
//! HTTP/2.

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

/// The most scenes of one gateway, so that what is remembered of it is bounded.
const SCENES: u64 = 250;
/// After so many violations of one gateway, a run ends.
const ENOUGH: usize = 5;
/// The same with a mistake, which is to be found for its own reason.
const ENOUGH_OF_A_MISTAKE: usize = 60;

/// Which cases are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed that they are drawn from.
    pub seed: u64,
    /// The first of them.
    pub first: u64,
    /// How many, rounded up to whole scenes.
    pub cases: u64,
    /// Cases of one group only.
    pub only: Option<Group>,
    /// Gateways at the same time.
    pub threads: usize,
    /// A mistake that is to be found.
    pub defect: Option<Defect>,
    /// Whether every case is told, also where all is well.
    pub tells: bool,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Cases by group.
    pub counts: BTreeMap<Group, Count>,
    /// Violations, each with its case.
    pub violations: Vec<Violation>,
    /// Violations as people read them: the bytes, the answers, and the upstream's record.
    pub stories: Vec<String>,
    /// Cases as people read them, if that was asked for.
    pub told: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Cases that were run.
    pub fn cases(&self) -> u64 {
        self.counts.values().map(|count| count.cases).sum()
    }

    /// The groups whose cases were all accepted, or all refused: they prove nothing.
    pub fn one_sided(&self) -> Vec<Group> {
        let is_one_sided = |count: &Count| count.accepted == 0 || count.refused == 0;
        self.counts.iter().filter(|(_, count)| is_one_sided(count)).map(|(group, _)| *group).collect()
    }
}

/// Runs cases until all were run, or enough is wrong. `progress` hears how many were run so far.
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

/// The life of one gateway.
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

/// A violation with all that belongs to it.
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
