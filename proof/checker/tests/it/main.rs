//! Tests of the checker with good histories, and with good histories that have one fault.

mod corrupt;
mod corrupt_parts;
mod format;
mod good;
mod sample;
