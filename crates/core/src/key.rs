//! The idempotency key: a client's name for one command, over all its retries.
//!
//! [`KeyRules::parse`] reads it from the field lines of a request. A key is never logged, echoed or shown:
//! without an explicit call, only its hash leaves this type.

use std::fmt;

use sfv::{Item, Parser};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::fingerprint::Hex;

/// Longest field line that is parsed, so that unused parameters cost nothing. A larger
/// [`KeyRules::max_length`] has no effect.
pub const MAX_FIELD_BYTES: usize = 4096;

/// A key that met its [`KeyRules`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    text: String,
    /// The first bytes of the text's digest, computed once: one command shows them many times.
    digest_prefix: [u8; 4],
}

impl IdempotencyKey {
    /// Returns the key after unescaping, the same for both spellings.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the first bytes of the key's SHA-256 digest: enough for an operator to recognise a key in a log.
    pub fn digest_prefix(&self) -> [u8; 4] {
        self.digest_prefix
    }

    /// Returns [`IdempotencyKey::digest_prefix`] as 8 hex digits.
    pub fn hash_prefix(&self) -> String {
        Hex(&self.digest_prefix).to_string()
    }

    /// Returns the key with this text, which met its rules.
    fn new(text: String) -> IdempotencyKey {
        let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(&text).into();
        IdempotencyKey { text, digest_prefix: [a, b, c, d] }
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey(hash {}…)", self.hash_prefix())
    }
}

/// Allowed spellings of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeySyntax {
    /// A String Item, or the bare key if it consists of `A-Z a-z 0-9 . _ : ~ / + = -` and is no byte sequence
    /// (`:YWJj:`). Both spell the same key.
    #[default]
    Lenient,
    /// A String Item of RFC 8941, as the IETF draft asks for.
    Strict,
}

impl KeySyntax {
    fn expected(self) -> &'static str {
        match self {
            Self::Lenient => {
                r#"letters, digits and . _ : ~ / + = - (not between colons) alone, or a structured field string such as "k-1""#
            }
            Self::Strict => r#"a structured field string such as "k-1", with its double quotes"#,
        }
    }
}

/// Rules of an operation for its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyRules {
    /// Allowed spellings.
    pub syntax: KeySyntax,
    /// Minimum length in characters. An empty key is always refused.
    pub min_length: usize,
    /// Maximum length in characters.
    pub max_length: usize,
}

impl Default for KeyRules {
    fn default() -> Self {
        Self { syntax: KeySyntax::default(), min_length: 16, max_length: 255 }
    }
}

/// Reason why the key of a request is refused. Messages are for the client and never repeat the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The request has more than one field line.
    #[error("the Idempotency-Key field must appear exactly once")]
    Repeated,
    /// The field, or the text between the quotes, is empty.
    #[error("the idempotency key is empty")]
    Empty,
    /// The key has fewer characters than [`KeyRules::min_length`].
    #[error("the idempotency key must have at least {min} characters (`key_min_length`)")]
    TooShort {
        /// Minimum length in characters.
        min: usize,
    },
    /// The key has more characters than [`KeyRules::max_length`].
    #[error("the idempotency key must have at most {max} characters (`key_max_length`)")]
    TooLong {
        /// Maximum length in characters.
        max: usize,
    },
    /// The field is longer than [`MAX_FIELD_BYTES`], whatever its content.
    #[error("the Idempotency-Key field must have at most {MAX_FIELD_BYTES} bytes")]
    FieldTooLong,
    /// [`KeyRules::syntax`] does not allow this spelling.
    #[error("the idempotency key is malformed: expected {expected}")]
    Malformed {
        /// Description of the right spelling.
        expected: &'static str,
    },
    /// The key looks like data about a person, which would end up in stores and logs.
    #[error("the idempotency key looks like {0}: use a random value instead")]
    PersonalData(PersonalData),
}

/// Kinds of personal data that a key must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonalData {
    /// An e-mail address, such as `name@example.com`.
    EmailAddress,
    /// A phone number, such as `+1 (555) 010-0199`.
    PhoneNumber,
    /// A payment card number, such as `4111 1111 1111 1111`.
    PaymentCardNumber,
}

impl fmt::Display for PersonalData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmailAddress => "an e-mail address",
            Self::PhoneNumber => "a phone number",
            Self::PaymentCardNumber => "a payment card number",
        })
    }
}

