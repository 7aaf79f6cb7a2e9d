//! Syntax of values: read from a source, shown as TOML.

use std::marker::PhantomData;

use crate::engine::addresses::AddressChecks;
use crate::engine::nearest::nearest;
use crate::engine::source::Origin;
use crate::engine::value::{SettingValue, ValueContent};

/// Syntax of a value. Most values are one text, and only need [`parse`](ValueKind::parse).
pub(crate) trait ValueKind {
    /// Type of a setting of this kind.
    type Value;

    /// True if the text may be written as an integer without quotes.
    const BARE_INTEGER: bool = false;

    /// True if the text may be written as a decimal fraction without quotes.
    const BARE_FRACTION: bool = false;

    /// True if the text may be written as a boolean without quotes.
    const BARE_BOOLEAN: bool = false;

    /// Returns the accepted values, in words that follow "expected".
    fn expected() -> String;

    /// Returns the accepted words, if they are a closed set.
    fn choices() -> Vec<&'static str> {
        Vec::new()
    }

    /// Reads one text.
    fn parse(text: &str) -> Result<Self::Value, ValueRefusal>;

    /// Checks an address that was read by the rules of whoever uses it.
    fn check_address(_: &Self::Value, _: &AddressChecks) -> Result<(), ValueRefusal> {
        Ok(())
    }

    /// Reads a value as it was given.
    fn read(value: &SettingValue, checks: &AddressChecks) -> Result<Self::Value, Wrong> {
        let parsed = match &value.content {
            ValueContent::Text(text) => Self::parse(text),
            ValueContent::Integer(digits) if Self::BARE_INTEGER => Self::parse(digits),
            ValueContent::Fraction(digits) if Self::BARE_FRACTION => Self::parse(digits),
            ValueContent::Boolean(word) if Self::BARE_BOOLEAN => Self::parse(word),
            ValueContent::Integer(_)
            | ValueContent::Fraction(_)
            | ValueContent::Boolean(_)
            | ValueContent::List(_)
            | ValueContent::Table(_)
            | ValueContent::Other(_) => Err(ValueRefusal::Unexpected),
        };
        let checked = parsed.and_then(|read| Self::check_address(&read, checks).map(|()| read));
        checked.map_err(|refusal| Wrong::new(value, &Self::expected(), &refusal))
    }

    /// Returns the value as TOML; `None` if the setting is not set.
    fn show(value: &Self::Value) -> Option<String>;
}

/// Reason for which a text is no value of its kind, beyond [`ValueKind::expected`].
pub(crate) enum ValueRefusal {
    /// The text is something else.
    Unexpected,
    /// The text has a known mistake.
    Because(String),
    /// The text has a known mistake, which is said first: the text beside it is long, or partly hidden.
    ReasonFirst(String),
    /// The text was probably meant to be this.
    DidYouMean(String),
    /// The text is reserved for a later version.
    Reserved,
}

/// Fault of a value, and its place: an element of a list has its own place.
pub(crate) struct Wrong {
    pub(crate) origin: Origin,
    pub(crate) message: String,
}

impl Wrong {
    pub(crate) fn new(value: &SettingValue, expected: &str, refusal: &ValueRefusal) -> Wrong {
        let found = &value.content;
        let message = match refusal {
            ValueRefusal::Unexpected => format!("expected {expected}, found {found}"),
            ValueRefusal::Because(reason) => format!("expected {expected}, found {found}: {reason}"),
            ValueRefusal::ReasonFirst(reason) => format!("{reason}: found {found}, expected {expected}"),
            ValueRefusal::DidYouMean(near) => {
                format!("expected {expected}, found {found}; did you mean \"{near}\"?")
            }
            ValueRefusal::Reserved => format!("{found} is reserved: not built yet; expected {expected}"),
        };
        Wrong { origin: value.origin.clone(), message }
    }
}

/// Returns a TOML string.
pub(crate) fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        control if control.is_control() => format!("\\u{:04X}", u32::from(control)),
        plain => plain.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// Value of kind `K`, or `"off"`.
pub(crate) struct OrOff<K>(PhantomData<K>);

impl<K: ValueKind> ValueKind for OrOff<K> {
    type Value = Option<K::Value>;
    const BARE_INTEGER: bool = K::BARE_INTEGER;

    fn expected() -> String {
        format!("{}, or \"off\"", K::expected())
    }

    fn parse(text: &str) -> Result<Self::Value, ValueRefusal> {
        match K::parse(text) {
            _ if text == "off" => Ok(None),
            Err(ValueRefusal::Unexpected) if nearest(text, ["off"]).is_some() => {
                Err(ValueRefusal::DidYouMean("off".to_owned()))
            }
            parsed => parsed.map(Some),
        }
    }

