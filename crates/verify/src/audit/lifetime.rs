//! Finds the lifetime of a key in a description that is written for people.

const UNITS: [&str; 18] = [
    "s", "second", "seconds", "min", "minute", "minutes", "h", "hour", "hours", "d", "day", "days", "week",
    "weeks", "month", "months", "year", "years",
];
/// The beginnings of words about keeping and deleting.
const KEEPING: [&str; 14] = [
    "expir",
    "keep",
    "kept",
    "retain",
    "retention",
    "stor",
    "remember",
    "remov",
    "forg",
    "delet",
    "purg",
    "prun",
    "cach",
    "lifetime",
];

/// Returns the time in the first sentence that has one and is about keeping: "24 hours" in "Keys expire after 24 hours."
pub(super) fn mentioned(description: &str) -> Option<String> {
    description.split_inclusive(['.', ';', '!', '?']).find_map(|sentence| {
        let words: Vec<String> = sentence
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let about_keeping =
            words.iter().any(|word| word == "valid" || KEEPING.iter().any(|start| word.starts_with(start)));
        if about_keeping { time(&words) } else { None }
    })
}

/// Finds a number and its unit: `24 hours`, `24-hour` (two words here), `24h`.
fn time(words: &[String]) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| {
        let (number, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len()));
        if number.is_empty() {
            return None;
        }
        let unit = if unit.is_empty() { words.get(at + 1)?.as_str() } else { unit };
        UNITS.contains(&unit).then(|| format!("{number} {unit}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_a_sentence_about_keeping() {
        for (description, found) in [
            ("Keys expire after 24 hours.", Some("24 hours")),
            ("Up to 255 characters. We keep it\nfor at least 7 days; then it is new.", Some("7 days")),
            ("Has a 24-hour lifetime", Some("24 hour")),
            ("Results are cached for 24h.", Some("24 h")),
            ("Valid for 1 week", Some("1 week")),
            ("Retry after 5 seconds. Must be a valid UUID.", None),
            ("At most 255 characters are stored.", None),
            ("Keys expire.", None),
            ("Kept for 24", None),
            ("", None),
        ] {
            assert_eq!(mentioned(description).as_deref(), found, "{description}");
        }
    }
}
