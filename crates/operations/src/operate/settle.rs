//! Verdicts on many unknown outcomes, from a file or a request. All are checked before the first is given;
//! `settling` gives them.

use std::collections::HashMap;
use std::io::{BufRead, Read};

use semel_core::OperationId;
use semel_settings::nearest;
use serde_json::{Map, Value};

use super::records::Said;
use super::{operation_id, printable, reason, strict_json, verdicts};

/// Largest number of verdicts in a file.
pub const MAX_VERDICTS: usize = 10_000;
/// Largest size of a line, in bytes.
const MAX_LINE: usize = 1 << 20;
/// Largest size of a file, in bytes.
const MAX_FILE: usize = 256 << 20;
/// Largest number of unknown members that the faults of a verdict name.
const MAX_UNKNOWN: usize = 5;
/// Largest number of characters of an unknown member's name in a message.
const MAX_NAME: usize = 80;

/// Members of a verdict.
const MEMBERS: [&str; 8] =
    ["operationId", "verdict", "attempt", "reason", "status", "headers", "body", "bodyBase64"];

/// Checked verdict on one record.
pub struct EvidenceLine {
    /// Number of its line, or of its element, from 1 on.
    pub number: usize,
    /// Command that it is about.
    pub operation_id: OperationId,
    pub(super) said: Said,
    pub(super) attempt: semel_core::Epoch,
    pub(super) why: String,
}

impl EvidenceLine {
    /// Returns the verdict in words.
    pub fn verdict(&self) -> &'static str {
        match self.said {
            Said::Executed { .. } => "executed",
            Said::NotExecuted | Said::OfCall(_) => "not-executed",
        }
    }
}

/// Line that cannot be used, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceFault {
    /// Number of the line, or of the element, from 1 on.
    pub number: usize,
    /// Sentence about the fault.
    pub why: String,
}

/// Verdicts that are read one by one.
pub struct EvidenceReader<'a> {
    reason: &'a str,
    /// Word for the place of a verdict: it is numbered by lines, or by elements.
    unit: &'static str,
    lines: Vec<EvidenceLine>,
    faults: Vec<EvidenceFault>,
    /// First line about each command.
    first: HashMap<OperationId, usize>,
}

impl<'a> EvidenceReader<'a> {
    /// Makes a reader of verdicts that are given for this reason, and numbered in this unit, such as `line`.
    pub fn new(reason: &'a str, unit: &'static str) -> EvidenceReader<'a> {
        EvidenceReader { reason, unit, lines: Vec::new(), faults: Vec::new(), first: HashMap::new() }
    }

    /// Reads one verdict.
    pub fn read(&mut self, number: usize, verdict: &Value) {
        match self.line(number, verdict) {
            Ok(line) => self.lines.push(line),
            Err(faults) => self.fault(number, faults.join(" ")),
        }
    }

    /// Returns a checked verdict, or every fault of it.
    fn line(&mut self, number: usize, verdict: &Value) -> Result<EvidenceLine, Vec<String>> {
        let Some(members) = verdict.as_object() else {
            return Err(vec!["It is not a JSON object.".to_owned()]);
        };
        let unknown_names = members.keys().filter(|name| !MEMBERS.contains(&name.as_str()));
        let mut faults: Vec<String> = unknown_names.take(MAX_UNKNOWN).map(|name| unknown(name)).collect();
        let operation_id = keep(&mut faults, self.command(number, members));
        let said = keep(&mut faults, verdicts::verdict(members));
        let attempt = keep(&mut faults, verdicts::attempt(members));
        let why = keep(&mut faults, self.why(members));
        match (operation_id, said, attempt, why) {
            (Some(operation_id), Some(said), Some(attempt), Some(why)) if faults.is_empty() => {
                Ok(EvidenceLine { number, operation_id, said, attempt, why })
            }
            _ => Err(faults),
        }
    }

    /// Returns the command of a verdict, which no earlier one is about.
    fn command(&mut self, number: usize, members: &Map<String, Value>) -> Result<OperationId, String> {
        let id = verdicts::text(members, "operationId")?.ok_or("`operationId` is missing.")?;
        let operation_id = operation_id(id).map_err(|wrong| format!("{wrong}."))?;
        if let Some(first) = self.first.get(&operation_id) {
            return Err(format!("{operation_id} has a verdict already, at {} {first}.", self.unit));
        }
        self.first.insert(operation_id, number);
        Ok(operation_id)
    }

    /// Returns the reason in the note: that of all verdicts, then that of this one.
    fn why(&self, members: &Map<String, Value>) -> Result<String, String> {
        let Some(own) = verdicts::text(members, "reason")? else { return Ok(self.reason.to_owned()) };
        let own = reason(own).map_err(|wrong| format!("`reason` {wrong}."))?;
        let both = format!("{}: {own}", self.reason);
        reason(&both).map_err(|wrong| format!("`reason`, after that of all verdicts, {wrong}."))
    }

    fn fault(&mut self, number: usize, why: impl Into<String>) {
        self.faults.push(EvidenceFault { number, why: why.into() });
    }

    /// Returns the verdicts, if every one can be used.
    ///
    /// # Errors
    /// Returns all faults.
    pub fn finish(self) -> Result<Vec<EvidenceLine>, Vec<EvidenceFault>> {
        if self.faults.is_empty() { Ok(self.lines) } else { Err(self.faults) }
    }
}