    fn check_address(value: &Self::Value, checks: &AddressChecks) -> Result<(), ValueRefusal> {
        value.as_ref().map_or(Ok(()), |value| K::check_address(value, checks))
    }

    fn show(value: &Self::Value) -> Option<String> {
        value.as_ref().map_or_else(|| Some(quoted("off")), K::show)
    }
}

/// Value of kind `K` without a default.
pub(crate) struct Maybe<K>(PhantomData<K>);

impl<K: ValueKind> ValueKind for Maybe<K> {
    type Value = Option<K::Value>;

    fn expected() -> String {
        K::expected()
    }

    fn choices() -> Vec<&'static str> {
        K::choices()
    }

    fn parse(text: &str) -> Result<Self::Value, ValueRefusal> {
        K::parse(text).map(Some)
    }

    fn read(value: &SettingValue, checks: &AddressChecks) -> Result<Self::Value, Wrong> {
        K::read(value, checks).map(Some)
    }

    fn show(value: &Self::Value) -> Option<String> {
        value.as_ref().and_then(K::show)
    }
}

/// Value of kind `K`, or a list of them.
pub(crate) struct OneOrMore<K>(PhantomData<K>);

impl<K: ValueKind> ValueKind for OneOrMore<K> {
    type Value = Vec<K::Value>;

    fn expected() -> String {
        format!("{}, or a list of them", K::expected())
    }

    fn parse(text: &str) -> Result<Self::Value, ValueRefusal> {
        K::parse(text).map(|one| vec![one])
    }

    fn read(value: &SettingValue, checks: &AddressChecks) -> Result<Self::Value, Wrong> {
        match &value.content {
            ValueContent::List(_) => List::<K>::read(value, checks),
            _ => K::read(value, checks).map(|one| vec![one]),
        }
    }

    fn show(value: &Self::Value) -> Option<String> {
        match &value[..] {
            [] => None,
            [one] => K::show(one),
            _ => List::<K>::show(value),
        }
    }
}

/// List of values of kind `K`.
pub(crate) struct List<K>(PhantomData<K>);

impl<K: ValueKind> ValueKind for List<K> {
    type Value = Vec<K::Value>;

    fn expected() -> String {
        format!("a list, each {}", K::expected())
    }

    fn parse(_: &str) -> Result<Self::Value, ValueRefusal> {
        Err(ValueRefusal::Unexpected)
    }

    fn read(value: &SettingValue, checks: &AddressChecks) -> Result<Self::Value, Wrong> {
        let elements = value.elements();
        let elements =
            elements.ok_or_else(|| Wrong::new(value, &Self::expected(), &ValueRefusal::Unexpected))?;
        elements.iter().map(|element| K::read(element, checks)).collect()
    }

    fn show(value: &Self::Value) -> Option<String> {
        let elements: Vec<_> = value.iter().filter_map(K::show).collect();
        Some(format!("[{}]", elements.join(", ")))
    }
}

/// Type with a word for each of its values.
pub(crate) trait Words: Copy + PartialEq + 'static {
    /// Words with their meanings.
    const WORDS: &'static [(&'static str, Self)];
    /// Words that are reserved for a later version.
    const RESERVED: &'static [&'static str] = &[];
    /// Words that are understood, and refused later with their own reason: no list shows them.
    const UNLISTED: &'static [(&'static str, Self)] = &[];
}

/// One of the words of `W`.
pub(crate) struct Choice<W>(PhantomData<W>);

impl<W: Words> ValueKind for Choice<W> {
    type Value = W;

    fn expected() -> String {
        let words: Vec<_> = W::WORDS.iter().map(|(word, _)| quoted(word)).collect();
        match words.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }

    fn choices() -> Vec<&'static str> {
        W::WORDS.iter().map(|(word, _)| *word).collect()
    }

    fn parse(text: &str) -> Result<W, ValueRefusal> {
        if let Some((_, value)) = W::WORDS.iter().chain(W::UNLISTED).find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        if W::RESERVED.contains(&text) {
            return Err(ValueRefusal::Reserved);
        }
        Err(match nearest(text, Self::choices()) {
            Some(near) => ValueRefusal::DidYouMean(near.to_owned()),
            None => ValueRefusal::Unexpected,
        })
    }

    fn show(value: &W) -> Option<String> {
        let known = W::WORDS.iter().find(|(_, meaning)| meaning == value);
        known.map(|(word, _)| quoted(word))
    }
}
