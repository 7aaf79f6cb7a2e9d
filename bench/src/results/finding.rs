//! Time of the look-ups of operators, while the store grows: by key, by business reference, in lists, and the census.

use std::sync::Arc;
use std::time::Instant;

use semel_core::{Filter, Records, StateName};
use semel_testkit::sample;

use super::report::Aim;
use super::{Figures, Result};
use crate::chart::figure;

/// Number of records in state `unknown` in every store, however large.
pub(super) const UNKNOWN: u64 = 10_000;
/// Number of records in state `processing`, likewise.
pub(super) const PROCESSING: u64 = 1_000;
/// Number of repetitions of one look-up.
const TIMES: usize = 20;
/// Number of records on a page.
const PAGE: usize = 100;
/// Milliseconds that a look-up may take in the largest store.
const AIM: f64 = 100.0;

/// Measured look-ups, in this order.
const LOOKUPS: [&str; 6] = [
    "find by key",
    "find by reference",
    "list unknown",
    "list processing of a caller",
    "list settled of a tenant without any",
    "census",
];

/// Milliseconds of each look-up.
pub(super) type LookUpTimes = [Figures; 6];

/// Returns the filters of the measured lists.
fn filters() -> [Filter; 3] {
    let of = |state| Filter { state: Some(state), limit: PAGE, ..Filter::default() };
    [
        of(StateName::Unknown),
        Filter { caller: Some("alice".to_owned()), ..of(StateName::Processing) },
        Filter { tenant: Some("no such tenant".to_owned()), ..of(StateName::Succeeded) },
    ]
}

/// Measures each look-up.
pub(super) async fn measure(store: &Arc<dyn Records>) -> Result<LookUpTimes> {
    let mut times = LookUpTimes::default();
    let known = sample::claim("known-1");
    let operation = known.scope.operation();
    let filters = filters();
    for _ in 0..TIMES {
        for (number, times) in times.iter_mut().enumerate() {
            let begun = Instant::now();
            match number {
                0 => drop(store.get(&sample::id(&known)).await?),
                1 => drop(store.find_by_reference("acme", operation, "no such reference").await?),
                2..=4 => drop(store.list(&filters[number - 2]).await?),
                _ => drop(store.census().await?),
            }
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(times)
}

/// Returns the heading of the table.
pub(super) fn heading() -> Vec<String> {
    let mut heading = vec!["store and records".to_owned()];
    heading.extend(LOOKUPS.map(|lookup| format!("{lookup}, ms")));
    heading
}

/// Returns the row of one store at one size.
pub(super) fn row(name: &str, size: u64, times: &LookUpTimes) -> Vec<String> {
    let mut row = vec![format!("{name}, {}", figure(size as f64))];
    row.extend(times.iter().map(Figures::words));
    row
}

/// Returns the aims: no look-up takes longer than a person notices, in the largest store.
pub(super) fn aims(name: &str, times: &LookUpTimes) -> Vec<Aim> {
    let aim = |(lookup, times): (&str, &Figures)| Aim {
        what: format!("{lookup} on {name} takes at most {AIM} ms"),
        seen: format!("{} ms in the largest store", figure(times.median())),
        is_met: times.median() <= AIM,
    };
    LOOKUPS.into_iter().zip(times).map(aim).collect()
}
