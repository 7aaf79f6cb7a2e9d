//! The checker against histories that are known to be good, and the same with one thing wrong.

mod corrupt;
mod corrupt_parts;
mod format;
mod good;
mod sample;
