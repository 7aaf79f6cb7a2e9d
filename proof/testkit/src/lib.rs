//! Shared parts of Semel's tests: the conformance suite of stores, broken stores that it must reject, a
//! manual clock, a client for services under test, HTTP/2 frame by frame, an authority for certificates,
//! private PostgreSQL servers, a proxy that breaks connections to them, processes, a real browser, servers that
//! break off, the portable SQL subset, seeded chance, and samples. Never part of a product.

pub mod authority;
pub mod breaking;
pub mod broken;
pub mod browser;
pub mod chance;
pub mod client;
pub mod clock;
pub mod conformance;
pub mod faulty;
pub mod http2;
pub mod portable;
mod ports;
pub mod postgres;
pub mod process;
pub mod processes;
pub mod proxy;
pub mod sample;

pub use chance::Chance;
pub use clock::ManualClock;
