//! Values that are names and texts: variables, files, programs, tenants.

use std::path::PathBuf;

use semel_core::Principal;
use semel_core::redact::redact;

use crate::engine::addresses::AddressChecks;
use crate::engine::kind::{ValueKind, ValueRefusal, Wrong, quoted};
use crate::engine::value::{SettingValue, ValueContent};

/// Name of a variable with a secret, which never stands in a settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableName(String);

impl VariableName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ValueKind for VariableName {
    type Value = VariableName;

    fn expected() -> String {
        "the name of an environment variable, such as \"PROVIDER_TOKEN\"".to_owned()
    }

    fn parse(text: &str) -> Result<VariableName, ValueRefusal> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) || !text.chars().all(allowed) {
            return Err(ValueRefusal::Because(
                "write the name of the variable, never the secret itself".to_owned(),
            ));
        }
        Ok(VariableName(text.to_owned()))
    }

    fn show(value: &VariableName) -> Option<String> {
        Some(quoted(&value.0))
    }
}

/// The path of a file.
pub(crate) struct FilePath;

impl ValueKind for FilePath {
    type Value = PathBuf;

    fn expected() -> String {
        "the path of a file".to_owned()
    }

    fn parse(text: &str) -> Result<PathBuf, ValueRefusal> {
        if text.is_empty() || text.contains(char::is_control) {
            return Err(ValueRefusal::Unexpected);
        }
        Ok(PathBuf::from(text))
    }

    fn show(value: &PathBuf) -> Option<String> {
        Some(quoted(&value.display().to_string()))
    }
}

/// A program and its arguments.
pub(crate) struct CommandLine;

impl ValueKind for CommandLine {
    type Value = Vec<String>;

    fn expected() -> String {
        "a list of texts: a program and its arguments, without a shell".to_owned()
    }

    fn parse(_: &str) -> Result<Vec<String>, ValueRefusal> {
        Err(ValueRefusal::Unexpected)
    }

    fn read(value: &SettingValue, _: &AddressChecks) -> Result<Vec<String>, Wrong> {
        let refuse = || Wrong::new(value, &Self::expected(), &ValueRefusal::Unexpected);
        let ValueContent::List(elements) = &value.content else { return Err(refuse()) };
        let text = |element: &SettingValue| match &element.content {
            ValueContent::Text(text) if !text.contains('\0') => Some(text.clone()),
            _ => None,
        };
        let words: Vec<String> = elements.iter().map(text).collect::<Option<_>>().ok_or_else(refuse)?;
        if words.first().is_none_or(String::is_empty) { Err(refuse()) } else { Ok(words) }
    }

    /// Shows the program only: an argument may be a secret.
    fn show(value: &Vec<String>) -> Option<String> {
        let more = if value.len() > 1 { ", \"…\"" } else { "" };
        Some(format!("[{}{more}]", quoted(value.first()?)))
    }
}

/// Text that is not blank.
pub(crate) struct Text;

impl ValueKind for Text {
    type Value = String;

    fn expected() -> String {
        "a text that is not empty".to_owned()
    }

    fn parse(text: &str) -> Result<String, ValueRefusal> {
        match text {
            "" => Err(ValueRefusal::Unexpected),
            text if text.contains(char::is_control) => {
                Err(ValueRefusal::Because("it holds a control character".to_owned()))
            }
            text => Ok(text.to_owned()),
        }
    }

    fn show(value: &String) -> Option<String> {
        Some(quoted(&redact(value)))
    }
}

/// The name of a tenant or a caller.
pub(crate) struct PrincipalName;

impl ValueKind for PrincipalName {
    type Value = String;

    fn expected() -> String {
        "a name as authentication gives it, such as \"acme\"".to_owned()
    }

    fn parse(text: &str) -> Result<String, ValueRefusal> {
        // Tenants and callers have the same rules for names.
        Principal::new(text, text).map_err(|error| ValueRefusal::Because(error.to_string()))?;
        Ok(text.to_owned())
    }

    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}
