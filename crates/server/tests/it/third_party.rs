//! Third-party services and clients, in their own processes. `cargo xtask third-party` installs them.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Variable with the folder; `cargo xtask test` sets it.
const VARIABLE: &str = "SEMEL_TEST_THIRD_PARTY";

/// Returns the folder with the packages and the programs of `tests/third_party`.
pub(crate) fn folder() -> PathBuf {
    let folder = std::env::var_os(VARIABLE);
    let advice = || panic!("{VARIABLE} is not set: run eval \"$(cargo xtask third-party)\"");
    PathBuf::from(folder.unwrap_or_else(advice))
}

/// Returns a command that runs one of the programs with Node.
pub(crate) fn node(program: &str) -> Command {
    let mut node = Command::new("node");
    node.arg(program).current_dir(folder());
    node
}

/// Returns a command that runs one of the programs with Python.
pub(crate) fn python(program: &str) -> Command {
    let mut python = Command::new("python3");
    python.arg(program).env("PYTHONPATH", folder().join("python")).current_dir(folder());
    python
}

/// Service that runs until this is dropped.
pub(crate) struct Program {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Program {
    /// Starts a program that prints its port.
    pub(crate) fn start(command: &mut Command) -> Program {
        let mut process = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("it starts");
        let mut port = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut port).expect("it says its port");
        let port: u16 = port.trim().parse().unwrap_or_else(|_| panic!("{port:?} is no port"));
        Program { process, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
