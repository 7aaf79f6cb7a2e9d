//! Reads the statements of a program from the log of a private server. Tests start the server with [`SETTINGS`].

use std::collections::BTreeSet;

use super::normalized;
use crate::postgres::Cluster;

/// Beginning of every entry in the log; the program's name follows.
const MARK: &str = "\u{1}program=";

/// Settings of a server that logs each statement with the name of its program.
pub const SETTINGS: [(&str, &str); 3] = [
    ("log_statement", "all"),
    ("log_line_prefix", "\u{1}program=%a\u{2}"),
    // Parameters are no part of a statement.
    ("log_parameter_max_length", "0"),
];

/// Returns the distinct statements that a program sent to this server, with single spaces.
///
/// # Errors
/// If the log cannot be read.
pub fn statements_of(cluster: &Cluster, program: &str) -> std::io::Result<BTreeSet<String>> {
    let log = std::fs::read(cluster.folder().join("log"))?;
    Ok(read(&String::from_utf8_lossy(&log), program))
}

/// Returns the statements of a log: entries `LOG:  statement: …` and `LOG:  execute NAME: …`.
fn read(log: &str, program: &str) -> BTreeSet<String> {
    let entries = log.split(MARK).skip(1).filter_map(|entry| entry.split_once('\u{2}'));
    let own = entries.filter(|(name, _)| *name == program);
    own.filter_map(|(_, entry)| {
        let entry = entry.strip_prefix("LOG:")?.trim_start();
        let sql = match entry.strip_prefix("statement: ") {
            Some(sql) => sql,
            None => entry.strip_prefix("execute ")?.split_once(": ")?.1,
        };
        Some(normalized(sql))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_the_statements_of_each_program() {
        let log = "old text\n\u{1}program=semel\u{2}LOG:  statement: BEGIN; SET LOCAL a = 'b: c'\n\
                   \u{1}program=semel\u{2}LOG:  execute s1: SELECT\n\t    1\n\
                   \u{1}program=psql\u{2}LOG:  statement: SELECT 2\n\
                   \u{1}program=semel\u{2}ERROR:  no\n\u{1}program=semel\u{2}STATEMENT:  SELECT 3\n";
        let found: Vec<String> = read(log, "semel").into_iter().collect();
        assert_eq!(found, ["BEGIN; SET LOCAL a = 'b: c'", "SELECT 1"]);
    }
}