/// Returns what was read, or adds the fault to those of the verdict.
fn keep<T>(faults: &mut Vec<String>, read: Result<T, String>) -> Option<T> {
    read.map_err(|fault| faults.push(fault)).ok()
}

fn unknown(name: &str) -> String {
    let name: String = printable(name).chars().take(MAX_NAME).collect();
    match nearest(&name, MEMBERS) {
        Some(near) => format!("There is no member `{name}`: did you mean `{near}`?"),
        None => format!("There is no member `{name}`: known are {}.", MEMBERS.join(", ")),
    }
}

/// Reads a file of verdicts: JSON Lines. Empty lines are skipped.
///
/// # Errors
/// Returns every line that cannot be used, or, in the inner result, the error of the file.
pub fn read_file(
    file: impl BufRead,
    reason: &str,
) -> std::io::Result<Result<Vec<EvidenceLine>, Vec<EvidenceFault>>> {
    let (mut file, mut reader) = (file.take(MAX_FILE as u64 + 1), EvidenceReader::new(reason, "line"));
    let (mut number, mut verdicts, mut line) = (0, 0, Vec::new());
    loop {
        line.clear();
        (&mut file).take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            break;
        }
        number += 1;
        let is_whole = line.ends_with(b"\n") || line.len() <= MAX_LINE;
        if !is_whole {
            reader.fault(number, format!("It has more than {MAX_LINE} bytes."));
            skip_line(&mut file)?;
        } else if !line.trim_ascii().is_empty() {
            verdicts += 1;
            if verdicts > MAX_VERDICTS {
                reader.fault(number, format!("The file has more than {MAX_VERDICTS} verdicts: split it."));
                break;
            }
            match strict_json::parse(line.trim_ascii()) {
                Ok(verdict) => reader.read(number, &verdict),
                Err(why) => reader.fault(number, format!("It cannot be read: {why}.")),
            }
        }
        if file.limit() == 0 {
            reader.fault(number, format!("The file has more than {MAX_FILE} bytes: split it."));
            break;
        }
    }
    Ok(reader.finish())
}

