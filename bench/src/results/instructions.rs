//! Instructions for a key and for a fingerprint, by callgrind, whose count is the same on every machine and under every
//! load. SHA-256 over the same bytes is shown beside them: the part of the work that cannot be saved.

use std::path::Path;
use std::process::Command;

use semel_core::{FingerprintInput, KeyRules};
use sha2::{Digest, Sha256};

use super::Result;
use super::report::Section;
use crate::chart::{Bar, Bars, Kind, figure};

/// Counted tasks: name, and size of the document if there is one.
const TASKS: [(&str, usize); 5] =
    [("key", 0), ("sha256", 1024), ("fingerprint", 1024), ("sha256", 65_536), ("fingerprint", 65_536)];

/// Performs a task `times` times. This runs under callgrind.
pub fn perform(task: &str, size: usize, times: u32) -> Result<()> {
    let document = document(size);
    for _ in 0..times {
        match task {
            "key" => {
                let key = KeyRules::default().parse([&b"\"8e03978e-40d5-43e8-bc93-6894a57f9324\""[..]]);
                std::hint::black_box(key.map_err(|error| error.to_string())?);
            }
            "sha256" => drop(std::hint::black_box(Sha256::digest(std::hint::black_box(document.as_bytes())))),
            "fingerprint" => {
                let input = FingerprintInput {
                    method: "POST",
                    path: "/payments",
                    query: None,
                    content_type: Some(b"application/json"),
                    content_encoding: None,
                    body: std::hint::black_box(document.as_bytes()),
                    exclude: &[],
                };
                std::hint::black_box(input.fingerprint());
            }
            other => return Err(format!("`{other}` is no task").into()),
        }
    }
    Ok(())
}

/// Makes a typical document: an array of small objects with text and numbers, members unsorted.
fn document(size: usize) -> String {
    let mut text = String::from("{\"items\":[");
    let mut number = 0_u32;
    while text.len() + 100 < size {
        if number > 0 {
            text.push(',');
        }
        text.push_str(&format!(
            "{{\"sku\":\"A-{number:05}\",\"quantity\":{},\"price\":{}.{:02},\"gift\":{}}}",
            number % 9 + 1,
            number % 500,
            number % 100,
            number.is_multiple_of(2)
        ));
        number += 1;
    }
    text.push_str("],\"currency\":\"EUR\",\"amount\":");
    text.push_str(&number.to_string());
    let padding = size.saturating_sub(text.len() + ",\"note\":\"\"}".len());
    text + &format!(",\"note\":\"{}\"}}", "x".repeat(padding))
}

/// Counts each task with callgrind.
pub fn run(program: &Path) -> Result<Section> {
    let mut table =
        vec![["what", "instructions", "of SHA-256 over the same bytes"].map(str::to_owned).to_vec()];
    let (mut bars, mut plain) = (Vec::new(), 0.0);
    for (task, size) in TASKS {
        let instructions = count(program, task, size)?;
        let label = if size == 0 { task.to_owned() } else { format!("{task}, {} KiB", size / 1024) };
        let ratio = match task {
            "sha256" => {
                plain = instructions;
                "1.00".to_owned()
            }
            "fingerprint" => format!("{:.2}", instructions / plain),
            _ => String::new(),
        };
        let kind = if task == "sha256" { Kind::Floor } else { Kind::Ours };
        table.push(vec![label.clone(), figure(instructions), ratio]);
        let spread = (instructions, instructions);
        bars.push(Bar { label, value: instructions, spread, kind, note: String::new() });
    }
    let chart = Bars { title: "Fingerprint and key".into(), unit: "instructions".into(), bars };
    Ok(Section {
        title: "Fingerprint and key".into(),
        what: "Instructions by callgrind, for a key in its quotes and for JSON documents of orders, read, brought into \
               canonical form and hashed. SHA-256 is over the same bytes as they came."
            .into(),
        charts: vec![("instructions.svg".into(), chart.svg())],
        table,
        aims: Vec::new(),
        why: "callgrind's processor has no instructions for SHA-256, which real ones have: there, the hash is a smaller part \
              of it than here."
            .into(),
    })
}

/// Returns the instructions of one more repetition, so that the program's start does not count.
fn count(program: &Path, task: &str, size: usize) -> Result<f64> {
    let few = instructions(program, task, size, 10)?;
    let more = instructions(program, task, size, 110)?;
    Ok((more - few) / 100.0)
}

fn instructions(program: &Path, task: &str, size: usize, times: u32) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["perform", task, &size.to_string(), &times.to_string()])
        .output()
        .map_err(|error| {
            format!("valgrind cannot be run: {error}. Install it, as with `apt-get install valgrind`")
        })?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    let count = collected.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| format!("callgrind said no count: {said}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_json_of_their_size() {
        for size in [1024, 65_536] {
            let document = document(size);
            assert_eq!(document.len(), size);
            semel_core::json::find(document.as_bytes(), &[]).expect("it is JSON");
        }
    }
}
