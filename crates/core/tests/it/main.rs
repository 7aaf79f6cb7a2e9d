//! Tests of the protocol from outside.

mod canonical;
mod changes;
mod fingerprints;
mod keys;
mod records;
mod transitions;
mod vaults;
mod vectors;
