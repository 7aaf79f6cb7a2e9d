//! The engine that reads one table by the list of its settings. It knows no particular table.
//!
//! From the lowest: spelling (`nearest`, `units`, `address_query`), places (`source`, `diagnostic`), values as they were given
//! (`value`), the ways of writing them (`kind`), one setting (`setting`), the names that there are (`known`), what was found
//! wrong (`findings`), and one table (`table`).

pub(crate) mod address_query;
pub(crate) mod addresses;
pub(crate) mod diagnostic;
pub(crate) mod findings;
pub(crate) mod kind;
pub(crate) mod known;
pub(crate) mod nearest;
pub(crate) mod setting;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod units;
pub(crate) mod value;
