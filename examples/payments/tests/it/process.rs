//! The provider as a process, with a ledger that outlives it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{NoAnswer, Request, Response, get, post, put};

pub(crate) struct Provider {
    process: Child,
    pub(crate) address: String,
    /// Held open: a process with a closed output would end.
    _output: BufReader<ChildStdout>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Creates a folder for a ledger.
pub(crate) fn folder() -> TempDir {
    TempDir::new().expect("there is room for a test")
}

impl Provider {
    /// Starts a provider with the ledger of this folder.
    pub(crate) fn start(folder: &TempDir, more: &[&str]) -> Provider {
        let mut process = Command::new(env!("CARGO_BIN_EXE_provider"))
            .arg("--ledger")
            .arg(folder.path().join("ledger.db"))
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the provider runs");
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        output.read_line(&mut line).expect("it prints");
        let address = line.trim_end().strip_prefix("listening on ").expect("it says where it listens");
        Provider { address: address.to_owned(), process, _output: output }
    }

    /// Kills the process like `kill -9`: it finishes nothing.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    pub(crate) fn try_send(&self, request: &Request) -> Result<Response, NoAnswer> {
        request.send(&self.address)
    }

    pub(crate) fn send(&self, request: &Request) -> Response {
        self.try_send(request).expect("it is answered")
    }

    pub(crate) fn switch(&self, switches: &Value) {
        let answer = self.send(&put("/switches", switches));
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    pub(crate) fn switches(&self) -> Value {
        self.send(&get("/switches")).json()
    }

    /// Returns all charges.
    pub(crate) fn ledger(&self) -> Vec<Value> {
        self.send(&get("/ledger")).lines()
    }

    /// Returns the charges under this reference.
    pub(crate) fn find(&self, reference: &str) -> Vec<Value> {
        let found = self.send(&get(&format!("/charges?reference={reference}"))).json();
        found.as_array().expect("it is a list").clone()
    }
}

/// Returns a request for a charge with a key.
pub(crate) fn charge(reference: &str, key: &str) -> Request {
    post("/charges", &order(reference)).header("Idempotency-Key", key)
}

pub(crate) fn order(reference: &str) -> Value {
    json!({ "reference": reference, "amount": 1200, "currency": "EUR", "card": "4242424242424242" })
}

/// Runs the program until it ends by itself. Returns its success, and its error output.
pub(crate) fn run(ledger: &Path, more: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_provider"))
        .arg("--ledger")
        .arg(ledger)
        .args(more)
        .output()
        .expect("the provider runs");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}
