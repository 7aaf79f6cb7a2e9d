//! The binary `semel`. `semel --help` lists its commands.

use std::process::ExitCode;

/// Returns memory to the system after a load peak; the system's own allocator keeps most of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    semel_server::cli::main()
}
