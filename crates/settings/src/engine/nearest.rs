//! The nearest known spelling of a name somebody mistyped.

/// Longer names are no typing mistake, and comparing them costs their product.
const MAX_LENGTH: usize = 64;

/// Returns the known name that `name` was probably meant to be, if one is near enough: at most one wrong character in
/// three, an exchange of neighbours counting as one.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = fold(name);
    if wanted.len() > MAX_LENGTH {
        return None;
    }
    let distances = known.into_iter().map(|candidate| (distance(&wanted, &fold(candidate)), candidate));
    let (distance, candidate) = distances.min_by_key(|(distance, _)| *distance)?;
    let longer = wanted.len().max(candidate.chars().count());
    (distance <= (longer / 3).max(1) && distance < longer).then_some(candidate)
}

/// Case and the choice of dash are no difference.
fn fold(name: &str) -> Vec<char> {
    name.chars().flat_map(char::to_lowercase).map(|c| if c == '-' { '_' } else { c }).collect()
}

/// Insertions, deletions, replacements and exchanges of neighbours from one to the other (optimal string
/// alignment).
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                let exchanged: usize = before_last[j - 1];
                best = best.min(exchanged + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["ttl", "tombstone_ttl", "timeout", "key_syntax", "lease"];

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
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
    fn something_else_is_not() {
        for typed in ["", "x", "retries", "timestamp_header", &"t".repeat(1000)] {
            assert_eq!(nearest(typed, KNOWN), None, "{typed}");
        }
        assert_eq!(nearest("ttl", []), None);
    }

    #[test]
    fn the_distance_counts_edits() {
        let edits = |a: &str, b: &str| distance(&fold(a), &fold(b));
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
        assert_eq!(edits("abc", "acb"), 1);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
