//! Hostile clients and a hostile upstream against a real gateway.
//!
//! A seed draws cases from a grammar (`grammar`, `draft`, `frames`, `script`). `scene` plays them with several clients
//! (`over_http1`, `over_http2`) against a gateway (`lab`) before a recording upstream (`upstream`, `upstream_http2`).
//! `book` judges, by `sight` and `answer`. `broken` has mistakes to find; docs/src/explanation/hostile.md has the promises.

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
