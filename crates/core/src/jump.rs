//! Jumps of a store's clock, and the store's time without them: its clock minus the *skipped* time. Leases
//! and expiry use it: a clock set forward would otherwise delete records too early, and retries would run
//! again. Every process compares the store's clock with its machine's time since boot, which cannot be set
//! and continues during suspension; a gain beyond it is a jump, and is added to the skipped time. Invariant:
//! the skipped time is never negative, so the store's time is never ahead of its clock.

use std::time::Duration;

use crate::time::{BootTime, Timestamp};

/// Largest change of a clock that is ignored: NTP and leap seconds move it by less.
pub const JUMP_TOLERANCE: Duration = Duration::from_secs(1);

const TOLERANCE: i64 = JUMP_TOLERANCE.as_millis() as i64;

/// One reading of a store's clock, between two readings of this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The store's clock.
    pub clock: Timestamp,
    /// Milliseconds that the store has skipped.
    pub skipped: i64,
    /// Time of this machine before the request to the store.
    pub before: BootTime,
    /// Time of this machine after the store's answer.
    pub after: BootTime,
}

impl ClockReading {
    /// Returns the least and the most that the store's clock can be ahead of this machine's time, in
    /// milliseconds.
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
    /// Returns the intersection of both offsets; the later one if they do not overlap, since clocks run at
    /// different speeds.
    fn narrowed(self, later: Offset) -> Offset {
        let both = Offset { least: self.least.max(later.least), most: self.most.min(later.most) };
        if both.least <= both.most { both } else { later }
    }
}

/// Watches the clock of one store for jumps, on one machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockWatch(Option<SeenClock>);

/// The clock at its last reading.
#[derive(Clone, Copy, Debug)]
struct SeenClock {
    offset: Offset,
    skipped: i64,
}

impl ClockWatch {
    /// Returns a watch that continues from an earlier offset, at a time when the store had skipped `skipped`
    /// milliseconds.
    pub fn seen(offset: i64, skipped: i64) -> ClockWatch {
        ClockWatch(Some(SeenClock { offset: Offset { least: offset, most: offset }, skipped }))
    }

    /// Returns the milliseconds that the clock was last ahead of this machine's time.
    pub fn offset(&self) -> Option<i64> {
        self.0.map(|seen| seen.offset.most)
    }

    /// Returns true if the store's time in a statement's answer continues from the last reading. If not, the
    /// clock must be [read](ClockWatch::see) before anything is decided on that time.
    pub fn is_steady(&mut self, time: Timestamp, before: BootTime, after: BootTime) -> bool {
        let told = ClockReading { clock: time, skipped: 0, before, after }.offset();
        // Only the difference of the two counts, so a time minus the skipped time serves as well as a clock.
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

    /// Processes a reading. Returns the new number of skipped milliseconds if the clock has jumped and the
    /// store does not know it yet. The caller writes that number if the store still has the value of the
    /// reading, and reads again.
    ///
    /// Several watches may see one jump: only the first writes it, since the others then read it. A watch
    /// that began between the jump and that write trusts the write. A written value is corrected only if it
    /// would make time jump for this watch.
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
            // The most that the jump can have been: slower time deletes nothing.
            return Some(reading.skipped.saturating_add(most).saturating_sub(written));
        }
        if written == 0 && most < -TOLERANCE && reading.skipped > 0 {
            // The clock was set back: the skipped time was too large, by at least this much.
            return Some(reading.skipped.saturating_add(most).max(0));
        }
        let offset = if written == 0 { seen.offset.narrowed(told) } else { told };
        self.0 = Some(SeenClock { offset, skipped: reading.skipped });
        None
    }
}
