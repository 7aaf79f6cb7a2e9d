//! The binary `semel`. `semel --help` lists its commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    semel_server::cli::main()
}
