//! Filters of lists: by state, names, age and time.

use std::time::Duration;

use semel_core::{Filter, OperationId, StateName, Timestamp};

use super::{before, beginning};

/// Spelling of the names of filters, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterSpelling {
    /// Flags of the command line, such as `--older-than`.
    Flags,
    /// Query parameters of the admin API, such as `olderThan`.
    Parameters,
}

impl FilterSpelling {
    /// Returns a filter's name in this spelling.
    fn of(self, name: &str) -> String {
        match (self, name) {
            (FilterSpelling::Flags, name) => format!("--{name}"),
            (FilterSpelling::Parameters, "older-than") => "`olderThan`".to_owned(),
            (FilterSpelling::Parameters, name) => format!("`{name}`"),
        }
    }

    /// Parses the age in the filter of this name.
    pub(super) fn age(self, name: &str, text: &str) -> Result<Duration, String> {
        semel_settings::parse_duration(text).ok_or_else(|| {
            let (name, shown) = (self.of(name), beginning(text));
            format!("{name}: {shown:?} is not a duration such as \"30s\", \"5m\" or \"7d\"")
        })
    }

    /// Parses the moment in the filter of this name.
    fn moment(self, name: &str, text: &str) -> Result<Timestamp, String> {
        Timestamp::from_rfc3339(text).ok_or_else(|| {
            let (name, shown) = (self.of(name), beginning(text));
            format!("{name}: {shown:?} is not a moment such as \"2026-11-19T08:30:00Z\"")
        })
    }
}

/// Filter of a list of records.
#[derive(Clone, Debug, Default)]
pub struct WantedRecords {
    state: Option<StateName>,
    operation: Option<String>,
    tenant: Option<String>,
    caller: Option<String>,
    older_than: Option<Duration>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl WantedRecords {
    /// Parses the filter.
    ///
    /// # Errors
    /// Returns a description of the invalid part.
    pub fn read(
        spelling: FilterSpelling,
        mut given: impl FnMut(&str) -> Option<String>,
    ) -> Result<WantedRecords, String> {
        let state = given("state").map(|name| {
            StateName::parse(&name).ok_or_else(|| {
                let known: Vec<&str> = StateName::ALL.iter().map(|state| state.as_str()).collect();
                format!("{name:?} is not a state: {}", known.join(", "))
            })
        });
        let wanted = WantedRecords {
            state: state.transpose()?,
            operation: given("operation"),
            tenant: given("tenant"),
            caller: given("caller"),
            older_than: given("older-than").map(|text| age(spelling, &text)).transpose()?,
            since: given("since").map(|text| moment(spelling, "since", &text)).transpose()?,
            until: given("until").map(|text| moment(spelling, "until", &text)).transpose()?,
        };
        if let (Some(since), Some(until)) = (wanted.since, wanted.until)
            && until <= since
        {
            return Err(format!("the window ends at {until}, which is not after its beginning {since}"));
        }
        Ok(wanted)
    }

    /// Returns the store's filter for one page.
    pub fn page(self, now: Timestamp, after: Option<OperationId>, limit: usize) -> Filter {
        let WantedRecords { state, operation, tenant, caller, older_than, since, until } = self;
        let old = older_than.map(|age| before(now, age));
        let until = [old, until].into_iter().flatten().min();
        Filter { state, operation, tenant, caller, since, until, after, limit }
    }
}

/// Parses the age of the filter. A moment is answered with the filters that take one.
fn age(spelling: FilterSpelling, text: &str) -> Result<Duration, String> {
    spelling.age("older-than", text).map_err(|wrong| match Timestamp::from_rfc3339(text) {
        Some(_) => format!("{wrong}; {} and {} take a moment", spelling.of("since"), spelling.of("until")),
        None => wrong,
    })
}

/// Parses a moment of the filter. A duration is answered with the filter that takes one.
fn moment(spelling: FilterSpelling, name: &str, text: &str) -> Result<Timestamp, String> {
    spelling.moment(name, text).map_err(|wrong| match semel_settings::parse_duration(text) {
        Some(_) => {
            let older_than = spelling.of("older-than");
            format!(
                "{wrong}; only {older_than} takes a duration, and selects records that entered their state longer ago"
            )
        }
        None => wrong,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(spelling: FilterSpelling, filters: &[(&str, &str)]) -> String {
        let given = |name: &str| {
            let found = filters.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        };
        WantedRecords::read(spelling, given).expect_err("it is refused")
    }

    #[test]
    fn a_duration_in_place_of_a_moment_is_refused_with_the_filter_that_takes_one() {
        for name in ["since", "until"] {
            let told = refused(FilterSpelling::Flags, &[(name, "10m")]);
            assert_eq!(
                told,
                format!(
                    "--{name}: \"10m\" is not a moment such as \"2026-11-19T08:30:00Z\"; only --older-than takes a \
                     duration, and selects records that entered their state longer ago"
                )
            );
            let told = refused(FilterSpelling::Parameters, &[(name, "10m")]);
            assert!(
                told.starts_with(&format!("`{name}`: ")) && told.contains("only `olderThan` takes"),
                "{told}"
            );
        }
        let told = refused(FilterSpelling::Flags, &[("since", "yesterday")]);
        assert!(told.ends_with("is not a moment such as \"2026-11-19T08:30:00Z\""), "{told}");
    }

    #[test]
    fn a_moment_in_place_of_an_age_is_refused_with_the_filters_that_take_one() {
        let told = refused(FilterSpelling::Flags, &[("older-than", "2026-11-19T08:30:00Z")]);
        assert!(
            told.starts_with("--older-than: ") && told.ends_with("; --since and --until take a moment"),
            "{told}"
        );
        let told = refused(FilterSpelling::Parameters, &[("older-than", "soon")]);
        assert_eq!(told, "`olderThan`: \"soon\" is not a duration such as \"30s\", \"5m\" or \"7d\"");
    }
}
