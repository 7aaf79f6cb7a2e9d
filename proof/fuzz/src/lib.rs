//! What must hold for whatever bytes come in from outside: one `check` for each fuzz target.
//!
//! A check is a plain function that panics if something does not hold. `targets/` gives each to libFuzzer
//! (`cargo xtask fuzz`); the test `seeds` runs all of them over what is committed in `seeds/` and `crashes/`, as part of all
//! tests. What each promises, and what it cannot find, is in docs/fuzzing.md.

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

/// All of them.
pub const TARGETS: [Target; 7] = [
    ("key", key::check),
    ("fingerprint", fingerprint::check),
    ("response", response::check),
    ("config", config::check),
    ("front", front::check),
    ("http2", http2::check),
    ("webhook", webhook::check),
];
