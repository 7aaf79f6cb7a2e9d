//! What to say about a name that nobody knows where it stands.

use super::nearest::nearest;
use super::settings::{RESERVED, settings};

/// What can be said about a name that is unknown where it stands.
pub(super) enum Advice {
    /// It is promised, and not built yet.
    Reserved,
    /// It is a setting of this table.
    BelongsTo(&'static str),
    /// It is nearly this one.
    Near(String),
    /// Nothing.
    None,
}

/// Finds what a name was meant to be; `spell` turns a known name into what the user would have to write.
pub(super) fn advice<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    spell: impl Fn(&str) -> String,
) -> Advice {
    if RESERVED.contains(&name) {
        return Advice::Reserved;
    }
    if let Some(info) = settings().into_iter().find(|info| info.name == name) {
        return Advice::BelongsTo(info.table);
    }
    nearest(name, known).map_or(Advice::None, |near| Advice::Near(spell(near)))
}

/// How a table is written, for messages.
pub(super) fn header(table: &str) -> String {
    match table {
        "" => "the top level, above any table".to_owned(),
        "operation" | "pass" | "webhook" | "limit" | "encryption.key" | "admin.token" => {
            format!("`[[{table}]]`")
        }
        table => format!("`[{table}]`"),
    }
}
