//! Given value from any source, and the parser of the file.

use std::fmt;
use std::sync::Arc;

use semel_core::redact::redact;
use toml::de::{DeTable, DeValue};

use crate::engine::address_query::hide_queries;
use crate::engine::diagnostic::Diagnostic;
use crate::engine::source::{Location, Origin, SourceFile};

/// Value with its origin.
#[derive(Clone, Debug)]
pub(crate) struct SettingValue {
    pub(crate) origin: Origin,
    pub(crate) content: ValueContent,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub(crate) enum ValueContent {
    /// A string; variables and flags are always one.
    Text(String),
    /// An integer, in decimal digits.
    Integer(String),
    /// A number that is no integer, as it was written.
    Fraction(String),
    /// `true` or `false`.
    Boolean(&'static str),
    /// An array.
    List(Vec<SettingValue>),
    /// A table.
    Table(Table),
    /// Type that no setting accepts, in words.
    Other(&'static str),
}

/// The entries of a table, in the order of the file.
pub(crate) type Table = Vec<NamedValue>;

/// A name and its value.
#[derive(Clone, Debug)]
pub(crate) struct NamedValue {
    pub(crate) name: String,
    /// Place of the name, which differs from that of the value.
    pub(crate) origin: Origin,
    pub(crate) value: SettingValue,
}

impl SettingValue {
    /// Makes the value of a variable or a flag.
    pub(crate) fn text(origin: Origin, text: &str) -> SettingValue {
        SettingValue { origin, content: ValueContent::Text(text.to_owned()) }
    }

    /// Returns the elements of a list. A variable or a flag separates them with commas.
    pub(crate) fn elements(&self) -> Option<Vec<SettingValue>> {
        match (&self.content, &self.origin) {
            (ValueContent::List(values), _) => Some(values.clone()),
            (ValueContent::Text(text), Origin::Variable(_) | Origin::Flag(_)) => {
                let elements = text.split(',').map(str::trim).filter(|element| !element.is_empty());
                Some(elements.map(|element| SettingValue::text(self.origin.clone(), element)).collect())
            }
            _ => None,
        }
    }
}

/// Largest number of characters that a message quotes.
const MAX_QUOTED_CHARS: usize = 80;

/// Written like in a message, with any password hidden, and the values in the query of an address.
impl fmt::Display for ValueContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueContent::Text(text) | ValueContent::Integer(text) | ValueContent::Fraction(text)
                if text.chars().count() > MAX_QUOTED_CHARS =>
            {
                f.write_str("a value that is too long to repeat")
            }
            ValueContent::Text(text) => write!(f, "\"{}\"", hide_queries(&redact(text))),
            ValueContent::Integer(digits) | ValueContent::Fraction(digits) => f.write_str(digits),
            ValueContent::Boolean(_) => f.write_str("a boolean"),
            ValueContent::List(_) => f.write_str("a list"),
            ValueContent::Table(_) => f.write_str("a table"),
            ValueContent::Other(what) => f.write_str(what),
        }
    }
}

/// Reads a file.
///
/// # Errors
/// Returns all syntax errors.
pub(crate) fn parse_file(source: &Arc<SourceFile>) -> Result<Table, Vec<Diagnostic>> {
    let (document, errors) = DeTable::parse_recoverable(&source.text);
    if errors.is_empty() {
        return Ok(table(source, document.get_ref()));
    }
    let located = |error: toml::de::Error| {
        let origin = Origin::File(Location::new(source, error.span().unwrap_or(0..0)));
        Diagnostic::error(origin, None, format!("not TOML: {}", error.message()))
    };
    Err(errors.into_iter().map(located).collect())
}

fn table(source: &Arc<SourceFile>, entries: &DeTable<'_>) -> Table {
    let mut table: Table = Vec::new();
    let mut in_order: Vec<_> = entries.iter().collect();
    in_order.sort_by_key(|(name, _)| name.span().start);
    for (name, content) in in_order {
        let origin = Origin::File(Location::new(source, name.span()));
        table.push(NamedValue { name: name.get_ref().to_string(), origin, value: value(source, content) });
    }
    table
}

fn value(source: &Arc<SourceFile>, value: &toml::Spanned<DeValue<'_>>) -> SettingValue {
    let content = match value.get_ref() {
        DeValue::String(text) => ValueContent::Text(text.to_string()),
        DeValue::Integer(integer) => {
            let decimal = i64::from_str_radix(integer.as_str(), integer.radix());
            ValueContent::Integer(decimal.map_or_else(|_| integer.to_string(), |number| number.to_string()))
        }
        DeValue::Float(float) => ValueContent::Fraction(float.as_str().to_owned()),
        DeValue::Boolean(value) => ValueContent::Boolean(if *value { "true" } else { "false" }),
        DeValue::Datetime(_) => ValueContent::Other("a date"),
        DeValue::Array(elements) => {
            ValueContent::List(elements.iter().map(|element| self::value(source, element)).collect())
        }
        DeValue::Table(entries) => ValueContent::Table(table(source, entries)),
    };
    SettingValue { origin: Origin::File(Location::new(source, value.span())), content }
}
