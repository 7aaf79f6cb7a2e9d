//! Given value from any source, and the parser of the file.

use std::fmt;
use std::sync::Arc;

use semel_core::redact::redact;
use toml::de::{DeTable, DeValue};

use crate::engine::diagnostic::Diagnostic;
use crate::engine::source::{Location, Origin, Source};

/// Value with its origin.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) origin: Origin,
    pub(crate) content: Content,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A string; variables and flags are always one.
    Text(String),
    /// An integer, in decimal digits.
    Integer(String),
    /// `true` or `false`.
    Boolean(&'static str),
    /// An array.
    List(Vec<Value>),
    /// A table.
    Table(Table),
    /// Type that no setting accepts, in words.
    Other(&'static str),
}

/// The entries of a table, in the order of the file.
pub(crate) type Table = Vec<Entry>;

/// A name and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Place of the name, which differs from that of the value.
    pub(crate) origin: Origin,
    pub(crate) value: Value,
}

impl Value {
    /// Makes the value of a variable or a flag.
    pub(crate) fn text(origin: Origin, text: &str) -> Value {
        Value { origin, content: Content::Text(text.to_owned()) }
    }

    /// Returns the elements of a list. A variable or a flag separates them with commas.
    pub(crate) fn elements(&self) -> Option<Vec<Value>> {
        match (&self.content, &self.origin) {
            (Content::List(values), _) => Some(values.clone()),
            (Content::Text(text), Origin::Variable(_) | Origin::Flag(_)) => {
                let elements = text.split(',').map(str::trim).filter(|element| !element.is_empty());
                Some(elements.map(|element| Value::text(self.origin.clone(), element)).collect())
            }
            _ => None,
        }
    }
}

/// Largest number of characters that a message quotes.
const MAX_QUOTED_CHARS: usize = 80;

/// Written like in a message, with any password hidden.
impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Text(text) | Content::Integer(text) if text.chars().count() > MAX_QUOTED_CHARS => {
                f.write_str("a value that is too long to repeat")
            }
            Content::Text(text) => write!(f, "\"{}\"", redact(text)),
            Content::Integer(digits) => f.write_str(digits),
            Content::Boolean(_) => f.write_str("a boolean"),
            Content::List(_) => f.write_str("a list"),
            Content::Table(_) => f.write_str("a table"),
            Content::Other(what) => f.write_str(what),
        }
    }
}

/// Reads a file.
///
/// # Errors
/// Returns all syntax errors.
pub(crate) fn parse_file(source: &Arc<Source>) -> Result<Table, Vec<Diagnostic>> {
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

fn table(source: &Arc<Source>, entries: &DeTable<'_>) -> Table {
    let mut table: Table = Vec::new();
    let mut in_order: Vec<_> = entries.iter().collect();
    in_order.sort_by_key(|(name, _)| name.span().start);
    for (name, content) in in_order {
        let origin = Origin::File(Location::new(source, name.span()));
        table.push(Entry { name: name.get_ref().to_string(), origin, value: value(source, content) });
    }
    table
}

fn value(source: &Arc<Source>, value: &toml::Spanned<DeValue<'_>>) -> Value {
    let content = match value.get_ref() {
        DeValue::String(text) => Content::Text(text.to_string()),
        DeValue::Integer(integer) => {
            let decimal = i64::from_str_radix(integer.as_str(), integer.radix());
            Content::Integer(decimal.map_or_else(|_| integer.to_string(), |number| number.to_string()))
        }
        DeValue::Float(_) => Content::Other("a fraction"),
        DeValue::Boolean(value) => Content::Boolean(if *value { "true" } else { "false" }),
        DeValue::Datetime(_) => Content::Other("a date"),
        DeValue::Array(elements) => {
            Content::List(elements.iter().map(|element| self::value(source, element)).collect())
        }
        DeValue::Table(entries) => Content::Table(table(source, entries)),
    };
    Value { origin: Origin::File(Location::new(source, value.span())), content }
}
