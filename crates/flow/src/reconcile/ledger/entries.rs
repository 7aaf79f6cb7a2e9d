//! Entries of one ledger in memory: each has a reference and the values that are compared.

use std::time::Duration;

use semel_core::Timestamp;

/// Maximum number of entries of one ledger.
pub const MAX_ENTRIES: usize = 20_000_000;

/// Maximum size of an entry, in bytes.
pub const MAX_ENTRY_BYTES: usize = 1 << 20;

/// Maximum length of a reference or value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1024;

/// Age of an entry: tells whether the other ledger should have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Too young: the entry may still be in flight.
    TooYoung,
    /// The other ledger should have the entry.
    Due,
    /// Too old: the other ledger may have dropped the entry.
    TooOld,
}

/// Age limits of the entries that both ledgers should have.
#[derive(Clone, Copy, Debug)]
pub struct Ages {
    /// The present time.
    pub now: Timestamp,
    /// Younger entries may still be in flight.
    pub grace: Duration,
    /// Older entries may have expired.
    pub max_age: Option<Duration>,
}

impl Ages {
    /// Returns the age of an entry of this time.
    pub fn of(&self, time: Timestamp) -> Age {
        // An entry from the future is younger than any limit.
        if self.now < time || self.now.since(time) < self.grace {
            Age::TooYoung
        } else if self.max_age.is_some_and(|most| self.now.since(time) > most) {
            Age::TooOld
        } else {
            Age::Due
        }
    }
}

/// Entries of one ledger.
///
/// One string holds all references and values, so that an entry costs few extra bytes.
#[derive(Debug)]
pub struct Ledger {
    /// Number of parts of an entry: its reference, and the values after it.
    width: usize,
    text: String,
    /// Length of each part of each entry, in bytes.
    lengths: Vec<u16>,
    heads: Vec<EntryHead>,
    /// Number of entries that the filter excluded.
    pub left_out: u64,
}

#[derive(Clone, Copy, Debug)]
struct EntryHead {
    start: usize,
    line: u32,
    age: Age,
}

impl Ledger {
    /// Creates an empty ledger that compares this number of values.
    pub fn new(values: usize) -> Ledger {
        Ledger { width: values + 1, text: String::new(), lengths: Vec::new(), heads: Vec::new(), left_out: 0 }
    }

    /// Adds the entry at this line; 0 if there are no lines. It must have as many values as the ledger compares.
    ///
    /// # Errors
    /// If it is not a valid entry, with the reason.
    pub fn add(&mut self, line: u32, age: Age, reference: &str, values: &[&str]) -> Result<(), String> {
        if reference.is_empty() {
            return Err("the reference is empty".to_owned());
        }
        if self.heads.len() == MAX_ENTRIES {
            return Err(format!("more than {MAX_ENTRIES} entries: compare them in parts, such as days"));
        }
        if values.len() + 1 != self.width {
            return Err(format!("{} values, where {} are compared", values.len(), self.width - 1));
        }
        let parts = || std::iter::once(&reference).chain(values);
        if let Some(long) = parts().find(|part| part.len() > MAX_VALUE_BYTES) {
            let beginning: String = long.chars().take(40).collect();
            return Err(format!("a value of more than {MAX_VALUE_BYTES} bytes, which begins {beginning:?}"));
        }
        self.heads.push(EntryHead { start: self.text.len(), line, age });
        for part in parts() {
            self.text.push_str(part);
            self.lengths.push(part.len() as u16);
        }
        Ok(())
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Returns the indices of the entries, in the order of their references, then of their lines.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.heads.len() as u32).collect();
        order.sort_unstable_by(|one, other| {
            self.reference(*one).cmp(self.reference(*other)).then(one.cmp(other))
        });
        order
    }

    pub(super) fn reference(&self, entry: u32) -> &str {
        let start = self.heads[entry as usize].start;
        &self.text[start..start + usize::from(self.lengths[entry as usize * self.width])]
    }

    pub(super) fn values(&self, entry: u32) -> impl Iterator<Item = &str> {
        let lengths = &self.lengths[entry as usize * self.width..][..self.width];
        let mut start = self.heads[entry as usize].start + usize::from(lengths[0]);
        lengths[1..].iter().map(move |length| {
            let value = &self.text[start..start + usize::from(*length)];
            start += value.len();
            value
        })
    }

    pub(super) fn line(&self, entry: u32) -> u32 {
        self.heads[entry as usize].line
    }

    pub(super) fn age(&self, entry: u32) -> Age {
        self.heads[entry as usize].age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_kept_as_it_was_added() {
        let mut ledger = Ledger::new(2);
        ledger.add(2, Age::Due, "b", &["1", ""]).expect("it is an entry");
        ledger.add(3, Age::TooOld, "ä", &["", "ü"]).expect("it is an entry");
        ledger.add(4, Age::TooYoung, "a", &["x", "y"]).expect("it is an entry");
        assert_eq!(ledger.in_order(), [2, 0, 1]);
        let shown: Vec<(&str, Vec<&str>, u32, Age)> = (0..3)
            .map(|i| (ledger.reference(i), ledger.values(i).collect(), ledger.line(i), ledger.age(i)))
            .collect();
        assert_eq!(
            shown,
            [
                ("b", vec!["1", ""], 2, Age::Due),
                ("ä", vec!["", "ü"], 3, Age::TooOld),
                ("a", vec!["x", "y"], 4, Age::TooYoung)
            ]
        );
    }

    #[test]
    fn invalid_entry_is_refused() {
        let mut ledger = Ledger::new(1);
        let mut refused = |reference: &str, values: &[&str]| {
            ledger.add(1, Age::Due, reference, values).expect_err("it is refused")
        };
        assert_eq!(refused("", &["1"]), "the reference is empty");
        assert_eq!(refused("a", &[]), "0 values, where 1 are compared");
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        assert!(refused("a", &[&long]).starts_with("a value of more than 1024 bytes, which begins \"xxx"));
        assert!(ledger.is_empty());
    }

    #[test]
    fn an_age_is_counted_from_now() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let ages =
            Ages { now: at(1000), grace: Duration::from_secs(100), max_age: Some(Duration::from_secs(500)) };
        for (time, age) in [
            (2000, Age::TooYoung),
            (901, Age::TooYoung),
            (900, Age::Due),
            (500, Age::Due),
            (499, Age::TooOld),
        ] {
            assert_eq!(ages.of(at(time)), age, "{time}");
        }
        assert_eq!(Ages { max_age: None, ..ages }.of(at(-1_000_000)), Age::Due);
    }
}
