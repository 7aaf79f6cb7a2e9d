//! The entries of one ledger, side by side in memory: a reference and the values that are compared.

use std::time::Duration;

use semel_core::Timestamp;

/// The most entries of one ledger.
pub const MAX_ENTRIES: usize = 20_000_000;

/// The largest entry, in bytes.
pub const MAX_ENTRY_BYTES: usize = 1 << 20;

/// The longest reference or value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1024;

/// Whether the other side can be expected to have an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Not yet: it may be on its way.
    TooYoung,
    /// Yes.
    Due,
    /// No more: it may be forgotten there.
    TooOld,
}

/// How old an entry is expected to be on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Ages {
    /// The present time.
    pub now: Timestamp,
    /// What is younger may be on its way.
    pub grace: Duration,
    /// What is older may be forgotten.
    pub max_age: Option<Duration>,
}

impl Ages {
    /// What the time of an entry says about it.
    pub fn of(&self, time: Timestamp) -> Age {
        // What is from the future is younger than anything.
        if self.now < time || self.now.since(time) < self.grace {
            Age::TooYoung
        } else if self.max_age.is_some_and(|most| self.now.since(time) > most) {
            Age::TooOld
        } else {
            Age::Due
        }
    }
}

/// The entries of one side.
///
/// One text holds all references and values, so that an entry costs little beside them.
#[derive(Debug)]
pub struct Ledger {
    /// How many parts an entry has: its reference, and the values after it.
    width: usize,
    text: String,
    /// Of each part of each entry, in bytes.
    lengths: Vec<u16>,
    heads: Vec<Head>,
    /// How many entries the filter left out.
    pub left_out: u64,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    start: usize,
    line: u32,
    age: Age,
}

impl Ledger {
    /// One without entries, which compares so many values.
    pub fn new(values: usize) -> Ledger {
        Ledger { width: values + 1, text: String::new(), lengths: Vec::new(), heads: Vec::new(), left_out: 0 }
    }

    /// Adds the entry that stands at this line; 0 where there are no lines. It has as many values as the ledger compares.
    ///
    /// # Errors
    /// Why it cannot be an entry.
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
        self.heads.push(Head { start: self.text.len(), line, age });
        for part in parts() {
            self.text.push_str(part);
            self.lengths.push(part.len() as u16);
        }
        Ok(())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Where the entries are, in the order of their references, and of their lines where these are the same.
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
    fn what_can_be_no_entry_is_refused() {
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
