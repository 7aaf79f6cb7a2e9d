//! Library of the binary `semel`: the assembled gateway and the command line.
//!
//! Wiring only: `semel-gateway` has the path of a request, `semel-operations` the operators' views and
//! actions, and `semel-settings` the settings. `breaker` protects the store, `telemetry` sets up logs and
//! metrics, `gateway` assembles everything, and `cli` is the command line.

pub mod cli;
pub mod gateway;
pub mod telemetry;
mod terminal;
mod traces;