/// Reads to the end of a line without keeping it.
fn skip_line(file: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let bytes = file.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(bytes.len(), |end| end + 1);
        file.consume(length);
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01a1df32-caa3-786d-a196-45c465f24292";
    const OTHER: &str = "01a1df32-caa3-786d-a196-45c465f24293";

    fn read(text: &str) -> Result<Vec<EvidenceLine>, Vec<EvidenceFault>> {
        read_file(text.as_bytes(), "ticket 7").expect("memory can be read")
    }

    fn faults(text: &str) -> Vec<(usize, String)> {
        let faults = read(text).err().unwrap_or_default();
        faults.into_iter().map(|fault| (fault.number, fault.why)).collect()
    }

    #[test]
    fn a_file_of_verdicts_is_read_whole() {
        let text = format!(
            "{{\"operationId\":\"{ID}\",\"verdict\":\"executed\",\"status\":201,\"body\":\"{{}}\",\
             \"headers\":{{\"Location\":\"/p/1\"}},\"attempt\":2,\"reason\":\"charge 7\"}}\r\n\n\
             {{\"operationId\":\"{OTHER}\",\"verdict\":\"not-executed\"}}"
        );
        let lines = read(&text).unwrap_or_else(|faults| panic!("{faults:?}"));
        let shown: Vec<_> =
            lines.iter().map(|line| (line.number, line.verdict(), line.attempt, line.why.as_str())).collect();
        assert_eq!(shown, [(1, "executed", 2, "ticket 7: charge 7"), (3, "not-executed", 1, "ticket 7")]);
    }

    #[test]
    fn every_bad_line_is_named_with_its_number_and_its_fault() {
        let good = format!("{{\"operationId\":\"{ID}\",\"verdict\":\"not-executed\"}}");
        let line = |members: &str| format!("{{\"operationId\":\"{OTHER}\",{members}}}");
        for (bad, why) in [
            ("{".to_owned(), "not JSON"),
            ("[]".to_owned(), "not a JSON object"),
            (good.clone(), "has a verdict already, at line 1"),
            (line("\"verdict\":\"executed\""), "needs the `status`"),
            (line("\"verdict\":\"executed\",\"status\":100"), "from 200 to 599"),
            (line("\"verdict\":\"executed\",\"status\":\"201\""), "from 200 to 599"),
            (line("\"verdict\":\"resume\""), "`verdict` must be \"executed\" or \"not-executed\"."),
            (line("\"verdict\":\"not-executed\",\"status\":200"), "go with the verdict"),
            (line("\"verdict\":\"not-executed\",\"phase\":\"charge\""), "no member `phase`"),
            (line("\"verdict\":\"not-executed\",\"Reason\":\"x\""), "did you mean `reason`?"),
            (line("\"verdict\":\"not-executed\",\"verdict\":\"executed\",\"status\":200"), "two members"),
            (line("\"verdict\":\"not-executed\",\"attempt\":0"), "`attempt` must be"),
            (line("\"verdict\":\"not-executed\",\"reason\":\"a\\nb\""), "one line"),
            (line("\"verdict\":\"executed\",\"status\":200,\"bodyBase64\":\"?\""), "not base64"),
            (line("\"verdict\":\"executed\",\"status\":200,\"headers\":{\"a b\":\"\"}"), "not a header name"),
            ("{\"verdict\":\"not-executed\"}".to_owned(), "`operationId` is missing"),
            ("{\"operationId\":\"7\",\"verdict\":\"not-executed\"}".to_owned(), "not an operation id"),
        ] {
            let found = faults(&format!("{good}\n{bad}\n\n[]\n"));
            assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 4], "{bad}");
            assert!(found[0].1.contains(why), "{bad}: {found:?}");
        }
    }

    #[test]
    fn every_fault_of_a_line_is_named() {
        let found = faults(
            "{\"operationId\":\"7\",\"verdict\":\"perhaps\",\"attempt\":0,\"Reason\":\"x\",\"reason\":\"\"}\n",
        );
        let [(1, why)] = &found[..] else { panic!("{found:?}") };
        for fault in
            ["no member `Reason`", "not an operation id", "`verdict` must", "`attempt` must", "`reason` must"]
        {
            assert!(why.contains(fault), "{fault}: {why}");
        }
    }

    #[test]
    fn a_line_or_a_file_that_is_too_long_is_refused() {
        let long = format!("{}\n[]\n", "x".repeat(MAX_LINE * 2));
        let found = faults(&long);
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
        assert!(found[0].1.contains("more than 1048576 bytes"), "{found:?}");
        let many = "[]\n".repeat(MAX_VERDICTS + 2);
        let found = faults(&many);
        assert_eq!(found.len(), MAX_VERDICTS + 1);
        assert!(
            found.last().is_some_and(|(number, why)| *number == MAX_VERDICTS + 1 && why.contains("split"))
        );
        let at_most = format!("{}\n", " ".repeat(MAX_LINE - 1));
        assert!(faults(&at_most).is_empty(), "a line of the largest size");
    }
}
