//! The form of a ledger: its format, and the entries and columns that count. Plain data: `semel-flow`
//! compares by it.

use std::path::Path;

/// The format of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated fields; the first line names the columns.
    Csv,
    /// One JSON object on each line.
    Ndjson,
    /// A JSON list of objects.
    Json,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 3] = [Format::Csv, Format::Ndjson, Format::Json];

    /// Returns the format's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Ndjson => "ndjson",
            Format::Json => "json",
        }
    }

    /// Returns the format of a file by its extension, if that names one.
    pub fn of_path(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Format::Csv),
            "ndjson" | "jsonl" => Some(Format::Ndjson),
            "json" => Some(Format::Json),
            _ => None,
        }
    }

    /// Returns the format of a response by its `Content-Type`, if that names one.
    pub fn of_content_type(content_type: &str) -> Option<Format> {
        let (media_type, _) = content_type.split_once(';').unwrap_or((content_type, ""));
        match media_type.trim().to_ascii_lowercase().as_str() {
            "text/csv" => Some(Format::Csv),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines" => Some(Format::Ndjson),
            "application/json" => Some(Format::Json),
            _ => None,
        }
    }
}

/// Condition on a column: an entry counts only if the column has this value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The column.
    pub name: String,
    /// The value that it must hold.
    pub value: String,
}

/// The columns of an entry that count. A name is a column in CSV; in JSON it is a member, or a JSON Pointer
/// if it begins with a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerColumns {
    /// Column that identifies an entry.
    pub reference: String,
    /// Columns that must be equal on both sides.
    pub compare: Vec<String>,
    /// The column with the time of an entry.
    pub time: Option<String>,
    /// Conditions on entries: for each named column, one of the given values must match.
    pub filter: Vec<Condition>,
    /// Separator that ends a reference: the text from its first occurrence on is dropped.
    pub strip_suffix: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_format_follows_from_its_file_extension_or_content_type() {
        let names = Format::ALL.map(Format::as_str);
        assert_eq!(names, ["csv", "ndjson", "json"]);
        for (path, format) in [
            ("a.csv", Some(Format::Csv)),
            ("a.b/C.CSV", Some(Format::Csv)),
            ("a.ndjson", Some(Format::Ndjson)),
            ("a.jsonl", Some(Format::Ndjson)),
            ("a.json", Some(Format::Json)),
            ("a.txt", None),
            ("csv", None),
        ] {
            assert_eq!(Format::of_path(Path::new(path)), format, "{path}");
        }
        for (content_type, format) in [
            ("text/csv; charset=utf-8", Some(Format::Csv)),
            ("application/x-ndjson", Some(Format::Ndjson)),
            ("application/ndjson", Some(Format::Ndjson)),
            ("application/jsonl", Some(Format::Ndjson)),
            ("application/x-jsonlines", Some(Format::Ndjson)),
            (" Application/JSON ;a=b", Some(Format::Json)),
            ("text/plain", None),
            ("", None),
        ] {
            assert_eq!(Format::of_content_type(content_type), format, "{content_type}");
        }
    }
}
