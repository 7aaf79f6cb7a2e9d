//! The figures behind `docs/src/explanation/capacity.md`: `cargo xtask bench capacity`. It counts bytes, rows and flushes
//! on a private PostgreSQL and in a SQLite file, and measures no time: a busy machine changes nothing.
#![allow(clippy::print_stderr, reason = "printing is what it is for")]

use std::process::ExitCode;

use semel_bench::capacity::{self, Extent, PARTS};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut extent, mut parts) = (Extent::Whole, Vec::new());
    for argument in &arguments {
        match PARTS.into_iter().find(|part| part == argument) {
            Some(part) => parts.push(part),
            None if argument == "--quick" => extent = Extent::Quick,
            None => {
                eprintln!(
                    "usage: cargo xtask bench capacity [--quick] [PART…]\n\nParts: {}",
                    PARTS.join(", ")
                );
                return ExitCode::from(2);
            }
        }
    }
    match capacity::run(extent, if parts.is_empty() { &PARTS } else { &parts }).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("capacity: {why}");
            ExitCode::FAILURE
        }
    }
}