impl KeyRules {
    /// Parses the key from the values of all `Idempotency-Key` field lines; `None` without a line.
    ///
    /// # Errors
    /// [`KeyError`] says why the key is refused.
    pub fn parse<'a>(
        &self,
        field_lines: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Option<IdempotencyKey>, KeyError> {
        let mut lines = field_lines.into_iter();
        match (lines.next(), lines.next()) {
            (None, _) => Ok(None),
            (Some(line), None) => self.parse_line(line).map(Some),
            (Some(_), Some(_)) => Err(KeyError::Repeated),
        }
    }

    fn parse_line(&self, line: &[u8]) -> Result<IdempotencyKey, KeyError> {
        if line.len() > MAX_FIELD_BYTES {
            return Err(KeyError::FieldTooLong);
        }
        let malformed = KeyError::Malformed { expected: self.syntax.expected() };
        let line = str::from_utf8(line).map_err(|_| malformed)?;
        let trimmed = line.trim_matches([' ', '\t']);
        if trimmed.is_empty() {
            return Err(KeyError::Empty);
        }
        let key = match self.syntax {
            KeySyntax::Strict => string_item(line),
            KeySyntax::Lenient if trimmed.starts_with('"') => string_item(trimmed),
            KeySyntax::Lenient => bare_key(trimmed),
        };
        self.check(key.ok_or(malformed)?)
    }

    fn check(&self, key: String) -> Result<IdempotencyKey, KeyError> {
        // Both spellings are ASCII: bytes are characters.
        let length = key.len();
        if length == 0 {
            Err(KeyError::Empty)
        } else if length < self.min_length {
            Err(KeyError::TooShort { min: self.min_length })
        } else if length > self.max_length {
            Err(KeyError::TooLong { max: self.max_length })
        } else if let Some(kind) = personal_data(&key) {
            Err(KeyError::PersonalData(kind))
        } else {
            Ok(IdempotencyKey::new(key))
        }
    }
}

/// Returns the value of a String Item; its parameters are ignored.
fn string_item(line: &str) -> Option<String> {
    let item: Item = Parser::new(line).parse().ok()?;
    item.bare_item.as_string().map(|string| string.as_str().to_owned())
}

/// Characters of a bare key beside letters and digits.
const BARE_MARKS: &[u8] = b"._:~/+=-";

fn bare_key(value: &str) -> Option<String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || BARE_MARKS.contains(&byte);
    // RFC 8941, section 3.3.5: base64 between colons names bytes, and not the characters between the colons.
    let is_byte_sequence = value.len() > 1 && value.starts_with(':') && value.ends_with(':');
    (value.bytes().all(allowed) && !is_byte_sequence).then(|| value.to_owned())
}

/// Returns true if a character may stand between the digits of a number.
fn is_separator(byte: u8) -> bool {
    byte == b' ' || BARE_MARKS.contains(&byte)
}

/// Returns the kind of personal data that the whole key looks like, if any. Parts of a key are not searched:
/// random identifiers would be refused by chance.
fn personal_data(key: &str) -> Option<PersonalData> {
    if is_email_address(key) {
        Some(PersonalData::EmailAddress)
    } else if key.starts_with('+') && is_phone_number(key) {
        Some(PersonalData::PhoneNumber)
    } else if is_payment_card_number(key) {
        Some(PersonalData::PaymentCardNumber)
    } else if is_phone_number(key) {
        Some(PersonalData::PhoneNumber)
    } else {
        None
    }
}

/// Returns true for text before the `@` and a dotted domain after it: an `@` alone also separates
/// identifiers.
fn is_email_address(key: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    key.rsplit_once('@').is_some_and(|(local, domain)| {
        !local.is_empty()
            && !local.contains(char::is_whitespace)
            && domain.contains('.')
            && domain.split('.').all(is_label)
    })
}

/// Returns true for 13 to 19 digits with a valid check digit, from a range of issued cards. No card starts
/// with 20 or 21, but dates do, and one in ten of those would pass the check by chance.
fn is_payment_card_number(key: &str) -> bool {
    if !key.bytes().all(|byte| byte.is_ascii_digit() || is_separator(byte)) {
        return false;
    }
    let digits: String = key.chars().filter(char::is_ascii_digit).collect();
    let issued = digits.starts_with(['2', '3', '4', '5', '6'])
        && !digits.starts_with("20")
        && !digits.starts_with("21");
    (13..=19).contains(&digits.len()) && issued && passes_luhn(&digits)
}

fn passes_luhn(digits: &str) -> bool {
    let mut sum = 0;
    for (position, c) in digits.chars().rev().enumerate() {
        let Some(digit) = c.to_digit(10) else { return false };
        let weighted = if position % 2 == 1 { 2 * digit } else { digit };
        sum += weighted / 10 + weighted % 10;
    }
    sum % 10 == 0
}

