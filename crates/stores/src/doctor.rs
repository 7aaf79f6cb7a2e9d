//! What `semel doctor` finds out about a store, whichever it is. Each store looks at itself in a `doctor` module of
//! its own, and never changes anything by looking.

#[cfg(feature = "sql")]
pub(crate) mod telling;

use std::time::Duration;

use semel_core::Tier;
use semel_core::reseal::KeyUse;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// What there is.
    pub found: String,
    /// Whether that is as it should be.
    pub health: Health,
}

/// Whether something is as it should be, and if not, what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is.
    Ok,
    /// It works, and somebody should look at it.
    Warn(String),
    /// It does not work, or not as promised.
    Fail(String),
}

impl Check {
    /// It is as it should be.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, found: found.into(), health: Health::Ok }
    }

    /// It works, and somebody should do this.
    pub fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, found: found.into(), health: Health::Warn(advice.into()) }
    }

    /// It does not work until somebody does this.
    pub fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, found: found.into(), health: Health::Fail(advice.into()) }
    }
}

/// How often a store is said to be looked after, to see whether it is.
#[derive(Clone, Copy, Debug)]
pub struct UpkeepIntervals {
    /// How often ended leases are looked for.
    pub sweep_interval: Duration,
    /// How often expired records are removed.
    pub reap_interval: Duration,
}

/// What a look at a store told.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// Everything that was looked at.
    pub checks: Vec<Check>,
    /// What it promises; `None` if that cannot be known.
    pub tier: Option<Tier>,
    /// How many API keys let somebody in; `None` if that cannot be known.
    pub api_keys: Option<u64>,
    /// How much is under which encryption key; `None` if that cannot be known, or would take too long.
    pub key_uses: Option<Vec<KeyUse>>,
}

/// A span of time for people, in its two largest units.
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

/// A size for people.
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
