//! Pages of the book's reference that list tables of the program: each is rendered from its table and compared with its file
//! in `docs/src/reference`. `SEMEL_SNAPSHOTS=rewrite cargo nextest run -p semel-server reference` writes them anew.

mod admin;
mod commands;
mod markdown;
mod metrics;
mod problems;
mod settings;
mod store;

use std::path::{Path, PathBuf};

use crate::snapshot;

/// Asserts that a page of the reference is this text.
fn assert_page(name: &str, text: &str) {
    let file = snapshot::root().join("docs/src/reference").join(name);
    if let Some(difference) = snapshot::exact_difference(&file, text) {
        panic!("\n{difference}");
    }
}

/// Returns the Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
