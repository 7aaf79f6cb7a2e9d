//! Hostile clients and a hostile upstream against a real gateway.
//!
//! Cases are drawn from a grammar by a seed (`grammar`, with `draft`, `frames` and `script` below it), played in scenes of
//! several clients (`scene`, over `over_http1` and `over_http2`) against a gateway in this process (`lab`), before an upstream
//! that records every byte (`upstream`, or `upstream_http2`, which has hyper read them). The judge is `book`, which asks `sight` about what the upstream saw and `answer` about
//! what a client got. `broken` makes the mistakes that must be found. What is promised is in docs/hostile.md.

#![allow(clippy::expect_used, reason = "a lab that cannot be built says so by panicking")]

mod answer;
mod book;
mod broken;
mod case;
mod draft;
mod frames;
mod grammar;
mod lab;
mod over_http1;
mod over_http2;
mod run;
mod scene;
mod script;
mod sight;
mod upstream;
mod upstream_http2;

pub use book::{Count, Violation};
pub use broken::Defect;
pub use case::Group;
pub use run::{Options, Outcome, run};
pub use scene::CASES;
