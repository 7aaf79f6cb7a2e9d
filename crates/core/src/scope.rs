//! The scope of a key: tenant, caller, operation and key together identify one record.
//!
//! Tenant and caller come from authentication, never from the request's body. Two scopes that differ in any
//! part are two records, and neither can see the other.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::fingerprint::Hex;
use crate::key::IdempotencyKey;
use crate::operation::OperationName;

/// Longest tenant or caller name, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// The authenticated sender of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    tenant: Arc<str>,
    caller: Arc<str>,
}

/// Reason why a name cannot be that of a tenant or a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    /// The name is empty: it would put strangers into one bucket.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// The name is longer than [`MAX_NAME_BYTES`].
    #[error("the {0} is longer than {MAX_NAME_BYTES} bytes")]
    TooLong(&'static str),
    /// The name begins or ends with a blank, which a header field would drop: it would become another name.
    #[error("the {0} begins or ends with a blank")]
    OuterBlank(&'static str),
    /// The name has a control character, which would break lines in logs and tables.
    #[error("the {0} contains a control character")]
    ControlCharacter(&'static str),
}

impl Principal {
    /// Returns a principal with these names.
    pub fn new(tenant: &str, caller: &str) -> Result<Principal, PrincipalError> {
        check_name("tenant", tenant)?;
        check_name("caller", caller)?;
        Ok(Principal { tenant: tenant.into(), caller: caller.into() })
    }

    /// Returns the tenant's name.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Returns the caller's name within the tenant.
    pub fn caller(&self) -> &str {
        &self.caller
    }

    pub(crate) fn shared_tenant(&self) -> Arc<str> {
        self.tenant.clone()
    }

    pub(crate) fn shared_caller(&self) -> Arc<str> {
        self.caller.clone()
    }
}

fn check_name(part: &'static str, name: &str) -> Result<(), PrincipalError> {
    match name {
        "" => Err(PrincipalError::Empty(part)),
        _ if name.len() > MAX_NAME_BYTES => Err(PrincipalError::TooLong(part)),
        _ if name.chars().any(char::is_control) => Err(PrincipalError::ControlCharacter(part)),
        _ if name.trim() != name => Err(PrincipalError::OuterBlank(part)),
        _ => Ok(()),
    }
}

/// Unique key of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    principal: Principal,
    operation: OperationName,
    key: IdempotencyKey,
    /// Id of the other fields, computed once: one command asks for it many times.
    record: RecordId,
}

impl Scope {
    /// Returns the scope of a sender's command.
    pub fn new(principal: Principal, operation: OperationName, key: IdempotencyKey) -> Scope {
        let record = RecordId::of(&principal, &operation, &key);
        Scope { principal, operation, key, record }
    }

    /// Returns the scope of the same sender and key under another operation name.
    #[must_use]
    pub fn under(&self, operation: OperationName) -> Scope {
        Scope::new(self.principal.clone(), operation, self.key.clone())
    }

    /// Returns the sender of the command.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the operation of the command.
    pub fn operation(&self) -> &OperationName {
        &self.operation
    }

    /// Returns the client's key for the command.
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// Returns the id of the scope's record.
    pub fn record_id(&self) -> RecordId {
        self.record
    }

    /// Returns the id of the record that the same sender and key have under another operation name.
    pub fn record_id_under(&self, operation: &OperationName) -> RecordId {
        RecordId::of(&self.principal, operation, &self.key)
    }
}

/// Id of one record: the digest of its scope.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId([u8; 32]);

impl RecordId {
    /// Returns the id of a scope: SHA-256 over its four length-prefixed parts.
    ///
    /// A digest is short in every index, spreads evenly over shards, and keeps keys out of the database.
    fn of(principal: &Principal, operation: &OperationName, key: &IdempotencyKey) -> RecordId {
        let mut hash = Sha256::new();
        hash.update(b"semel/record/1");
        for part in [principal.tenant(), principal.caller(), operation.as_str(), key.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        RecordId(hash.finalize().into())
    }

    /// Returns the id with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> RecordId {
        RecordId(bytes)
    }

    /// Returns the id as bytes, for a store's primary key.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Hex(&self.0), f)
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRules;

    fn scope(tenant: &str, caller: &str, operation: &str, key: &str) -> Scope {
        Scope::new(
            Principal::new(tenant, caller).expect("test names are valid"),
            OperationName::new(operation).expect("test names are valid"),
            KeyRules { min_length: 1, ..KeyRules::default() }
                .parse([key.as_bytes()])
                .expect("test keys are valid")
                .expect("one line was given"),
        )
    }

    #[test]
    fn every_part_of_the_scope_makes_another_record() {
        let base = scope("t", "c", "o", "k").record_id();
        for other in [("T", "c", "o", "k"), ("t", "C", "o", "k"), ("t", "c", "O", "k"), ("t", "c", "o", "K")]
        {
            assert_ne!(scope(other.0, other.1, other.2, other.3).record_id(), base);
        }
        assert_eq!(scope("t", "c", "o", "k").record_id(), base);
    }

    #[test]
    fn a_scope_under_another_operation_has_the_id_of_a_new_one() {
        let (base, renamed) = (scope("t", "c", "o", "k"), scope("t", "c", "p", "k"));
        assert_eq!(base.under(renamed.operation().clone()), renamed);
        assert_eq!(base.record_id_under(renamed.operation()), renamed.record_id());
    }

    #[test]
    fn text_moved_between_scope_parts_changes_the_record_id() {
        assert_ne!(scope("ab", "c", "o", "k").record_id(), scope("a", "bc", "o", "k").record_id());
        assert_ne!(scope("a", "b", "co", "k").record_id(), scope("a", "b", "c", "ok").record_id());
    }

    #[test]
    fn a_principal_refuses_an_empty_long_or_blank_padded_name() {
        assert_eq!(Principal::new("", "c"), Err(PrincipalError::Empty("tenant")));
        assert_eq!(Principal::new("t", ""), Err(PrincipalError::Empty("caller")));
        assert_eq!(Principal::new("t", &"x".repeat(256)), Err(PrincipalError::TooLong("caller")));
        assert_eq!(Principal::new("a\nb", "c"), Err(PrincipalError::ControlCharacter("tenant")));
        assert!(Principal::new("t", &"x".repeat(255)).is_ok());
        for blank in [" alice", "alice ", "\u{a0}alice"] {
            assert_eq!(Principal::new("acme", blank), Err(PrincipalError::OuterBlank("caller")), "{blank:?}");
        }
        assert!(Principal::new("acme inc", "alice b").is_ok());
    }

    #[test]
    fn a_record_id_is_shown_as_hex() {
        let id = RecordId::from_bytes([0xab; 32]);
        assert_eq!(format!("{id} {id:?}"), ["ab".repeat(32), "ab".repeat(32)].join(" "));
    }
}
