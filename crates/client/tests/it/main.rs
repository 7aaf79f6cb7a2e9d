//! Tests of the client against real connections: the shared cases, over both transports, and faults of the wire.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod case_run;
mod cases;
mod checks;
mod faults;
mod journal;
mod manual;
mod scripted_server;
mod scripted_transport;
mod wire;
