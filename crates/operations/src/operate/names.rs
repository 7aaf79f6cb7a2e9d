//! Names of operations that people type: known ones, and the nearest to a mistyped one.

use semel_core::{Records, StoreError};
use semel_settings::{Config, OperationConfig, nearest};

use super::printable;

/// Largest number of known operations that a hint lists.
const MAX_LISTED: usize = 10;

/// Returns a hint if neither a rule nor a record has this operation: a mistyped name selects nothing.
pub async fn unknown_operation(
    name: &str,
    config: &Config,
    store: &dyn Records,
) -> Result<Option<String>, StoreError> {
    if config.operations.iter().flat_map(OperationConfig::names).any(|own| own.as_str() == name) {
        return Ok(None);
    }
    let stored = store.operations().await?;
    if stored.iter().any(|known| known == name) {
        return Ok(None);
    }
    let configured = config.operations.iter().map(|operation| operation.name.as_str());
    let mut known: Vec<&str> = configured.chain(stored.iter().map(String::as_str)).collect();
    known.sort_unstable();
    known.dedup();
    let advice = match (nearest(name, known.iter().copied()), known.len()) {
        (Some(near), _) => format!("did you mean {near:?}?"),
        (None, 0) => "there are none yet".to_owned(),
        (None, count) => {
            let listed = known.iter().take(MAX_LISTED).copied().collect::<Vec<_>>().join(", ");
            let rest = count.saturating_sub(MAX_LISTED);
            let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
            format!("known are {listed}{rest}")
        }
    };
    Ok(Some(printable(&format!("no rule and no record has the operation {name:?}: {advice}"))))
}
