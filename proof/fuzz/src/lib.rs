//! Properties that hold for all bytes from outside: one `check` for each fuzz target.
//!
//! A check is a plain function that panics if a property is violated. `targets/` gives each to libFuzzer (`cargo xtask
//! fuzz`); the test `seeds` runs all of them over the committed `seeds/` and `crashes/`. docs/src/explanation/fuzzing.md has the
//! promises and limits of each.

#![allow(clippy::expect_used, clippy::panic, reason = "a check says no by panicking")]

mod choices;
pub mod config;
pub mod fingerprint;
pub mod front;
pub mod http1;
pub mod http2;
mod json;
pub mod key;
pub mod response;
mod structured;
pub mod webhook;

/// A fuzz target: its name, which is also that of its folders, and its check.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets.
pub const TARGETS: [Target; 7] = [
    ("key", key::check),
    ("fingerprint", fingerprint::check),
    ("response", response::check),
    ("config", config::check),
    ("front", front::check),
    ("http2", http2::check),
    ("webhook", webhook::check),
];
