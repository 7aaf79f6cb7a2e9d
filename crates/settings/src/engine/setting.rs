//! A setting: its name, its help, and the functions that read and show it.

use crate::engine::addresses::AddressChecks;
use crate::engine::kind::Wrong;
use crate::engine::value::SettingValue;

/// Setting in a holder `T`.
pub(crate) struct Setting<T> {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// Example value as TOML, for a setting without a default.
    pub(crate) example: Option<&'static str>,
    pub(crate) expected: fn() -> String,
    pub(crate) choices: fn() -> Vec<&'static str>,
    pub(crate) read: fn(&mut T, &SettingValue, &AddressChecks) -> Result<(), Wrong>,
    /// Returns the value as TOML; `None` if it is not set.
    pub(crate) show: fn(&T) -> Option<String>,
}

/// A setting by its name, its [`ValueKind`](crate::engine::kind::ValueKind), the field that holds it, its help, and an
/// example if it has no default.
macro_rules! setting {
    ($name:literal, $kind:ty, $($field:ident).+, $help:literal $(, $example:literal)?) => {
        $crate::engine::setting::Setting {
            name: $name,
            help: $help,
            example: [$(Some($example),)? None][0],
            expected: <$kind as $crate::engine::kind::ValueKind>::expected,
            choices: <$kind as $crate::engine::kind::ValueKind>::choices,
            read: |target, value, checks| {
                target.$($field).+ = <$kind as $crate::engine::kind::ValueKind>::read(value, checks)?;
                Ok(())
            },
            show: |target| <$kind as $crate::engine::kind::ValueKind>::show(&target.$($field).+),
        }
    };
}
pub(crate) use setting;

/// Everything to know about a setting: for flags, help and documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingInfo {
    /// The table it stands in; empty at the top level.
    pub table: &'static str,
    /// Its name in the file.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// The default as TOML, if it has one.
    pub default: Option<String>,
    /// A value as TOML, for a setting without default.
    pub example: Option<&'static str>,
    /// The accepted values, in words.
    pub expected: String,
    /// Accepted words, if they are a closed set.
    pub choices: Vec<&'static str>,
}

impl SettingInfo {
    pub(crate) fn new<T>(table: &'static str, setting: &Setting<T>, default: &T) -> SettingInfo {
        SettingInfo {
            table,
            name: setting.name,
            help: setting.help,
            default: (setting.show)(default),
            example: setting.example,
            expected: (setting.expected)(),
            choices: (setting.choices)(),
        }
    }

    /// Returns true if the setting has a flag and a variable: at the top level and in `[defaults]`.
    pub fn is_global(&self) -> bool {
        matches!(self.table, "" | "defaults")
    }

    /// Returns the flag's name without its dashes, such as `key-syntax`.
    pub fn flag(&self) -> Option<String> {
        self.is_global().then(|| self.name.replace('_', "-"))
    }

    /// Returns the variable, such as `SEMEL_KEY_SYNTAX`.
    pub fn variable(&self) -> Option<String> {
        self.is_global().then(|| variable(self.name))
    }
}

/// Returns the variable of a global setting.
pub(crate) fn variable(name: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", name.to_ascii_uppercase())
}

/// Prefix of Semel's variables.
pub(crate) const VARIABLE_PREFIX: &str = "SEMEL_";
