//! The example as its users run it: real processes, real sockets, and real kills.
//!
//! `browser.rs` runs a browser, `http.rs` has a client, `process.rs` the provider as a process, `receiver.rs` a
//! receiver of the provider's events, `service.rs` the payment service as processes.

mod browser;
mod http;
mod process;
mod receiver;
mod service;

mod bad_days;
mod batch;
mod charges;
mod killed;
mod page;
mod payments;
mod readme;
mod rides;
mod switches;
mod webhooks;
