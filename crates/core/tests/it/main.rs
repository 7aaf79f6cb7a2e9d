//! Tests of the protocol from outside.

mod canonical;
mod fingerprints;
mod keys;
mod transitions;
mod vectors;
