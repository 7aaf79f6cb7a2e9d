//! Hot keys and busy callers of this gateway, in this and the last whole minute.

use askama::Template;
use semel_core::Problem;

use super::view::{exact, fragment};
use crate::admin::call::{AdminAnswer, AdminCall};
use crate::operate::busy::{CallerMinute, sorted_callers, sorted_hot_keys};

/// Largest number of rows in each table.
const MAX_ROWS: usize = 50;

struct KeyRow {
    prefix: String,
    operation: String,
    tenant: String,
    caller: String,
    duplicates: String,
}

struct CallerRow {
    tenant: String,
    caller: String,
    new_keys: String,
    mismatches: String,
    refusals: String,
}

#[derive(Template)]
#[template(path = "hot_keys.html")]
struct Busy {
    keys: Vec<KeyRow>,
    callers: Vec<CallerRow>,
}

/// Shows the most repeated keys, by their digests, and the busiest callers.
pub(super) async fn page(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let source = &*call.admin.busy;
    let keys = sorted_hot_keys(source, MAX_ROWS).into_iter().map(|row| KeyRow {
        prefix: row.key_hash_prefix,
        operation: row.operation,
        tenant: row.tenant,
        caller: row.caller,
        duplicates: exact(row.duplicates),
    });
    let callers = sorted_callers(source, MAX_ROWS).into_iter().map(|row| {
        let sum =
            |of: fn(&CallerMinute) -> u64| exact(of(&row.this_minute).saturating_add(of(&row.last_minute)));
        CallerRow {
            new_keys: sum(|minute| minute.new_keys),
            mismatches: sum(|minute| minute.mismatches),
            refusals: sum(|minute| minute.refusals),
            tenant: row.tenant,
            caller: row.caller,
        }
    });
    fragment(&Busy { keys: keys.collect(), callers: callers.collect() })
}
