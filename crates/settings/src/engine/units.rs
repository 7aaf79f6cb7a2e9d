//! Durations and sizes as people write them: `1h30m`, `64KiB`.

use std::time::Duration;

const MILLISECOND: u64 = 1;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Longest duration: a hundred years, which every date and every store can count.
pub(crate) const MAX_DURATION: Duration = Duration::from_millis(36_500 * DAY);

/// Largest size: far beyond any memory, and far from overflow.
pub(crate) const MAX_SIZE: u64 = 1 << 40;

/// Units of time, the largest first, in the order in which they are written.
const TIME_UNITS: [(&str, u64); 5] =
    [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND)];

const SIZE_UNITS: [(&str, u64); 9] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Reads `200ms`, `30s`, `7d` or `1h30m`: each unit at most once, the largest first.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut units = TIME_UNITS.iter();
    let mut total: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, unit, after) = quantity(rest)?;
        // The search goes on from its last position: a repeated or late unit is not found.
        let (_, milliseconds) = units.find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.checked_mul(*milliseconds)?)?;
        rest = after;
    }
    Some(Duration::from_millis(total))
}

/// Reads `4096`, `64KiB` or `10MB`.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit, rest) = quantity(text.trim())?;
    let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    let size = number.checked_mul(*bytes)?;
    (rest.is_empty() && size <= MAX_SIZE).then_some(size)
}

/// Returns a number, its unit, and the rest.
fn quantity(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..digits].parse().ok()?;
    let rest = text[digits..].trim_start();
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    Some((number, &rest[..letters], rest[letters..].trim_start()))
}

/// Writes a duration in the largest unit that leaves no rest; a single day or minute is `24h` or `60s`.
pub(crate) fn show_duration(duration: Duration) -> String {
    let total = duration.as_millis();
    let readable = [("d", DAY, 2), ("h", HOUR, 1), ("m", MINUTE, 2), ("s", SECOND, 1)];
    let fits = readable.into_iter().find(|(_, length, least)| {
        total.is_multiple_of(u128::from(*length)) && total / u128::from(*length) >= *least
    });
    match fits {
        Some((unit, length, _)) => format!("{}{unit}", total / u128::from(length)),
        None if total == 0 => "0s".to_owned(),
        None => format!("{total}ms"),
    }
}

/// Writes a size in the largest binary unit that leaves no rest.
pub(crate) fn show_size(bytes: u64) -> String {
    let fits = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        .into_iter()
        .find(|(_, length)| bytes >= *length && bytes.is_multiple_of(*length));
    match fits {
        Some((unit, length)) => format!("{}{unit}", bytes / length),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, milliseconds) in [
            ("200ms", 200),
            ("30s", 30 * SECOND),
            ("5m", 5 * MINUTE),
            ("24h", DAY),
            ("7d", 7 * DAY),
            ("1h30m", HOUR + 30 * MINUTE),
            ("1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5),
            ("1h 30m", HOUR + 30 * MINUTE),
            ("5 m", 5 * MINUTE),
            ("0s", 0),
            ("36500d", 36_500 * DAY),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn malformed_durations_are_refused() {
        for text in [
            "",
            " ",
            "30",
            "s",
            "1.5h",
            "-1s",
            "+1s",
            "30m1h",
            "1h1h",
            "1S",
            "5min",
            "7 days",
            "1h30",
            "1s!",
            "99999999999999999999s",
            "18446744073709551615d",
            "١s",
            "1ｓ",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("0", 0),
            ("12B", 12),
            ("64KiB", 65_536),
            ("1 MiB", 1 << 20),
            ("10MB", 10_000_000),
            ("2kB", 2_000),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "MiB", "1M", "1mib", "1.5MiB", "-1", "1MiB2", "1KiB 1B", "1025GiB", "99999999999GB"]
        {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn values_are_shown_in_their_natural_unit() {
        for text in
            ["0s", "200ms", "1s", "30s", "60s", "75s", "5m", "90m", "1h", "24h", "36h", "7d", "1500ms"]
        {
            let duration = parse_duration(text).expect("the table holds durations");
            assert_eq!(show_duration(duration), text);
        }
        for text in ["0B", "1000B", "64KiB", "1MiB", "3GiB", "1025KiB"] {
            assert_eq!(show_size(parse_size(text).expect("the table holds sizes")), text);
        }
    }

    proptest! {
        #[test]
        fn shown_durations_and_sizes_parse_again(milliseconds in 0..=36_500 * DAY, bytes in 0..=MAX_SIZE) {
            let duration = Duration::from_millis(milliseconds);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
            prop_assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }

        #[test]
        fn parsing_any_text_as_a_duration_or_size_never_panics(text in any::<String>()) {
            parse_duration(&text);
            parse_size(&text);
        }
    }
}
