//! The identity of a store: it distinguishes two stores at the same path or address.
//!
//! Every store draws a [`StoreId`] when its tables are created, and keeps it among them. A process that
//! remembers the id, in memory or in a file outside of the store, notices an exchange before it decides on
//! the wrong records.

use std::fmt;
use std::str::FromStr;

/// Id of a store: random, drawn when its tables are created, and stored in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId([u8; 16]);

impl StoreId {
    /// Returns the id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> StoreId {
        StoreId(bytes)
    }

    /// Returns the bytes of the id, for a column.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error for a text that is not a [`StoreId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a store's id has 32 hexadecimal digits")]
pub struct InvalidStoreId;

impl FromStr for StoreId {
    type Err = InvalidStoreId;

    fn from_str(text: &str) -> Result<StoreId, InvalidStoreId> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidStoreId);
        }
        u128::from_str_radix(text, 16).map(|id| StoreId(id.to_be_bytes())).map_err(|_| InvalidStoreId)
    }
}

/// The identity of a store, as far as it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreIdentity {
    /// The store's own id.
    pub store: StoreId,
    /// Identifier of the database system: PostgreSQL's, shared by a primary and its standbys, new with every
    /// `initdb`. `None` if there is none, or if the role may not read it.
    pub system: Option<i64>,
}

impl StoreIdentity {
    /// Describes the first difference from the `expected` identity; `None` if it is the same store. A part
    /// that one of them lacks is not compared.
    pub fn difference(&self, expected: &StoreIdentity) -> Option<String> {
        if self.store != expected.store {
            return Some(format!("it has the id {}, and was {}", self.store, expected.store));
        }
        match (self.system, expected.system) {
            (Some(found), Some(expected)) if found != expected => {
                Some(format!("its database system has the identifier {found}, and had {expected}"))
            }
            (Some(_) | None, Some(_) | None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_id_round_trips_as_text_and_refuses_other_text() {
        let id = StoreId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "00", "+00102030405060708090a0b0c0d0eff", "000102030405060708090a0b0c0d0efg"] {
            assert_eq!(text.parse::<StoreId>(), Err(InvalidStoreId), "{text:?}");
        }
    }

    #[test]
    fn stores_differ_by_their_id_or_by_their_system_where_both_are_known() {
        let (one, other) = (StoreId::from_bytes([1; 16]), StoreId::from_bytes([2; 16]));
        let identity = |store, system| StoreIdentity { store, system };
        for (found, expected, differs) in [
            (identity(one, None), identity(one, None), false),
            (identity(one, Some(7)), identity(one, Some(7)), false),
            (identity(one, None), identity(one, Some(7)), false),
            (identity(one, Some(7)), identity(one, None), false),
            (identity(one, Some(7)), identity(one, Some(8)), true),
            (identity(other, Some(7)), identity(one, Some(7)), true),
            (identity(other, None), identity(one, None), true),
        ] {
            assert_eq!(found.difference(&expected).is_some(), differs, "{found:?} {expected:?}");
        }
    }
}
