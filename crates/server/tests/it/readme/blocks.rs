//! Fenced blocks of a page, their commands, and the comparison of output with a page.

use crate::snapshot::masked;

/// Fenced block.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
    /// Line number of its first line.
    pub(crate) line: usize,
}

/// Command in a block.
pub(crate) struct Command {
    /// Command without its comment.
    pub(crate) line: String,
    /// Expected exit code: 0, unless the comment says `exit code 1`.
    pub(crate) code: i32,
}

/// Returns every fenced block of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (line, number) in page.lines().zip(1..) {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(language), None) => {
                open = Some(Block { language: language.to_owned(), text: String::new(), line: number + 1 });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Returns the commands of a `sh` block; one may span several lines.
pub(crate) fn commands(block: &str) -> Vec<Command> {
    let joined = block.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.map(|line| line.split_once("  #").unwrap_or((line, "")));
    parts
        .map(|(line, comment)| Command {
            line: line.split_whitespace().collect::<Vec<_>>().join(" "),
            code: i32::from(comment.contains("exit code 1")),
        })
        .collect()
}

/// Compares output with a page line by line. `…` stands for anything within a line, or alone for any number
/// of lines; values that differ from run to run are masked.
pub(crate) fn says(said: &str, shown: &str) -> Result<(), String> {
    let (said, shown) = (masked(said), masked(shown));
    let said: Vec<&str> = said.lines().map(str::trim_end).collect();
    let (mut at, mut anywhere) = (0, false);
    for line in shown.lines().map(str::trim_end) {
        if line.trim() == "…" {
            anywhere = true;
            continue;
        }
        let rest = said.get(at..).unwrap_or_default();
        let found = match anywhere {
            true => rest.iter().position(|candidate| is_like(candidate, line)),
            false => rest.first().filter(|candidate| is_like(candidate, line)).map(|_| 0),
        };
        match found {
            Some(skipped) => at += skipped + 1,
            None => {
                let instead = rest.first().unwrap_or(&"(the end)");
                return Err(format!("nothing said {line:?}; next was {instead:?}"));
            }
        }
        anywhere = false;
    }
    match said.get(at) {
        Some(more) if !anywhere => Err(format!("more was said: {more:?}")),
        _ => Ok(()),
    }
}

/// Returns true if a line matches the pattern, in which `…` stands for anything.
fn is_like(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn commands_of_a_block_are_found_with_their_expected_exit_codes() {
    let found = commands("a b \\\n  -c 'd # e'    # it fails: exit code 1\n\n# only a comment\nf\n");
    let found: Vec<_> = found.iter().map(|command| (command.line.as_str(), command.code)).collect();
    assert_eq!(found, [("a b -c 'd # e'", 1), ("f", 0)]);
}

#[test]
fn shown_output_must_equal_the_real_output() {
    let said = "one 17\ntwo\nthree\n";
    for shown in ["one 17\ntwo\nthree\n", "one …\n…\nthree", "…\ntwo\n…", "… 17\ntwo\n…"] {
        assert_eq!(says(said, shown), Ok(()), "{shown}");
    }
    for shown in ["one 17\ntwo\n", "one 18\n…", "…\nfour\n…", "two\n…", "…\nthree\ntwo", ""] {
        assert!(says(said, shown).is_err(), "{shown}");
    }
}
