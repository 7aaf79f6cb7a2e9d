//! Foreign text, before it is shown or logged.

/// Returns true if a character breaks a line, controls a terminal or changes the text direction: controls,
/// the line and paragraph separators (U+2028, U+2029), and the direction marks; or if it cannot be seen, and so makes two names look
/// like one.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{200b}' | '\u{2060}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_separator_and_direction_characters_steer_a_terminal() {
        for c in [
            '\n', '\u{1b}', '\u{85}', '\u{2028}', '\u{2029}', '\u{61c}', '\u{200b}', '\u{200e}', '\u{202e}',
            '\u{2066}', '\u{feff}',
        ] {
            assert!(steers(c), "{c:?}");
        }
        for c in ['a', ' ', '\u{e9}', '\u{200d}', '\u{2030}'] {
            assert!(!steers(c), "{c:?}");
        }
    }
}
