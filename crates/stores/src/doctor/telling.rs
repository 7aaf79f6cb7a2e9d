//! Checks that are common to all SQL stores, in the same words.

use std::time::Duration;

use semel_core::{Census, StateName, StoreFence, Timestamp};

use super::{Check, in_words};
use crate::store_schema::{SchemaAge, StoreSchema};

/// Number of records that wait for something, and the start of the longest wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingRecords {
    pub(crate) count: u64,
    pub(crate) since: Option<Timestamp>,
}

impl WaitingRecords {
    fn age(&self, now: Timestamp) -> String {
        in_words(self.since.map_or(Duration::ZERO, |since| now.since(since)))
    }
}

/// Returns the time two intervals ago: a task with this interval has run since.
pub(crate) fn long_ago(now: Timestamp, interval: Duration) -> Timestamp {
    let millis = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).saturating_mul(2);
    Timestamp::from_millis(now.as_millis().saturating_sub(millis))
}

/// Reports a store that is fenced.
pub(crate) fn fence(fence: &StoreFence) -> Check {
    Check::warn(
        "fence",
        format!("the store is fenced since {}", fence.since()),
        "it was restored, or lost writes: commands that it does not know are refused. `semel hold list` shows why; settle what was \
         lost, and lift the fence with `semel hold lift --store-fence`",
    )
}

/// Checks that this program, whose schema is `ours`, can use the store's schema, and that no upgrade is left unfinished.
pub(crate) fn schema(schema: StoreSchema, ours: u32) -> Check {
    let name = "schema";
    let StoreSchema { version: found, readable_from } = schema;
    match schema.age(ours) {
        SchemaAge::Current if schema.is_finished() => {
            Check::ok(name, format!("version {found}, that of this program"))
        }
        SchemaAge::Current => Check::warn(
            name,
            format!("version {found}, readable from {readable_from}"),
            "run `semel migrate --finish` when every gateway runs this version; until then you can go back to the version before",
        ),
        SchemaAge::Ahead => Check::warn(
            name,
            format!(
                "version {found}, newer than this program's version {ours}, readable from {readable_from}"
            ),
            "this program can use it, in the older formats: upgrade this program, or go back with the others; \
             `semel migrate --finish` would lock it out",
        ),
        SchemaAge::Older if found == 0 => Check::warn(
            name,
            format!("none yet; this program's is version {ours}"),
            "`semel migrate` creates it, and so does the gateway when it starts",
        ),
        SchemaAge::Older => Check::warn(
            name,
            format!("version {found}, older than this program's version {ours}"),
            "back the store up; then `semel migrate`, or the gateway's next start, migrates it. Gateways of the version before \
             keep working",
        ),
        SchemaAge::Unreadable => Check::fail(
            name,
            format!(
                "version {found}, newer than this program's version {ours}, readable from {readable_from}"
            ),
            "run the version of Semel that wrote it, or a newer one",
        ),
    }
}

/// Reports the number of records, if they were counted, and warns of those that wait for a person.
pub(crate) fn records(unknown: WaitingRecords, now: Timestamp, census: Option<&Census>) -> Check {
    let name = "records";
    if unknown.count > 0 {
        let (count, age) = (unknown.count, unknown.age(now));
        let advice = "`semel records list --state unknown` shows them; look where the effect would be, then settle \
                      each with `semel records resolve`";
        return Check::warn(
            name,
            format!("{count} unknown, the oldest for {age}: their retries get 409"),
            advice,
        );
    }
    let Some(census) = census else {
        return Check::ok(name, "none is unknown; there are too many to count the others");
    };
    let states = StateName::ALL.into_iter().filter_map(|state| {
        let groups = || census.groups.iter().filter(|group| group.state == state);
        let count: u64 = groups().map(|group| group.count).sum();
        let about = if groups().any(|group| group.is_estimate) { "about " } else { "" };
        (count > 0).then(|| format!("{about}{count} {state}"))
    });
    let states: Vec<String> = states.collect();
    Check::ok(name, if states.is_empty() { "none".to_owned() } else { states.join(", ") })
}

/// Checks that expired leases are swept.
pub(crate) fn leases(not_swept: WaitingRecords, now: Timestamp) -> Check {
    if not_swept.count == 0 {
        return Check::ok("leases", "none has expired without a sweep");
    }
    let found = format!("{} expired without a sweep, the oldest {} ago", not_swept.count, not_swept.age(now));
    Check::warn("leases", found, "no gateway sweeps this store: start one, or run `semel sweep`")
}

/// Checks that expired records are deleted.
pub(crate) fn expiry(not_reaped: WaitingRecords, now: Timestamp) -> Check {
    if not_reaped.count == 0 {
        return Check::ok("expiry", "no expired record is left");
    }
    let (count, age) = (not_reaped.count, not_reaped.age(now));
    let found = format!("{count} records have expired and are still there, the oldest since {age}");
    Check::warn("expiry", found, "no gateway reaps this store: start one, or run `semel reap`")
}
