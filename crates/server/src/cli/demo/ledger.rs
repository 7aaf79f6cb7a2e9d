//! Ledger of the payment service: each charge is a line of JSON, on the disk before anything else happens.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// File with the charges of the demo.
#[derive(Clone)]
pub(super) struct ChargeLedger(PathBuf);

impl ChargeLedger {
    /// Returns the ledger in this file.
    pub(super) fn at(path: &Path) -> ChargeLedger {
        ChargeLedger(path.to_owned())
    }

    /// Returns the ledger in the demo's folder.
    pub(super) fn of(folder: &Path) -> ChargeLedger {
        ChargeLedger(folder.join("ledger.jsonl"))
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns all lines.
    pub(super) fn lines(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }

    /// Returns the number of charges.
    pub(super) fn count(&self) -> usize {
        self.lines().lines().count()
    }

    /// Returns all charges, oldest first.
    pub(super) fn charges(&self) -> Vec<Value> {
        self.lines().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Appends a charge, and returns once it is on the disk.
    pub(super) fn write(&self, charge: &Value) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.0)?;
        writeln!(file, "{charge}")?;
        file.sync_all()
    }
}
