//! Verdicts on many records at the admin listener: `semel records settle`.

use semel_core::{Problem, Records};
use serde_json::Value;

use super::call::{AdminAnswer, AdminCall, malformed};
use crate::operate::reason;
use crate::operate::settle::{EvidenceFault, EvidenceReader};
use crate::operate::settling::{Settling, VerdictCounts};

/// Largest number of verdicts in one request.
const MAX_VERDICTS: usize = 1000;
/// Largest number of faults that a refusal names.
const MAX_NAMED: usize = 20;

/// Settles many records, or says what each verdict would come to.
pub(crate) async fn settle(call: AdminCall) -> Result<AdminAnswer, Problem> {
    let given =
        call.member("reason")?.ok_or_else(|| malformed("`reason` is missing: it is kept for good."))?;
    let given = reason(&given).map_err(|wrong| malformed(format!("`reason` {wrong}.")))?;
    let is_dry = match call.members.get("dryRun") {
        None | Some(Value::Null) => false,
        Some(value) => value.as_bool().ok_or_else(|| malformed("`dryRun` is true or false."))?,
    };
    let verdicts = call.members.get("verdicts").and_then(Value::as_array);
    let verdicts = verdicts.ok_or_else(|| malformed("`verdicts` must be a list of objects."))?;
    if !(1..=MAX_VERDICTS).contains(&verdicts.len()) {
        return Err(malformed(format!("`verdicts` has from 1 to {MAX_VERDICTS} elements.")));
    }
    let mut reader = EvidenceReader::new(&given, "element");
    (1..).zip(verdicts).for_each(|(number, verdict)| reader.read(number, verdict));
    let lines = reader.finish().map_err(|faults| malformed(named(&faults)))?;
    let (admin, who) = (&call.admin, &call.caller.who);
    let store: &dyn Records = &*admin.store;
    let mut settling = Settling { store, config: &admin.config, who, is_dry, stopped: None };
    let (mut results, mut counts) = (Vec::with_capacity(lines.len()), VerdictCounts::default());
    for line in &lines {
        let outcome = settling.give(line).await;
        counts.count(&outcome);
        results.push(settling.to_json(line, &outcome));
    }
    if let Some(why) = &settling.stopped {
        tracing::warn!(error = why, "the admin listener cannot use the store");
    }
    let result = match (is_dry, counts.others) {
        (true, _) => "dry run",
        (false, 0) => "done",
        (false, _) => "done in part",
    };
    Ok(AdminAnswer { result, ..AdminAnswer::json(&counts.to_json(is_dry, &results)) })
}

/// Names the first faults, and the number of the others.
fn named(faults: &[EvidenceFault]) -> String {
    let first: Vec<String> =
        faults.iter().take(MAX_NAMED).map(|fault| format!("{}: {}", fault.number, fault.why)).collect();
    let more = match faults.len() - first.len() {
        0 => String::new(),
        more => format!(" And {more} more."),
    };
    format!("Nothing was settled, since these verdicts cannot be used. {}{more}", first.join(" "))
}
