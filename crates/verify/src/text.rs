//! Text from servers and documents, made safe for a terminal.

/// Returns the text on one line, with a replacement character for everything that [`steers`].
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Returns whether a character breaks a line, controls a terminal or changes the direction of text.
pub(crate) fn steers(c: char) -> bool {
    let separates_lines = matches!(c, '\u{2028}' | '\u{2029}');
    let turns_text = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || separates_lines || turns_text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_has_no_terminal_control_characters() {
        assert_eq!(
            printable("a\u{1b}[31m\nb\u{2028}\u{202e}c é"),
            "a\u{fffd}[31m\u{fffd}b\u{fffd}\u{fffd}c é"
        );
    }
}
