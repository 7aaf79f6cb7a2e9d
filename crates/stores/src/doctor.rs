//! The findings of `semel doctor` about any store. Each store examines itself in a `doctor` module of its
//! own, and never changes anything by that.

#[cfg(feature = "sql")]
pub(crate) mod telling;

use std::time::Duration;

use semel_core::Tier;
use semel_core::reseal::KeyUse;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Subject of the check.
    pub name: &'static str,
    /// Finding.
    pub found: String,
    /// Health of the subject.
    pub health: Health,
}

/// Health of a subject, and the advice if it is not healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Healthy.
    Ok,
    /// Works, and needs attention.
    Warn(String),
    /// Does not work, or not as promised.
    Fail(String),
}

impl Check {
    /// Returns a healthy check.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, found: found.into(), health: Health::Ok }
    }

    /// Returns a check that works and needs attention, with advice.
    pub fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, found: found.into(), health: Health::Warn(advice.into()) }
    }

    /// Returns a failed check, with advice.
    pub fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, found: found.into(), health: Health::Fail(advice.into()) }
    }
}

/// Configured intervals of maintenance, for a check that it happens.
#[derive(Clone, Copy, Debug)]
pub struct UpkeepIntervals {
    /// Interval of sweeps for expired leases.
    pub sweep_interval: Duration,
    /// Interval of deletions of expired records.
    pub reap_interval: Duration,
}

/// Result of the examination of a store.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// All checks.
    pub checks: Vec<Check>,
    /// Tier that the store promises; `None` if unknown.
    pub tier: Option<Tier>,
    /// Number of valid API keys; `None` if unknown.
    pub api_keys: Option<u64>,
    /// Number of items under each encryption key; `None` if unknown, or if counting would take too long.
    pub key_uses: Option<Vec<KeyUse>>,
}

/// Returns a span of time for people, in its two largest units.
pub fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (1, hours, _) => format!("1 day {hours} h"),
        (days, hours, _) => format!("{days} days {hours} h"),
    }
}

/// Returns a size for people.
pub fn in_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(4) as usize;
    match power {
        0 => format!("{bytes} B"),
        _ => format!("{:.1} {}", bytes as f64 / (1u64 << (10 * power)) as f64, UNITS[power]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_for_people() {
        let told = |seconds| in_words(Duration::from_secs(seconds));
        assert_eq!([told(0), told(59), told(61)], ["0 s", "59 s", "1 min 1 s"]);
        assert_eq!([told(7199), told(86_400), told(200_000)], ["1 h 59 min", "1 day 0 h", "2 days 7 h"]);
        assert_eq!([in_bytes(0), in_bytes(1023), in_bytes(1536)], ["0 B", "1023 B", "1.5 KiB"]);
        assert_eq!([in_bytes(1 << 30), in_bytes(u64::MAX)], ["1.0 GiB", "16777216.0 TiB"]);
    }
}
