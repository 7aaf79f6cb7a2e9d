//! State of a store as operators see it.

use semel_core::{Outbox, Records, StateName, StoreError, Timestamp};
use serde_json::{Map, Value, json};

/// Returns the version, the store's guarantees and the number of commands in each state, as JSON. The names are stable.
pub async fn read(store: &dyn Records, outbox: Option<&dyn Outbox>) -> Result<Value, StoreError> {
    let now = store.now().await?;
    let census = store.census().await?;
    let mut states = Map::new();
    for state in StateName::ALL {
        let groups = census.groups.iter().filter(|group| group.state == state);
        states.insert(state.as_str().to_owned(), groups.map(|group| group.count).sum::<u64>().into());
    }
    let oldest = |state| {
        let groups = census.groups.iter().filter(move |group| group.state == state);
        groups.filter_map(|group| group.oldest).min().map(Timestamp::to_rfc3339)
    };
    let depth = match outbox {
        Some(outbox) => Some(outbox.depth().await?),
        None => None,
    };
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "tier": store.tier().number(),
        "now": now.to_rfc3339(),
        "records": states,
        "estimated": census.is_estimate,
        "oldestClaimed": oldest(StateName::Claimed),
        "oldestProcessing": oldest(StateName::Processing),
        "oldestUnknown": oldest(StateName::Unknown),
        "storedBytes": census.bytes,
        "outbox": depth.map(|depth| json!({
            "pending": depth.pending,
            "dead": depth.dead,
            "oldestPending": depth.oldest_pending.map(Timestamp::to_rfc3339),
        })),
    }))
}
