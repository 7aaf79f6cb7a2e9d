//! The operators' side of the gateway: what they see and do, over the admin listener and on the command line.
//!
//! - `operate` shows and changes records, messages and quotas, once for `admin` and the command line.
//! - `encryption`, `reconcile` and `ledger` make what the settings describe, and look after what is stored.
//! - `certificates` reads the files for TLS as a gateway would at its start.
//! - `admin` is the admin listener.

pub mod admin;
pub mod certificates;
pub mod encryption;
pub mod ledger;
pub mod operate;
pub mod reconcile;
