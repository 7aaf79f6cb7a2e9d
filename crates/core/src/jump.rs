//! Jumps of a store's clock, and the store's time without them.
//!
//! Leases, expiry, tombstones and quarantines are decided by the store's time: its clock less the time that it *skipped*. A clock
//! that is set forward would otherwise forget records whose retries are still to come, and their commands would run again. Every
//! process that uses a store compares its clock with the time since its own machine was booted, which nobody sets and which goes on
//! while the machine is suspended. What the clock gains beyond that is a jump, and is added to the skipped time in the store.
//!
//! Invariant: the skipped time is never negative, so that the store's time is never ahead of its clock.

use std::time::Duration;

use crate::time::{BootTime, Timestamp};

/// How far a clock may be set without being noticed: NTP and leap seconds move it by less.
pub const JUMP_TOLERANCE: Duration = Duration::from_secs(1);

const TOLERANCE: i64 = JUMP_TOLERANCE.as_millis() as i64;

/// One look at a store's clock, between two looks at this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The store's clock.
    pub clock: Timestamp,
    /// The milliseconds that the store has skipped.
    pub skipped: i64,
    /// The time of this machine before the store was asked.
    pub before: BootTime,
    /// The time of this machine after the store has answered.
    pub after: BootTime,
}

impl ClockReading {
    /// The least and the most that the store's clock can be ahead of this machine's time, in milliseconds.
    fn offset(&self) -> Offset {
        let ahead_of = |own: BootTime| self.clock.as_millis().saturating_sub(own.as_millis());
        Offset { least: ahead_of(self.after), most: ahead_of(self.before) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offset {
    least: i64,
    most: i64,
}

impl Offset {
    /// What both say; the later one, if clocks that go at different speeds have left the earlier one behind.
    fn narrowed(self, later: Offset) -> Offset {
        let both = Offset { least: self.least.max(later.least), most: self.most.min(later.most) };
        if both.least <= both.most { both } else { later }
    }
}

/// Watches the clock of one store for jumps, on one machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockWatch(Option<SeenClock>);

/// The clock as it was last seen.
#[derive(Clone, Copy, Debug)]
struct SeenClock {
    offset: Offset,
    skipped: i64,
}

impl ClockWatch {
    /// Returns a watch that goes on from an offset that was seen before, at a time when the store had skipped so much.
    pub fn seen(offset: i64, skipped: i64) -> ClockWatch {
        ClockWatch(Some(SeenClock { offset: Offset { least: offset, most: offset }, skipped }))
    }

    /// The milliseconds that the clock was last seen ahead of this machine's time.
    pub fn offset(&self) -> Option<i64> {
        self.0.map(|seen| seen.offset.most)
    }

    /// Says whether the store's time, as one statement has told it, goes on from where it was last seen. If not, the clock is to
    /// be [seen](ClockWatch::see) before anything is decided on that time.
    pub fn is_steady(&mut self, time: Timestamp, before: BootTime, after: BootTime) -> bool {
        let told = ClockReading { clock: time, skipped: 0, before, after }.offset();
        // Only the difference of the two counts, so a time without what was skipped is as good as a clock.
        let seen = self.0.unwrap_or(SeenClock { offset: told, skipped: 0 });
        let told = Offset {
            least: told.least.saturating_add(seen.skipped),
            most: told.most.saturating_add(seen.skipped),
        };
        let gained = told.least.saturating_sub(seen.offset.most);
        let lost = seen.offset.least.saturating_sub(told.most);
        let is_steady = gained <= TOLERANCE && lost <= TOLERANCE;
        if is_steady {
            self.0 = Some(SeenClock { offset: seen.offset.narrowed(told), ..seen });
        }
        is_steady
    }

    /// Takes a reading in. Returns the milliseconds that the store is to have skipped instead, if the clock has jumped and nobody
    /// has written that down; whoever is told so writes it, if it is still what the reading says, and reads again.
    ///
    /// Several watches may see one jump: the first to write it down is the only one, since the others then read of it. A watch that
    /// began between the jump and its note believes the note. Only a note that would let time jump for this watch is corrected.
    pub fn see(&mut self, reading: &ClockReading) -> Option<i64> {
        let told = reading.offset();
        let Some(seen) = self.0 else {
            self.0 = Some(SeenClock { offset: told, skipped: reading.skipped });
            return None;
        };
        let written = reading.skipped.saturating_sub(seen.skipped);
        let least = told.least.saturating_sub(seen.offset.most);
        let most = told.most.saturating_sub(seen.offset.least);
        if least.saturating_sub(written) > TOLERANCE {
            // The most that it can have been: time that goes slower forgets nothing.
            return Some(reading.skipped.saturating_add(most).saturating_sub(written));
        }
        if written == 0 && most < -TOLERANCE && reading.skipped > 0 {
            // Set back: what was skipped before was too much, by the least that this can have been.
            return Some(reading.skipped.saturating_add(most).max(0));
        }
        let offset = if written == 0 { seen.offset.narrowed(told) } else { told };
        self.0 = Some(SeenClock { offset, skipped: reading.skipped });
        None
    }
}
