//! The binary `semel`. `semel --help` lists its commands.

use std::process::ExitCode;

/// Requests take and give back memory all the time, on all threads: the system's allocator is slower at it, and keeps more.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    semel_server::cli::main()
}
