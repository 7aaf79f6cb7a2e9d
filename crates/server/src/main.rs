//! The binary `semel`. `semel --help` lists its commands.

use std::process::ExitCode;

/// Gives memory back to the system once a storm is over; the system's own allocator keeps most of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    semel_server::cli::main()
}
