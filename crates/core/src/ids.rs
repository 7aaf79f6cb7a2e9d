//! The two kinds of identifiers that Semel draws, and their sources. This file is the only place that uses
//! randomness.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::time::Timestamp;

/// Permanent id of one command: the same through every attempt, retry and replay.
///
/// It is a UUID of version 7, made from the claimer's clock, so that ids sort roughly by age. It is stable
/// across epochs, so a downstream provider can deduplicate on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(Uuid);

impl OperationId {
    /// Returns the id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> OperationId {
        OperationId(Uuid::from_bytes(bytes))
    }

    /// Returns the id as bytes, for a store's column.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for OperationId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<OperationId, uuid::Error> {
        Uuid::try_parse(text).map(OperationId)
    }
}

/// Random token of one attempt to claim. It distinguishes the writes of that attempt from all others.
///
/// Sending a statement again with the same token asks whether the first one landed, and cannot make it land
/// twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptToken([u8; 16]);

impl AttemptToken {
    /// Returns the token with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> AttemptToken {
        AttemptToken(bytes)
    }

    /// Returns the token as bytes, for a store's column.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for AttemptToken {
    /// Shows the first bytes only: enough to distinguish two tokens in a log, not enough to forge a write.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}{:02x}{:02x}…", self.0[0], self.0[1], self.0[2], self.0[3])
    }
}

/// Draws identifiers.
pub trait Ids: Send + Sync + 'static {
    /// Returns a new operation id, made at `now`.
    fn operation_id(&self, now: Timestamp) -> OperationId;
    /// Returns a new attempt token.
    fn attempt_token(&self) -> AttemptToken;
}

/// Returns a new secret of 256 bits, for keys that must not be guessed.
pub fn secret() -> [u8; 32] {
    random_bytes()
}

/// Draws from the operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn operation_id(&self, now: Timestamp) -> OperationId {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        OperationId(uuid::Builder::from_unix_timestamp_millis(millis, &random_bytes()).into_uuid())
    }

    fn attempt_token(&self) -> AttemptToken {
        AttemptToken(random_bytes())
    }
}

#[allow(clippy::disallowed_methods, reason = "the one place that draws randomness")]
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has randomness to give");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_id_is_a_version_7_uuid_that_reads_back() {
        let id = RandomIds.operation_id(Timestamp::from_millis(1_763_200_000_000));
        assert_eq!(id.0.get_version_num(), 7);
        assert_eq!(id.to_string().parse::<OperationId>(), Ok(id));
        assert_eq!(OperationId::from_bytes(*id.as_bytes()), id);
    }

    #[test]
    fn two_random_tokens_or_operation_ids_differ() {
        assert_ne!(RandomIds.attempt_token(), RandomIds.attempt_token());
        let now = Timestamp::from_millis(0);
        assert_ne!(RandomIds.operation_id(now), RandomIds.operation_id(now));
    }

    #[test]
    fn a_token_is_not_shown_whole() {
        let token = AttemptToken::from_bytes([0xab; 16]);
        assert_eq!(format!("{token:?}"), "abababab…");
    }

    #[test]
    fn an_operation_id_shows_itself_alike_to_people_and_programs() {
        let id = OperationId::from_bytes([0x12; 16]);
        assert_eq!(format!("{id} {id:?}"), ["12121212-1212-1212-1212-121212121212"; 2].join(" "));
        assert!("12121212".parse::<OperationId>().is_err());
    }

    #[test]
    fn two_random_secrets_differ_and_are_not_one_repeated_byte() {
        let [one, other] = [secret(), secret()];
        assert_ne!(one, other);
        assert!(one.iter().any(|byte| *byte != one[0]), "32 equal bytes are no secret");
    }
}
