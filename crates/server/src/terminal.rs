//! Properties of the user's terminal: colours and width.

use std::ffi::OsString;
use std::io::IsTerminal;

/// Width below which no text is arranged.
const MIN_WIDTH: usize = 20;
/// Indentation of continuation lines.
const CONTINUED: usize = 4;

/// Returns true if a stream shows colours: a terminal that is not `dumb`, without `NO_COLOR`.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && wants_colours(|name| std::env::var_os(name))
}

fn wants_colours(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let dumb = variable("TERM").is_some_and(|name| name == "dumb");
    let unwanted = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    !dumb && !unwanted
}

/// Returns the columns of the standard output, from `COLUMNS` or the terminal. `None` for a file or a pipe,
/// whose lines are for programs.
fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let asked = || rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col));
    said.or_else(asked).filter(|columns| *columns >= MIN_WIDTH)
}

/// Returns the text with long lines wrapped between words.
pub(crate) fn fit(text: &str) -> String {
    match width() {
        Some(width) => text.split('\n').map(|line| fit_line(line, width)).collect::<Vec<_>>().join("\n"),
        None => text.to_owned(),
    }
}

fn fit_line(line: &str, width: usize) -> String {
    if shown_width(line) <= width || is_command(line) {
        return line.to_owned();
    }
    let (hang, least) = hanging(line, width);
    let (mut fitted, mut used, mut is_first) = (String::new(), 0, true);
    let (mut spaces, mut has_word) = (0, false);
    for word in line.split(' ') {
        if word.is_empty() {
            spaces += 1;
            continue;
        }
        // Columns stay aligned until the first break; below it, they would only take room.
        let gap = match (is_first, has_word) {
            (true, false) if spaces > width / 2 => CONTINUED,
            (true, _) => spaces,
            (false, _) => spaces.min(2),
        };
        let wide = shown_width(word);
        if has_word && used + gap + wide > width {
            let hang = if hang + wide > width { least } else { hang };
            fitted.push('\n');
            fitted.push_str(&" ".repeat(hang));
            (used, is_first) = (hang, false);
        } else {
            fitted.push_str(&" ".repeat(gap));
            used += gap;
        }
        fitted.push_str(word);
        (used, spaces, has_word) = (used + wide, 1, true);
    }
    fitted
}

/// Returns true if a line is to be copied: it must stay whole.
fn is_command(line: &str) -> bool {
    ["$ ", "curl ", "semel "].iter().any(|start| line.trim_start().starts_with(start))
}

/// Returns two indentations of continuation lines: that of the last column in the left half, or a little more
/// than the line's own; and the latter, for a word that is too long.
fn hanging(line: &str, width: usize) -> (usize, usize) {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let mut column = None;
    let (mut at, mut spaces) = (0, 0);
    for word in line.split(' ') {
        if word.is_empty() {
            spaces += 1;
        } else {
            // The space behind the word before is one of them.
            if spaces >= 1 && at > 0 && at + spaces <= width / 2 {
                column = Some(at + spaces);
            }
            at += spaces + shown_width(word) + 1;
            spaces = 0;
        }
    }
    let least = if indent > width / 2 { CONTINUED } else { indent } + CONTINUED;
    (column.unwrap_or(least), least)
}

/// Returns the number of columns of a text, without its colours.
fn shown_width(text: &str) -> usize {
    let (mut columns, mut in_colour) = (0, false);
    for letter in text.chars() {
        match letter {
            '\u{1b}' => in_colour = true,
            'm' if in_colour => in_colour = false,
            _ if in_colour => {}
            _ => columns += 1,
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_gets_no_colours() {
        let with = |set: &'static [(&str, &str)]| {
            wants_colours(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            })
        };
        assert!(with(&[]) && with(&[("TERM", "xterm")]) && with(&[("NO_COLOR", "")]));
        assert!(!with(&[("TERM", "dumb")]) && !with(&[("TERM", "xterm"), ("NO_COLOR", "1")]));
    }

    #[test]
    fn a_long_line_goes_on_below_and_a_short_one_stays() {
        assert_eq!(fit_line("ID      STATE", 20), "ID      STATE");
        assert_eq!(
            fit_line("01a1-01a1-01a1   unknown    payments.create", 26),
            "01a1-01a1-01a1   unknown\n    payments.create"
        );
        assert_eq!(
            fit_line("fail  store    no connection to the server", 30),
            "fail  store    no connection\n               to the server"
        );
        assert_eq!(
            fit_line("  one two three four five", 14),
            "  one two\n      three\n      four\n      five"
        );
        assert_eq!(fit_line("                    far to the right", 24), "    far to the right");
        assert_eq!(
            fit_line("a-word-that-is-longer-than-any-line", 20),
            "a-word-that-is-longer-than-any-line"
        );
        assert_eq!(fit_line("wide-wide-wide-wide    a         b", 24), "wide-wide-wide-wide    a\n    b");
        assert_eq!(fit_line("a         long-long-long-long", 22), "a\n    long-long-long-long");
        let command = "  curl -s http://127.0.0.1:8080/payments";
        assert_eq!(fit_line(command, 20), command, "it can be copied");
        let green = "\u{1b}[32m0123456789\u{1b}[0m 0123456789";
        assert_eq!(fit_line(green, 21), green, "colours take no room");
    }
}
