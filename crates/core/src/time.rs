//! Points in time, and their sources.
//!
//! Leases and expiry use the store's clock; a [`Clock`] serves stores without one, and the few decisions of a
//! node itself. Only this file reads the wall clock and the time since boot, which reveals jumps of the wall
//! clock (`jump.rs`).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A point in time: milliseconds since the Unix epoch, by the clock of its store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Latest instant that RFC 3339 and HTTP dates can spell, the end of the year 9998.
    ///
    /// Arithmetic saturates here instead of overflowing, so that an absurd TTL means "practically for ever".
    pub const MAX: Timestamp = Timestamp(253_370_764_799_999);

    /// Returns the instant `millis` after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Timestamp {
        Timestamp(millis)
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns this instant moved `by` into the future.
    pub fn plus(self, by: Duration) -> Timestamp {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(millis).min(Self::MAX.0))
    }

    /// Returns the time from `earlier` to this instant; zero if this instant is not later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// Returns the form of RFC 9110, for header fields: `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn to_http_date(self) -> String {
        jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&self.to_jiff())
            .unwrap_or_else(|_| self.to_rfc3339())
    }

    /// Parses a date of a header field; `None` if it is not one.
    pub fn from_http_date(text: &str) -> Option<Timestamp> {
        let parsed = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Some(Timestamp(parsed.as_millisecond()))
    }

    /// Parses an RFC 3339 timestamp; `None` if it is not one.
    pub fn from_rfc3339(text: &str) -> Option<Timestamp> {
        Some(Timestamp(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()))
    }

    /// Returns the form of RFC 3339, for JSON and logs: `1994-11-06T08:49:37.123Z`.
    pub fn to_rfc3339(self) -> String {
        format!("{:.3}", self.to_jiff())
    }

    fn to_jiff(self) -> jiff::Timestamp {
        let end = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(end)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339())
    }
}

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the present instant.
    fn now(&self) -> Timestamp;
}

/// The machine's own wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(0).plus(since_epoch)
    }
}

/// Time since this machine was booted. It cannot be set, and it continues during suspension, unlike
/// [`Instant`](std::time::Instant).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// Returns the present instant.
    pub fn now() -> BootTime {
        #[cfg(target_os = "linux")]
        return BootTime(read(ClockId::Boottime));
        #[cfg(not(target_os = "linux"))]
        return BootTime(read(ClockId::Monotonic));
    }

    /// Returns the instant `since_boot` after the boot, for tests.
    pub const fn from_duration(since_boot: Duration) -> BootTime {
        BootTime(since_boot)
    }

    /// Returns the milliseconds since the machine was booted.
    pub fn as_millis(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns this instant moved `by` into the future.
    pub fn plus(self, by: Duration) -> BootTime {
        BootTime(self.0.saturating_add(by))
    }
}

/// Returns the time that this machine has been suspended since its boot: [`Instant`](std::time::Instant) is
/// behind by it.
pub fn suspended() -> Duration {
    let awake = read(ClockId::Monotonic);
    BootTime::now().0.saturating_sub(awake)
}

fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A clock that is set once, at its creation, and then runs with the machine: it never jumps.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    set: Timestamp,
    since: BootTime,
}

impl SteadyClock {
    /// Returns a clock set by the machine's wall clock.
    pub fn new() -> SteadyClock {
        SteadyClock { set: SystemClock.now(), since: BootTime::now() }
    }
}

impl Default for SteadyClock {
    fn default() -> SteadyClock {
        SteadyClock::new()
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        self.set.plus(BootTime::now().0.saturating_sub(self.since.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_and_the_steady_clock_never_go_back() {
        let (one, clock) = (BootTime::now(), SteadyClock::new());
        let first = clock.now();
        let other = BootTime::now();
        assert!(one <= other && one.as_millis() > 0 && first <= clock.now());
        assert!(one < one.plus(Duration::from_nanos(1)));
    }

    #[test]
    fn dates_have_the_forms_of_their_specifications() {
        let instant = Timestamp::from_millis(784_111_777_123);
        assert_eq!(instant.to_http_date(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(instant.to_rfc3339(), "1994-11-06T08:49:37.123Z");
        assert_eq!(
            Timestamp::from_http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Timestamp::from_millis(784_111_777_000))
        );
        assert_eq!(Timestamp::from_rfc3339("1994-11-06T08:49:37.123Z"), Some(instant));
        assert_eq!(Timestamp::from_http_date("yesterday"), None);
    }

    #[test]
    fn timestamp_arithmetic_saturates_at_its_limits() {
        let instant = Timestamp::from_millis(10);
        assert_eq!(instant.plus(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.to_rfc3339(), "9998-12-31T23:59:59.999Z");
        assert_eq!(instant.since(Timestamp::from_millis(20)), Duration::ZERO);
        assert_eq!(Timestamp::from_millis(20).since(instant), Duration::from_millis(10));
    }

    #[test]
    fn an_instant_shows_itself_alike_to_people_and_programs_also_at_the_ends() {
        let instant = Timestamp::from_millis(784_111_777_123);
        assert_eq!(format!("{instant} {instant:?}"), ["1994-11-06T08:49:37.123Z"; 2].join(" "));
        assert!(Timestamp::from_millis(i64::MIN).to_rfc3339().starts_with("-009999-"));
        assert!(Timestamp::from_millis(i64::MAX).to_rfc3339().starts_with("9999-"));
    }
}
