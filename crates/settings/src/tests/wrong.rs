//! Wrong inputs and their exact messages.

use super::*;

mod admin;
mod encryption;
mod names;
mod outside;
mod tls;
mod together;
mod values;

/// Reads a file and compares all messages about it, word by word. Both texts begin after a line break.
pub(crate) fn wrong(text: &str, expected: &str) {
    let text = text.trim_start_matches('\n');
    assert_eq!(format!("\n{}\n", refused(&file(text))), expected);
}

/// Returns the first message about a file, without the place and the setting.
fn first_message(text: &str) -> String {
    let errors = load(&file(text)).expect_err("it is refused");
    errors.iter().next().expect("errors are never empty").message.clone()
}
