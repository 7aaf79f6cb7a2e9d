//! Busiest callers and most repeated keys: the numbers of the request path, as the admin listener shows them.

use std::collections::HashMap;
use std::sync::Arc;

use semel_core::Principal;
use semel_http::{BusyCallers, CallerRanking, HotKey};

use crate::operate::busy::{BusyCallerRow, BusySource, CallerMinute, HotKeyRow};

/// Numbers of a layer, as a source for the admin listener.
pub struct BusyLayer(pub Arc<BusyCallers>);

/// Cell of a row.
type CallerCell = fn(&mut BusyCallerRow) -> &mut u64;

impl BusySource for BusyLayer {
    fn callers(&self) -> Vec<BusyCallerRow> {
        let minutes = self.0.callers();
        let mut rows = HashMap::new();
        let (this, last) = (&minutes.current, &minutes.last);
        let columns: [(&CallerRanking, CallerCell); 6] = [
            (&this.new_keys, |row| &mut row.this_minute.new_keys),
            (&this.mismatches, |row| &mut row.this_minute.mismatches),
            (&this.refusals, |row| &mut row.this_minute.refusals),
            (&last.new_keys, |row| &mut row.last_minute.new_keys),
            (&last.mismatches, |row| &mut row.last_minute.mismatches),
            (&last.refusals, |row| &mut row.last_minute.refusals),
        ];
        for (ranking, cell) in columns {
            for counted in &ranking.callers {
                let row = rows.entry(counted.principal.clone()).or_insert_with(|| empty(&counted.principal));
                *cell(row) = counted.count.saturating_sub(counted.excess);
            }
        }
        rows.into_values().collect()
    }

    fn hot_keys(&self) -> Vec<HotKeyRow> {
        let minutes = self.0.hot_keys();
        let mut rows: HashMap<(Principal, Arc<str>, String), u64> = HashMap::new();
        for HotKey { operation, principal, key_hash_prefix, count, excess } in
            minutes.current.into_iter().chain(minutes.last)
        {
            *rows.entry((principal, operation, key_hash_prefix)).or_default() += count.saturating_sub(excess);
        }
        let row =
            |((principal, operation, key_hash_prefix), duplicates): ((Principal, Arc<str>, String), u64)| {
                HotKeyRow {
                    tenant: principal.tenant().to_owned(),
                    caller: principal.caller().to_owned(),
                    operation: operation.to_string(),
                    key_hash_prefix,
                    duplicates,
                }
            };
        rows.into_iter().map(row).collect()
    }
}

fn empty(principal: &Principal) -> BusyCallerRow {
    BusyCallerRow {
        tenant: principal.tenant().to_owned(),
        caller: principal.caller().to_owned(),
        this_minute: CallerMinute::default(),
        last_minute: CallerMinute::default(),
    }
}
