//! Operators' side of the gateway: views and actions of the admin listener and the command line.
//!
//! - `operate` shows and changes records, messages and quotas, for `admin` and for the command line.
//! - `encryption`, `reconcile` and `ledger` build what the settings describe, and check stored data against
//!   it.
//! - `certificates` reads the TLS files like a gateway at its start.
//! - `admin` is the admin listener, with the console; `busy_layer` shows it the numbers of a layer.

pub mod admin;
pub mod busy_layer;
pub mod certificates;
pub mod encryption;
pub mod ledger;
pub mod operate;
pub mod reconcile;
#[cfg(test)]
mod slow_store;
