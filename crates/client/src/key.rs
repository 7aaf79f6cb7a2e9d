//! Idempotency keys: drawn, checked, and spelled for a profile. Called by the client before the first send.
//!
//! No `Debug` or `Display` shows a key.

use std::fmt;

use http::HeaderValue;
use uuid::Builder;

use crate::options::ClientProfile;

/// Longest key in characters.
const MAX_KEY_LENGTH: usize = 255;
/// Shortest key in characters, in the profile `Semel`.
const MIN_SEMEL_LENGTH: usize = 16;

/// Idempotency key of one command. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandKey(String);

impl CommandKey {
    /// Makes a key of a text, which the client checks before it sends anything.
    pub fn new(text: impl Into<String>) -> CommandKey {
        CommandKey(text.into())
    }

    /// Returns the text of the key, for a journal. It must not be logged.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Makes a UUID of version 7 for this wall clock.
    pub(crate) fn drawn(wall: u64, random: [u8; 10]) -> CommandKey {
        CommandKey(Builder::from_unix_timestamp_millis(wall, &random).into_uuid().hyphenated().to_string())
    }

    /// Returns why the key cannot be sent, without repeating it; `None` if it can.
    pub(crate) fn fault(&self, profile: ClientProfile) -> Option<&'static str> {
        let (shortest, first) = match profile {
            ClientProfile::Semel => (MIN_SEMEL_LENGTH, b' '),
            ClientProfile::Ietf => (1, b' '),
            ClientProfile::Stripe => (1, b'!'),
        };
        if !self.0.bytes().all(|byte| (first..=b'~').contains(&byte)) {
            return Some("the key must be printable ASCII");
        }
        if self.0.len() < shortest {
            return Some("the key is too short");
        }
        (self.0.len() > MAX_KEY_LENGTH).then_some("the key is too long")
    }

    /// Returns the value of `Idempotency-Key`: bare for Stripe, a quoted string of RFC 8941 otherwise.
    pub(crate) fn spelled(&self, profile: ClientProfile) -> Option<HeaderValue> {
        let text = match profile {
            ClientProfile::Stripe => self.0.clone(),
            ClientProfile::Semel | ClientProfile::Ietf => {
                format!("\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
            }
        };
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for CommandKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommandKey(hidden)")
    }
}

impl From<&str> for CommandKey {
    fn from(text: &str) -> CommandKey {
        CommandKey::new(text)
    }
}

impl From<String> for CommandKey {
    fn from(text: String) -> CommandKey {
        CommandKey::new(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_drawn_key_is_a_uuid_of_version_7_with_the_time_in_front() {
        let key = CommandKey::drawn(0x0123_4567_89ab, [0xff; 10]);
        assert_eq!(key.as_str(), "01234567-89ab-7fff-bfff-ffffffffffff");
        assert_eq!(key.fault(ClientProfile::Semel), None);
    }

    #[test]
    fn debug_hides_the_key_and_its_field() {
        let key = CommandKey::new("order-4711-0123456789");
        let field = key.spelled(ClientProfile::Semel).expect("it can be sent");
        assert!(!format!("{key:?} {field:?}").contains("4711"));
    }

    #[test]
    fn lengths_and_characters_are_those_of_the_profile() {
        let fault = |text: String, profile| CommandKey::new(text).fault(profile).is_some();
        assert!(fault("k".repeat(15), ClientProfile::Semel));
        assert!(!fault("k".repeat(16), ClientProfile::Semel));
        assert!(!fault("k".repeat(255), ClientProfile::Semel));
        assert!(fault("k".repeat(256), ClientProfile::Ietf));
        assert!(fault(String::new(), ClientProfile::Stripe));
        assert!(fault("a b".into(), ClientProfile::Stripe));
        assert!(!fault("a b".into(), ClientProfile::Ietf));
        assert!(fault("schlüssel-0123456789".into(), ClientProfile::Semel));
    }

    proptest! {
        #[test]
        fn every_key_without_a_fault_has_a_field_that_reads_back(text in "[ -~]{16,255}") {
            let key = CommandKey::new(text.clone());
            prop_assert_eq!(key.fault(ClientProfile::Semel), None);
            let field = key.spelled(ClientProfile::Semel).expect("it can be sent");
            let field = field.to_str().expect("it is ASCII");
            let inner = field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).expect("it is quoted");
            let mut read = String::new();
            let mut characters = inner.chars();
            while let Some(character) = characters.next() {
                read.push(if character == '\\' { characters.next().expect("an escaped character") } else { character });
            }
            prop_assert_eq!(read, text);
        }
    }
}
