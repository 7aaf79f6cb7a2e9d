//! Pages of the book's reference that list tables of the program: each is rendered from its table and compared with its file
//! in `docs/src/reference`. `SEMEL_SNAPSHOTS=rewrite cargo nextest run -p semel-server reference` writes them anew.

mod admin;
mod commands;
mod markdown;
mod problems;
mod settings;

use crate::snapshot;

/// Asserts that a page of the reference is this text.
fn assert_page(name: &str, text: &str) {
    let file = snapshot::root().join("docs/src/reference").join(name);
    if let Some(difference) = snapshot::exact_difference(&file, text) {
        panic!("\n{difference}");
    }
}
