//! The store's time continues steadily through every change of its clock, for every observer and in every
//! order.

use std::time::Duration;

use proptest::prelude::*;
use semel_core::Timestamp;
use semel_core::jump::{ClockReading, ClockWatch, JUMP_TOLERANCE};
use semel_core::time::BootTime;

const HOUR: i64 = 3_600_000;
const TOLERANCE: i64 = JUMP_TOLERANCE.as_millis() as i64;
/// Start of the simulation, by the store's clock.
const BEGIN: i64 = 1_800_000_000_000;

/// A store, the true time, and machines that watch the store's clock.
struct World {
    /// True time since the start.
    time: i64,
    /// Deviation of the store's clock from the true time.
    wrong_by: i64,
    skipped: i64,
    watches: Vec<(ClockWatch, i64)>,
}

impl World {
    fn new(machines: usize) -> World {
        // Each machine was booted at another time.
        let watches =
            (0..machines).map(|number| (ClockWatch::default(), 1_000 * (1 + number as i64))).collect();
        let mut world = World { time: 0, wrong_by: 0, skipped: 0, watches };
        (0..machines).for_each(|number| world.look(number, 0));
        world
    }

    fn clock(&self) -> i64 {
        BEGIN + self.time + self.wrong_by
    }

    /// Returns the store's time, on which decisions are made.
    fn now(&self) -> i64 {
        self.clock() - self.skipped
    }

    fn own(&self, number: usize, time: i64) -> BootTime {
        let since_boot = u64::try_from(self.watches[number].1 + time).expect("time goes on");
        BootTime::from_duration(Duration::from_millis(since_boot))
    }

    /// Returns a machine's reading over a network with this total delay.
    fn read(&mut self, number: usize, delay: i64) -> ClockReading {
        let before = self.own(number, self.time);
        self.time += delay / 2;
        let (clock, skipped) = (Timestamp::from_millis(self.clock()), self.skipped);
        self.time += delay - delay / 2;
        ClockReading { clock, skipped, before, after: self.own(number, self.time) }
    }

    /// Reads once, and writes the result.
    fn look(&mut self, number: usize, delay: i64) {
        for _ in 0..4 {
            let reading = self.read(number, delay);
            let mut watch = self.watches[number].0;
            let wanted = watch.see(&reading);
            self.watches[number].0 = watch;
            match wanted {
                Some(skipped) if self.skipped == reading.skipped => self.skipped = skipped,
                Some(_) => {}
                None => return,
            }
        }
        panic!("a look ends");
    }

    fn restart(&mut self, number: usize) {
        self.watches[number].0 = ClockWatch::default();
        self.look(number, 0);
    }
}

#[test]
fn a_forward_clock_jump_seen_by_three_machines_is_skipped_once() {
    let mut world = World::new(3);
    world.time += 1_000;
    world.wrong_by += 3 * HOUR;
    for number in [2, 0, 1, 1, 0, 2] {
        world.look(number, 10);
        assert_eq!(world.skipped / 60_000, 180, "machine {number}");
        assert!((world.now() - BEGIN - world.time).abs() <= 10);
    }
}

#[test]
fn a_clock_watch_started_before_a_jump_is_recorded_does_not_count_it_again() {
    let mut world = World::new(3);
    world.wrong_by += 3 * HOUR;
    world.restart(1);
    assert_eq!(world.skipped, 0, "it cannot know");
    world.look(0, 0);
    assert_eq!(world.skipped, 3 * HOUR);
    for number in [1, 2, 1, 0] {
        world.look(number, 0);
        assert_eq!(world.skipped, 3 * HOUR, "machine {number}");
    }
}

#[test]
fn correcting_a_jumped_clock_removes_its_skip() {
    let mut world = World::new(2);
    world.wrong_by = 3 * HOUR;
    world.look(0, 0);
    world.wrong_by = 0;
    world.restart(1);
    world.look(0, 0);
    assert_eq!(world.skipped, 0);
    assert_eq!(world.now(), BEGIN + world.time);
    world.look(1, 0);
    assert!(
        world.now() <= BEGIN + world.time,
        "who began in between may hold time back, and never lets it jump"
    );
}

#[test]
fn store_time_does_not_jump_when_a_clock_set_back_is_put_right() {
    let mut world = World::new(1);
    world.wrong_by = -2 * HOUR;
    world.look(0, 0);
    assert_eq!(world.skipped, 0, "the store's time is never ahead of its clock");
    let now = world.now();
    world.wrong_by = 0;
    world.look(0, 0);
    assert!(world.now() - now <= TOLERANCE, "records of the time between are not forgotten early");
}

