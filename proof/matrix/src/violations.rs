//! The list of broken rules that a judge makes.

/// Broken rules, each in one sentence; none, if all rules hold.
#[derive(Default)]
pub(crate) struct Violations(Vec<String>);

impl Violations {
    /// Adds `otherwise` unless the rule holds.
    pub(crate) fn must(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.0.push(otherwise.into());
        }
    }

    /// Returns the list.
    pub(crate) fn list(self) -> Vec<String> {
        self.0
    }
}

/// A change that makes an observation wrong, with its name.
#[cfg(test)]
pub(crate) type Wrong<Seen> = (&'static str, fn(&mut Seen));

/// Asserts that a judge accepts `well` and condemns every observation that differs from it by one change.
#[cfg(test)]
pub(crate) fn assert_judges<Seen>(
    judge: fn(&Seen) -> Vec<String>,
    well: fn() -> Seen,
    wrong: &[Wrong<Seen>],
) {
    assert_eq!(judge(&well()), Vec::<String>::new());
    for (name, change) in wrong {
        let mut seen = well();
        change(&mut seen);
        assert_ne!(judge(&seen), Vec::<String>::new(), "{name}");
    }
}
