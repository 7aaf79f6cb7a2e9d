//! Text that others wrote, before it is shown or logged.

/// Whether a character breaks a line, steers a terminal or turns the text around it: controls, the separators of lines and
/// paragraphs (U+2028, U+2029), and the marks of direction.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
