//! The binary `semel`: the gateway put together, and the command line.
//!
//! Wiring only: the way of a request is in `semel-gateway`, what operators see and do in `semel-operations`, and the settings
//! in `semel-settings`. `breaker` stands before the store, `telemetry` sets up logs and metrics, `gateway` puts everything
//! together, and `cli` is the command line.

pub mod breaker;
pub mod cli;
pub mod gateway;
pub mod telemetry;
mod terminal;
