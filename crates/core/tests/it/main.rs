//! Tests of the protocol from outside.

mod canonical;
mod changes;
mod fingerprints;
mod jumps;
mod keys;
mod late_evidence;
mod partly_done;
mod paths;
mod records;
mod transitions;
mod vaults;
mod vectors;
