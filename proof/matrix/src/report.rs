//! Report of a run: tables for people, with the result of every cell.

use std::path::Path;

use crate::reading;
use crate::rows::Outcome;
use crate::table::{Cell, Fault, STEPS, Store, code};

const BEGIN: &str = "<!-- begin: written by `cargo xtask crash-matrix` -->";
const END: &str = "<!-- end: written by `cargo xtask crash-matrix` -->";

/// Results of a run.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) cells: Vec<(Cell, Outcome)>,
    pub(crate) seconds: u64,
}

impl Report {
    pub(crate) fn count(&self, wanted: fn(&Outcome) -> bool) -> usize {
        self.cells.iter().filter(|(_, outcome)| wanted(outcome)).count()
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} cells: {} pass, {} fail, {} not applicable; {} s",
            self.cells.len(),
            self.count(|outcome| matches!(outcome, Outcome::Pass(_))),
            self.count(|outcome| matches!(outcome, Outcome::Fail(_))),
            self.count(|outcome| matches!(outcome, Outcome::NotApplicable(_))),
            self.seconds
        )
    }

    /// Returns a table for each store, and the notes below them.
    pub(crate) fn markdown(&self) -> String {
        let mut notes: Vec<&'static str> = Vec::new();
        let mut text = String::new();
        for store in Store::ALL {
            if self.cells.iter().any(|(cell, _)| cell.store == store) {
                text.push_str(&self.table(store, &mut notes));
            }
        }
        for (number, note) in notes.iter().enumerate() {
            let words = note.split_whitespace().collect::<Vec<_>>().join(" ");
            text.push_str(&format!("{}. {words}\n", number + 1));
        }
        text
    }

    fn table(&self, store: Store, notes: &mut Vec<&'static str>) -> String {
        let name = if store == Store::Sqlite { "SQLite" } else { "PostgreSQL" };
        let letters = Fault::ALL.map(|fault| fault.letter().to_string()).join(" | ");
        let mut text =
            format!("### {name}\n\n| step | {letters} |\n|---|{}\n", "---|".repeat(Fault::ALL.len()));
        for (index, step) in STEPS.iter().enumerate() {
            let number = index + 1;
            let words = Fault::ALL.map(|fault| self.word(number, fault, store, notes)).join(" | ");
            text.push_str(&format!("| {number} {step} | {words} |\n"));
        }
        text.push('\n');
        text
    }

    fn word(&self, step: usize, fault: Fault, store: Store, notes: &mut Vec<&'static str>) -> String {
        let Some(written) = code(step, fault) else { return "–".to_owned() };
        let cell = Cell { step, fault, store, code: written };
        let found = self.cells.iter().find(|(known, _)| *known == cell).map(|(_, outcome)| outcome);
        let mut note = |text: &'static str| {
            let known = notes.iter().position(|known| *known == text);
            let number = known.unwrap_or_else(|| {
                notes.push(text);
                notes.len() - 1
            });
            format!(" [{}]", number + 1)
        };
        let reading = reading::of(cell);
        let mut letters = written.letters().replace('|', "\\|");
        if reading.code != written {
            letters = format!("{letters} → {}", reading.code.letters());
        }
        let mark = match found {
            Some(Outcome::Pass(_)) => "pass".to_owned(),
            Some(Outcome::Fail(_)) => "**FAIL**".to_owned(),
            Some(Outcome::NotApplicable(why)) => return format!("n/a{}", note(why)),
            None => "not run".to_owned(),
        };
        format!("{letters} {mark}{}", reading.notes.into_iter().map(note).collect::<String>())
    }
}

/// Writes the tables between the marks of the page.
pub(crate) fn write(page: &Path, report: &Report) -> Result<(), String> {
    let wrong = |why: &str| format!("{}: {why}", page.display());
    let text = std::fs::read_to_string(page).map_err(|error| wrong(&error.to_string()))?;
    let (before, rest) =
        text.split_once(BEGIN).ok_or_else(|| wrong("the mark of the beginning is missing"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| wrong("the mark of the end is missing"))?;
    let tables = format!("{}.\n\n{}", report.summary(), report.markdown());
    std::fs::write(page, format!("{before}{BEGIN}\n{tables}{END}{after}"))
        .map_err(|error| wrong(&error.to_string()))
}
