//! Tests of the simulator: it is deterministic, finds faults, and says how to rerun them.

mod broken;
mod repeats;
mod tells;
