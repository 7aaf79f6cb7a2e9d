//! The example as its users run it: real processes, real sockets, and real kills.
//!
//! `http.rs` has a client, `process.rs` the provider as a process, `receiver.rs` a service that is told about charges.

mod http;
mod process;
mod receiver;

mod charges;
mod killed;
mod switches;
mod webhooks;
