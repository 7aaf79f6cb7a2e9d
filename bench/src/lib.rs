//! What the benchmarks share.

pub mod chart;
pub mod load;
