//! The names that the engine may find, and the advice about a name that is unknown where it stands.

use crate::engine::nearest::nearest;
use crate::engine::setting::SettingInfo;

/// Everything that a name in a file, a variable or a flag can mean. The tables above the engine fill it in.
#[derive(Clone, Copy)]
pub(crate) struct KnownNames {
    /// Returns every setting.
    pub(crate) settings: fn() -> Vec<SettingInfo>,
    /// Names of tables and settings that are reserved for a later version.
    pub(crate) reserved: &'static [&'static str],
    /// Tables that are lists, and are written in double brackets.
    pub(crate) lists: &'static [&'static str],
}

/// Advice about a name that is unknown in its place.
pub(crate) enum Advice {
    /// The name is reserved for a later version.
    Reserved,
    /// The name is a setting of this table.
    BelongsTo(&'static str),
    /// The name is nearly this one.
    Near(String),
    /// No advice.
    None,
}

impl KnownNames {
    /// Finds the intended name; `spell` turns a known name into the user's spelling.
    pub(crate) fn advice<'a>(
        &self,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
        spell: impl Fn(&str) -> String,
    ) -> Advice {
        if self.reserved.contains(&name) {
            return Advice::Reserved;
        }
        if let Some(info) = (self.settings)().into_iter().find(|info| info.name == name) {
            return Advice::BelongsTo(info.table);
        }
        nearest(name, known).map_or(Advice::None, |near| Advice::Near(spell(near)))
    }

    /// Returns a table as a file writes it, for messages.
    pub(crate) fn header(&self, table: &str) -> String {
        match table {
            "" => "the top level, above any table".to_owned(),
            table if self.lists.contains(&table) => format!("`[[{table}]]`"),
            table => format!("`[{table}]`"),
        }
    }
}
