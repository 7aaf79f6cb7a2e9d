//! Busiest callers and most repeated keys of one gateway, as operators see them. The numbers are in its memory, and
//! nowhere else; a source of bounded memory may count a little too high.

use std::cmp::Reverse;

use serde_json::{Value, json};

/// Source of the numbers: the gateway's request path.
pub trait BusySource: Send + Sync + 'static {
    /// Returns callers with requests in this or the last whole minute, in any order.
    fn callers(&self) -> Vec<BusyCallerRow>;

    /// Returns keys that were sent again in this or the last whole minute, in any order.
    fn hot_keys(&self) -> Vec<HotKeyRow>;
}

/// Requests of one caller in this and the last whole minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyCallerRow {
    /// Tenant of the caller.
    pub tenant: String,
    /// Name of the caller.
    pub caller: String,
    /// Requests since the beginning of this minute.
    pub this_minute: CallerMinute,
    /// Requests of the last whole minute.
    pub last_minute: CallerMinute,
}

/// Requests of one caller in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerMinute {
    /// Number of commands under a new key.
    pub new_keys: u64,
    /// Number of keys that came with another request than before.
    pub mismatches: u64,
    /// Number of requests that were refused before a claim.
    pub refusals: u64,
}

/// Key with repeated requests in this and the last whole minute, known by the digest only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKeyRow {
    /// Tenant of the key's caller.
    pub tenant: String,
    /// Caller that sent the key.
    pub caller: String,
    /// Operation of the command.
    pub operation: String,
    /// First 8 hexadecimal digits of the key's digest.
    pub key_hash_prefix: String,
    /// Number of requests that were not the first of their key.
    pub duplicates: u64,
}

/// Returns at most `limit` callers, the busiest first.
pub fn sorted_callers(source: &dyn BusySource, limit: usize) -> Vec<BusyCallerRow> {
    let total = |row: &BusyCallerRow| {
        let of = |minute: &CallerMinute| minute.new_keys + minute.mismatches + minute.refusals;
        of(&row.this_minute).saturating_add(of(&row.last_minute))
    };
    let mut rows = source.callers();
    rows.sort_by(|a, b| {
        (Reverse(total(a)), &a.tenant, &a.caller).cmp(&(Reverse(total(b)), &b.tenant, &b.caller))
    });
    rows.truncate(limit);
    rows
}

/// Returns at most `limit` callers as JSON, the busiest first. The names are stable.
pub fn callers(source: &dyn BusySource, limit: usize) -> Value {
    let rows = sorted_callers(source, limit);
    let shown: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "tenant": row.tenant,
                "caller": row.caller,
                "thisMinute": minute(&row.this_minute),
                "lastMinute": minute(&row.last_minute),
            })
        })
        .collect();
    json!({ "callers": shown })
}

fn minute(minute: &CallerMinute) -> Value {
    json!({ "newKeys": minute.new_keys, "mismatches": minute.mismatches, "refusals": minute.refusals })
}

/// Returns at most `limit` keys, the most repeated first.
pub fn sorted_hot_keys(source: &dyn BusySource, limit: usize) -> Vec<HotKeyRow> {
    let mut rows = source.hot_keys();
    rows.sort_by(|a, b| {
        (Reverse(a.duplicates), &a.tenant, &a.caller, &a.key_hash_prefix).cmp(&(
            Reverse(b.duplicates),
            &b.tenant,
            &b.caller,
            &b.key_hash_prefix,
        ))
    });
    rows.truncate(limit);
    rows
}

/// Returns at most `limit` keys as JSON, the most repeated first. The names are stable.
pub fn hot_keys(source: &dyn BusySource, limit: usize) -> Value {
    let rows = sorted_hot_keys(source, limit);
    let shown: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "tenant": row.tenant,
                "caller": row.caller,
                "operation": row.operation,
                "keyHashPrefix": row.key_hash_prefix,
                "duplicates": row.duplicates,
            })
        })
        .collect();
    json!({ "keys": shown })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rush;

    impl BusySource for Rush {
        fn callers(&self) -> Vec<BusyCallerRow> {
            let row = |caller: &str, new_keys, refusals| BusyCallerRow {
                tenant: "acme".to_owned(),
                caller: caller.to_owned(),
                this_minute: CallerMinute { new_keys, ..CallerMinute::default() },
                last_minute: CallerMinute { refusals, ..CallerMinute::default() },
            };
            vec![row("quiet", 1, 0), row("loud", 3, 9), row("late", 2, 0)]
        }

        fn hot_keys(&self) -> Vec<HotKeyRow> {
            let row = |prefix: &str, duplicates| HotKeyRow {
                tenant: "acme".to_owned(),
                caller: "loud".to_owned(),
                operation: "payments.create".to_owned(),
                key_hash_prefix: prefix.to_owned(),
                duplicates,
            };
            vec![row("00000001", 2), row("00000002", 40)]
        }
    }

    #[test]
    fn the_busiest_callers_and_hottest_keys_come_first_up_to_the_limit() {
        let shown = callers(&Rush, 2);
        let names: Vec<_> =
            shown["callers"].as_array().into_iter().flatten().map(|row| &row["caller"]).collect();
        assert_eq!(names, ["loud", "late"]);
        let loud = &shown["callers"][0];
        assert_eq!((&loud["thisMinute"]["newKeys"], &loud["lastMinute"]["refusals"]), (&json!(3), &json!(9)));
        let keys = hot_keys(&Rush, 1);
        assert_eq!(keys["keys"].as_array().map(Vec::len), Some(1));
        assert_eq!(
            (&keys["keys"][0]["keyHashPrefix"], &keys["keys"][0]["duplicates"]),
            (&json!("00000002"), &json!(40))
        );
    }
}