#[test]
fn a_clock_watch_is_unsteady_until_a_jump_is_recorded() {
    let mut world = World::new(2);
    world.skipped = 500;
    let steady = |world: &mut World, number: usize| {
        let before = world.own(number, world.time);
        world.time += 20;
        let told = Timestamp::from_millis(world.now());
        let after = world.own(number, world.time);
        world.watches[number].0.is_steady(told, before, after)
    };
    world.look(0, 0);
    for _ in 0..3 {
        world.time += 60_000;
        assert!(steady(&mut world, 0));
    }
    world.wrong_by += 3 * HOUR;
    assert!(!steady(&mut world, 0));
    world.look(0, 10);
    assert!(steady(&mut world, 0));
    // A watch that has only ever seen times, and no clock.
    world.watches[1].0 = ClockWatch::default();
    assert!(steady(&mut world, 1));
    world.wrong_by += 3 * HOUR;
    assert!(!steady(&mut world, 1));
    world.look(1, 10);
    assert_eq!(world.skipped / 60_000, 360);
    assert!(steady(&mut world, 1));
    world.wrong_by -= 5 * HOUR;
    assert!(!steady(&mut world, 1));
}

#[test]
fn drift_and_small_corrections_are_no_jumps() {
    let mut world = World::new(1);
    for _ in 0..10_000 {
        world.time += 60_000;
        world.wrong_by += 30;
        world.look(0, 200);
    }
    assert_eq!(world.skipped, 0);
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    Time(i64),
    Jump(i64),
    Look { number: usize, delay: i64 },
    Restart(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (1..HOUR).prop_map(Happens::Time),
        (-5 * HOUR..5 * HOUR).prop_map(Happens::Jump),
        (0..3usize, 0..400i64).prop_map(|(number, delay)| Happens::Look { number, delay }),
        (1..3usize).prop_map(Happens::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// As long as one machine keeps watching, only time that really passed counts, for any record made after
    /// a reading of the store.
    #[test]
    fn only_elapsed_time_counts_while_one_machine_watches_the_clock(steps in prop::collection::vec(happens(), 1..60)) {
        let mut world = World::new(3);
        let mut jumps = 0;
        let mut moments = vec![(world.now(), world.time)];
        for step in steps {
            match step {
                Happens::Time(time) => world.time += time,
                Happens::Jump(by) => {
                    world.wrong_by += by;
                    jumps += 1;
                    // The first machine sees every jump, before or after the others do.
                }
                Happens::Look { number, delay } => world.look(number, delay),
                Happens::Restart(number) => world.restart(number),
            }
            if matches!(step, Happens::Look { number: 0, .. }) {
                prop_assert!(world.skipped >= 0);
                for (then, time) in &moments {
                    let counted = world.now() - then;
                    let passed = world.time - time;
                    // Allowed remainder of each jump: the tolerance, and the delay of the store's answers.
                    let allowed = (jumps + 1) * (TOLERANCE + 800);
                    prop_assert!(counted <= passed + allowed, "{counted} of {passed} ms after {jumps} jumps");
                }
                moments.push((world.now(), world.time));
            }
        }
    }
}

/// A look that took `delay` in all, of a machine whose time is as the truth, at a clock that is `ahead` of it.
fn reading(time: i64, delay: i64, ahead: i64, skipped: i64) -> ClockReading {
    let own = |time: i64| BootTime::from_duration(Duration::from_millis(time as u64));
    let clock = Timestamp::from_millis(time + ahead);
    ClockReading { clock, skipped, before: own(time - delay / 2), after: own(time + delay / 2) }
}

#[test]
fn a_clock_watch_resumes_from_its_stored_offset() {
    assert_eq!(ClockWatch::default().offset(), None);
    let mut watch = ClockWatch::seen(7_000, 50);
    assert_eq!(watch.offset(), Some(7_000));
    assert_eq!(watch.see(&reading(10_000, 0, 7_000 + HOUR, 50)), Some(50 + HOUR));
}

#[test]
fn a_clock_that_moves_by_as_much_as_is_tolerated_has_not_jumped() {
    let moved = |by: i64| ClockWatch::seen(7_000, HOUR).see(&reading(10_000, 0, 7_000 + by, HOUR));
    assert_eq!((moved(TOLERANCE), moved(-TOLERANCE)), (None, None));
    assert_eq!(moved(TOLERANCE + 1), Some(HOUR + TOLERANCE + 1));
    assert_eq!(moved(-TOLERANCE - 1), Some(HOUR - TOLERANCE - 1));
}

#[test]
fn a_slow_clock_reading_does_not_hide_a_jump_between_quick_readings() {
    let jump = TOLERANCE + 500;
    let mut watch = ClockWatch::default();
    assert_eq!(watch.see(&reading(10_000, 0, 7_000, 0)), None);
    assert_eq!(watch.see(&reading(20_000, 2 * TOLERANCE, 7_000, 0)), None, "slow");
    assert_eq!(watch.see(&reading(30_000, 0, 7_000 + jump, 0)), Some(jump));

    let steady =
        |watch: &mut ClockWatch, told: ClockReading| watch.is_steady(told.clock, told.before, told.after);
    let mut watch = ClockWatch::default();
    assert!(steady(&mut watch, reading(10_000, 2 * TOLERANCE, 7_000, 0)), "slow");
    assert!(steady(&mut watch, reading(20_000, 0, 7_000, 0)));
    assert!(!steady(&mut watch, reading(30_000, 0, 7_000 + jump, 0)));
}
