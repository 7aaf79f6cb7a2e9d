//! Tests of the protocol from outside.

mod canonical;
mod changes;
mod fingerprints;
mod jumps;
mod keys;
mod late_evidence;
mod records;
mod transitions;
mod vaults;
mod vectors;
