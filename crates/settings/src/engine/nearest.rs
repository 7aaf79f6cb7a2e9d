//! The nearest known spelling of a mistyped name.

use strsim::osa_distance;

/// The longest name that is compared. A longer one is no typing mistake, and the work grows with the product of both lengths.
const MAX_LENGTH: usize = 64;

/// Returns the known name that `name` probably stands for: at most one character in three differs, and swapped neighbours
/// count as one difference.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = fold(name);
    let length = wanted.chars().count();
    if length > MAX_LENGTH {
        return None;
    }
    let distances = known.into_iter().map(|candidate| (osa_distance(&wanted, &fold(candidate)), candidate));
    let (distance, candidate) = distances.min_by_key(|(distance, _)| *distance)?;
    let longer = length.max(candidate.chars().count());
    (distance <= (longer / 3).max(1) && distance < longer).then_some(candidate)
}

/// Returns the name in lower case and with underscores for dashes, which make no difference.
fn fold(name: &str) -> String {
    name.chars().flat_map(char::to_lowercase).map(|c| if c == '-' { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["ttl", "tombstone_ttl", "timeout", "key_syntax", "lease"];

    #[test]
    fn a_misspelled_setting_name_is_matched_to_the_nearest_known_one() {
        for (typed, meant) in [
            ("tll", "ttl"),
            ("tt", "ttl"),
            ("TTL", "ttl"),
            ("time_out", "timeout"),
            ("key-sintax", "key_syntax"),
            ("leaes", "lease"),
            ("tomstone_tll", "tombstone_ttl"),
        ] {
            assert_eq!(nearest(typed, KNOWN), Some(meant), "{typed}");
        }
    }

    #[test]
    fn unrelated_words_have_no_suggestion() {
        for typed in ["", "x", "retries", "timestamp_header", &"t".repeat(1000)] {
            assert_eq!(nearest(typed, KNOWN), None, "{typed}");
        }
        assert_eq!(nearest("ttl", []), None);
    }
}
