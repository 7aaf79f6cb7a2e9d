//! Library of the benchmark programs: load, peers, measured sections, charts.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

pub mod capacity;
pub mod chart;
pub mod cores;
pub mod load;
pub mod peers;
pub mod results;
pub mod serve;
pub mod used;

/// The result of a part of the benchmark.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
