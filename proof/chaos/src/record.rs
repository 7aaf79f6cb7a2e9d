//! Record of the store as a look from outside finds it: read from columns, with no code of Semel.

use semel_checker::event::{Record, Step};
use serde_json::Value;

use crate::reading::{canaries, digest, effects};

/// Object with everything that a look reads of a record on PostgreSQL.
pub const OBJECT: &str = "json_build_object('operation_id', operation_id, 'tenant', tenant, 'caller', caller, \
                          'operation', operation, 'state', state, 'reason', reason, 'epoch', epoch, 'expires_at', \
                          expires_at, 'status', status, 'response', encode(response, 'hex'), 'history', history, \
                          'quarantine_until', quarantine_until)";

/// Returns the condition of records that changed since this time or can still change, or of all.
pub fn condition(since: Option<i64>) -> String {
    match since {
        Some(since) => {
            format!(" WHERE updated_at >= {since} OR state IN ('claimed', 'processing', 'unknown')")
        }
        None => String::new(),
    }
}

/// Record, with the end of its quarantine for the operator.
pub struct Found {
    /// Record.
    pub record: Record,
    /// End of the quarantine of an unknown outcome.
    pub quarantine_until: Option<i64>,
}

/// Row of the table of records.
pub struct Columns {
    /// Operation id, with hyphens.
    pub operation_id: String,
    /// Tenant.
    pub tenant: String,
    /// Caller.
    pub caller: String,
    /// Operation.
    pub operation: String,
    /// State.
    pub state: String,
    /// Reason for the state.
    pub reason: String,
    /// Epoch.
    pub epoch: u32,
    /// Expiry.
    pub expires_at: Option<i64>,
    /// Status of the stored response.
    pub status: Option<u16>,
    /// Stored response.
    pub response: Option<Vec<u8>>,
    /// Steps, one a line.
    pub history: String,
    /// End of the quarantine.
    pub quarantine_until: Option<i64>,
}

impl Columns {
    /// Parses the steps and the response.
    ///
    /// # Errors
    /// Names a line that is no step.
    pub fn into_found(self) -> Result<Found, String> {
        let response = self.response.as_deref();
        let unreadable = |line: &str| format!("{line:?} is no step of a record's history");
        let steps = self.history.lines().map(|line| step(line).ok_or_else(|| unreadable(line)));
        let steps = steps.collect::<Result<_, _>>()?;
        let record = Record {
            look: 0,
            operation_id: self.operation_id,
            tenant: self.tenant,
            caller: self.caller,
            operation: self.operation,
            state: self.state,
            reason: self.reason,
            epoch: self.epoch,
            expires_at: self.expires_at,
            status: self.status,
            response: response.map(digest),
            effects: response.map(effects).unwrap_or_default(),
            canaries: response.map(canaries).unwrap_or_default(),
            steps,
        };
        Ok(Found { record, quarantine_until: self.quarantine_until })
    }
}

/// Parses a step such as `1763207245123 1 processing claimed`, with an optional count of repeats.
fn step(line: &str) -> Option<Step> {
    let mut words = line.split(' ');
    Some(Step {
        at: words.next()?.parse().ok()?,
        epoch: words.next()?.parse().ok()?,
        state: words.next()?.to_owned(),
        reason: words.next()?.to_owned(),
    })
}

/// Parses a row that [`OBJECT`] made.
///
/// # Errors
/// Names a line that is no JSON.
pub fn from_json(line: &str) -> Result<Columns, String> {
    let row: Value = serde_json::from_str(line).map_err(|error| format!("{line:?}: {error}"))?;
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| row[name].as_i64();
    Ok(Columns {
        operation_id: text("operation_id"),
        tenant: text("tenant"),
        caller: text("caller"),
        operation: text("operation"),
        state: text("state"),
        reason: text("reason"),
        epoch: number("epoch").and_then(|epoch| epoch.try_into().ok()).unwrap_or(0),
        expires_at: number("expires_at"),
        status: number("status").and_then(|status| status.try_into().ok()),
        response: row["response"].as_str().map(bytes),
        history: text("history"),
        quarantine_until: number("quarantine_until"),
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
    hex.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Returns 32 hex digits as a UUID.
pub fn hyphenated(hex: &str) -> String {
    let mut id = hex.to_owned();
    if id.contains('-') {
        return id;
    }
    for place in [20, 16, 12, 8] {
        if id.is_char_boundary(place) && id.len() > place {
            id.insert(place, '-');
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_digits_become_a_hyphenated_id_or_bytes() {
        assert_eq!(hyphenated("01a1df32caa3786da19645c465f24292"), "01a1df32-caa3-786d-a196-45c465f24292");
        assert_eq!(bytes("00ff7a"), [0, 255, 0x7a]);
    }

    #[test]
    fn step_is_read_with_and_without_a_repeat_count() {
        let plain = step("1763207245123 1 processing claimed").expect("it is one");
        let again = step("1763207245123 1 processing claimed 3 1763207245999").expect("it is one");
        assert_eq!(plain, again);
        assert_eq!((plain.epoch, plain.state.as_str(), plain.reason.as_str()), (1, "processing", "claimed"));
        assert_eq!(step("nonsense"), None);
    }
}
