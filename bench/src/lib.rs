//! What the benchmarks share.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

pub mod chart;
pub mod cores;
pub mod load;
pub mod peers;
pub mod results;
pub mod serve;
pub mod used;
