//! `witness`: the file that remembers how far the store had come.

use std::path::PathBuf;

use crate::engine::kind::{ValueKind, ValueRefusal, quoted};

/// Word for the usual place.
const BESIDE: &str = "beside";

/// The place of the file of the witness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WitnessPlace {
    /// Beside a SQLite file; none for other stores.
    #[default]
    Beside,
    /// This file.
    File(PathBuf),
}

impl ValueKind for WitnessPlace {
    type Value = WitnessPlace;

    fn expected() -> String {
        "\"beside\", or the path of a file".to_owned()
    }

    fn parse(text: &str) -> Result<WitnessPlace, ValueRefusal> {
        match text {
            BESIDE => Ok(WitnessPlace::Beside),
            _ if text.is_empty() || text.contains(char::is_control) => Err(ValueRefusal::Unexpected),
            path => Ok(WitnessPlace::File(PathBuf::from(path))),
        }
    }

    fn show(value: &WitnessPlace) -> Option<String> {
        Some(match value {
            WitnessPlace::Beside => quoted(BESIDE),
            WitnessPlace::File(path) => quoted(&path.display().to_string()),
        })
    }
}
