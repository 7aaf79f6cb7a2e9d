//! Report of a run: tables, charts, and met or missed aims.

use std::fmt::Write as _;
use std::path::Path;

use super::Result;

/// One part of the results.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Heading of the section.
    pub title: String,
    /// Description of the measurement, in a few sentences.
    pub what: String,
    /// Charts by file name.
    pub charts: Vec<(String, String)>,
    /// Table of figures; the first row has the names of the columns.
    pub table: Vec<Vec<String>>,
    /// Aims of the section.
    pub aims: Vec<Aim>,
    /// Explanation of the figures.
    pub why: String,
}

/// An aim of the benchmark.
#[derive(Clone, Debug)]
pub struct Aim {
    /// Text of the aim.
    pub what: String,
    /// Measured value, in words.
    pub seen: String,
    /// True if the aim was met.
    pub is_met: bool,
}

impl Section {
    fn markdown(&self, number: usize) -> String {
        let mut text = format!("## {number}. {}\n\n{}\n\n", self.title, self.what.trim());
        for (file, _) in &self.charts {
            let _ = writeln!(text, "![{}](charts/{file})\n", self.title);
        }
        if let Some((names, rows)) = self.table.split_first() {
            let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
            text.push_str(&line(names));
            let rule: Vec<_> =
                (0..names.len()).map(|column| if column == 0 { "---" } else { "---:" }).collect();
            let _ = writeln!(text, "|{}|", rule.join("|"));
            rows.iter().for_each(|row| text.push_str(&line(row)));
            text.push('\n');
        }
        for Aim { what, seen, is_met } in &self.aims {
            let _ = writeln!(text, "- Aim: {what}. **{}**: {seen}.", if *is_met { "Met" } else { "Not met" });
        }
        if !self.aims.is_empty() {
            text.push('\n');
        }
        if !self.why.is_empty() {
            let _ = writeln!(text, "{}\n", self.why.trim());
        }
        text
    }
}

/// Writes `RESULTS.md` and its charts into this folder.
pub fn write(folder: &Path, introduction: &str, sections: &[Section]) -> Result<()> {
    let mut text = format!("# What Semel costs\n\n{}\n\n", introduction.trim());
    text.push_str("| aim | seen | |\n|---|---:|---|\n");
    for Aim { what, seen, is_met } in sections.iter().flat_map(|section| &section.aims) {
        let _ = writeln!(text, "| {what} | {seen} | {} |", if *is_met { "met" } else { "**not met**" });
    }
    text.push('\n');
    let charts = folder.join("charts");
    std::fs::create_dir_all(&charts)?;
    for (number, section) in (1..).zip(sections) {
        text.push_str(&section.markdown(number));
        for (file, drawing) in &section.charts {
            std::fs::write(charts.join(file), drawing)?;
        }
    }
    std::fs::write(folder.join("RESULTS.md"), text.trim_end().to_owned() + "\n")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_shows_its_table_its_charts_and_its_aims() {
        let section = Section {
            title: "Replay".into(),
            what: "What was done.".into(),
            charts: vec![("replay.svg".into(), "<svg/>".into())],
            table: vec![vec!["who".into(), "a second".into()], vec!["semel".into(), "10".into()]],
            aims: vec![Aim { what: "0.9 of the floor".into(), seen: "0.8".into(), is_met: false }],
            why: "Because.".into(),
        };
        let expected = "## 1. Replay\n\nWhat was done.\n\n![Replay](charts/replay.svg)\n\n| who | a second |\n|---|---:|\n| semel | 10 |\n\n\
                        - Aim: 0.9 of the floor. **Not met**: 0.8.\n\nBecause.\n\n";
        assert_eq!(section.markdown(1), expected);
    }
}