/// Returns true for as many digits as E.164 allows with a mark that only phone numbers have: plain or dashed
/// digits alone are more often a sequence number or a date.
fn is_phone_number(key: &str) -> bool {
    let national = key.strip_prefix('+').unwrap_or(key);
    let digits = national.bytes().filter(u8::is_ascii_digit).count();
    let is_allowed = |byte: u8| byte.is_ascii_digit() || is_separator(byte) || b"()".contains(&byte);
    let only_separators = national.bytes().all(is_allowed);
    (7..=15).contains(&digits)
        && only_separators
        && (has_international_prefix(key) || key.contains(['(', ' ']) || has_north_american_groups(key))
}

/// Returns true for `+`, or `00` and a country code. No country code starts with 0: more zeros are the
/// padding of a counter.
fn has_international_prefix(key: &str) -> bool {
    key.starts_with('+') || key.strip_prefix("00").is_some_and(|rest| !rest.starts_with('0'))
}

/// Returns true for `555-010-0199`, also after the trunk prefix `1`: no date has this grouping.
fn has_north_american_groups(key: &str) -> bool {
    BARE_MARKS.iter().map(|mark| char::from(*mark)).any(|separator| {
        let number = key.strip_prefix('1').and_then(|rest| rest.strip_prefix(separator)).unwrap_or(key);
        number.split(separator).map(str::len).eq([3, 3, 4])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_malformed_key_names_the_accepted_key_syntax() {
        for (syntax, word) in [(KeySyntax::Lenient, "alone, or"), (KeySyntax::Strict, "double quotes")] {
            let rules = KeyRules { syntax, ..KeyRules::default() };
            let refused = rules.parse([b"a b".as_slice()]).expect_err("it has a space and no quotes");
            assert!(refused.to_string().contains(word), "{syntax:?}: {refused}");
        }
    }

    #[test]
    fn email_addresses_are_recognised() {
        for key in
            ["a@b.co", "first.last+tag@mail.example.com", "mailto:alice@example.com", "a@b@example.org"]
        {
            assert_eq!(personal_data(key), Some(PersonalData::EmailAddress), "{key}");
        }
        for key in
            ["@example.com", "a@localhost", "a@", "a@b.", "a@.b", "a b@example.com", "job@host/path.txt"]
        {
            assert_eq!(personal_data(key), None, "{key}");
        }
    }

    #[test]
    fn payment_card_numbers_are_recognised() {
        for key in [
            "4111111111111111",
            "4111 1111 1111 1111",
            "4111-1111-1111-1111",
            "3782-822463-10005",
            "4111.1111.1111.1111",
            "4111_1111:1111~1111",
            "4111/1111/1111/1111",
            "4111+1111+1111+1111=",
            "2223003122003222",
            "6304000000000000000",
            "4222222222222",
        ] {
            assert_eq!(personal_data(key), Some(PersonalData::PaymentCardNumber), "{key}");
        }
        for key in
            ["4111111111111112", "1111111111111117", "9111111111111111", "411111111111", "4111x11111111111"]
        {
            assert_eq!(personal_data(key), None, "{key}");
        }
    }

    #[test]
    fn phone_numbers_are_recognised() {
        for key in [
            "+4915112345678",
            "004915112345678",
            "+1 (555) 010-0199",
            "(555) 010-0199",
            "030 1234567",
            "0301/123 45 67",
            "555-010-0199",
            "555.010.0199",
            "1-555-010-0199",
            "1.555.010.0199",
            "555/010/0199",
            "555_010_0199",
            "+49:151:12345678",
            "+49/151~1234=5678",
        ] {
            assert_eq!(personal_data(key), Some(PersonalData::PhoneNumber), "{key}");
        }
        for key in
            ["5550100199", "555-0100-199", "555-010.0199", "+123456", "+1234567890123456", "1+5550100199"]
        {
            assert_eq!(personal_data(key), None, "{key}");
        }
    }

    #[test]
    fn dates_counters_and_identifiers_are_no_personal_data() {
        let sequence = (0..1000).map(|number| format!("2026-11-15-{number:06}"));
        let counter = (0..1000).map(|number| format!("0000-0000-{number:06}"));
        let named =
            ["1763200000000", "20261115T101112Z", "8e03978e-40d5-43e8-bc93-6894a57f9324", "order:7.2~b"];
        let dated = (0..1000).map(|number| format!("2026/11/15/{number:06}"));
        for key in sequence.chain(counter).chain(dated).chain(named.map(str::to_owned)) {
            assert_eq!(personal_data(&key), None, "{key}");
        }
    }
}
