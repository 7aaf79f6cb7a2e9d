//! A running demo, its story told, and requests to it.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use semel_testkit::client::{Reply, Send, pay};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gateway::lab::semel;

/// Timeout of what a demo does by itself.
const PATIENCE: Duration = Duration::from_secs(40);

/// Usual address of the payment service.
const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// Demo that stays up.
pub(super) struct Demo {
    process: Child,
    output: BufReader<ChildStdout>,
    folder: TempDir,
    pub(super) gateway: SocketAddr,
    pub(super) service: SocketAddr,
    admin: SocketAddr,
    /// Operation of the payment that is to be settled.
    pub(super) left: String,
    /// Body for its retries, as the terminal shows it.
    pub(super) left_body: String,
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Its service ends with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Demo {
    /// Starts a demo, and waits until it is the person's turn and the page is open.
    pub(super) async fn start() -> Demo {
        let folder = TempDir::new().expect("there is room");
        let mut command = semel(folder.path());
        command.args(["demo", "--listen", "127.0.0.1:0"]).env("TMPDIR", folder.path());
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the program runs");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("records list --store") {
            let read = output.read_line(&mut said).expect("it is text");
            assert!(read > 0, "it ended: {said}");
        }
        let invitation = said.split_once("Now you.").expect("it invites").1;
        let after = |label: &str, until: &str| {
            let rest = invitation.split_once(label).unwrap_or_else(|| panic!("{label}: {said}")).1;
            rest.split_once(until).expect("there is more").0.to_owned()
        };
        let address = |text: String| text.parse().unwrap_or_else(|_| panic!("{text}: {said}"));
        let before = |label: &str| {
            let (line, _) = invitation.split_once(label).unwrap_or_else(|| panic!("{label}: {said}"));
            line.rsplit("http://").next().expect("it has a beginning").to_owned()
        };
        let demo = Demo {
            gateway: address(before("/\n")),
            service: address(before("/ledger/count")),
            admin: address(before("/console/#/unknown\n")),
            left: after("/console/#/records/", "\n"),
            left_body: after("status 201 and this body:\n", "\n").trim().to_owned(),
            process,
            output,
            folder,
        };
        let open = async || (!demo.state().await["introduction"].is_null()).then_some(());
        eventually("the page opens", open).await;
        demo
    }

    /// Starts a demo whose service is not at the usual port: while it is dead, a demo of another test would
    /// take that one.
    pub(super) async fn start_elsewhere() -> Demo {
        loop {
            let _held = std::net::TcpListener::bind(USUAL);
            let demo = Demo::start().await;
            if demo.service != USUAL {
                return demo;
            }
        }
    }

    /// Reads the output until this is said.
    pub(super) fn read_until(&mut self, words: &str) {
        let mut said = String::new();
        while !said.contains(words) {
            let read = self.output.read_line(&mut said).expect("it is text");
            assert!(read > 0, "it ended: {said}");
        }
    }

    /// Stops the demo like Ctrl-C; returns what it says then, the number of files that stay, and the exit code.
    pub(super) fn stop(mut self) -> (String, usize, Option<i32>) {
        let asked = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        assert!(asked.expect("kill runs").success());
        let mut said = String::new();
        self.output.read_to_string(&mut said).expect("it is text");
        let code = self.process.wait().expect("it ends").code();
        (said, std::fs::read_dir(self.folder.path()).expect("it is there").count(), code)
    }

    /// Returns a request for this machine.
    pub(super) fn request(&self, method: &'static str, path: &str) -> Send {
        let request = pay("").method(method).target(path).with("host", "localhost");
        request.without("idempotency-key").without("content-type")
    }

    /// Returns the payment that the page sends.
    pub(super) fn payment(&self, key: &str, amount: u64) -> Send {
        let request = self.request("POST", "/payments").with("content-type", "application/json");
        request.with("idempotency-key", key).body(json!({ "amount": amount }).to_string())
    }

    /// Pays through the gateway.
    pub(super) async fn pay(&self, key: &str, amount: u64) -> Reply {
        self.payment(key, amount).to(self.gateway).await
    }

    /// Pays until the answer is a replay, and returns it.
    pub(super) async fn settled(&self, key: &str, amount: u64) -> Value {
        let settled = eventually("the payment is settled", async || {
            let reply = self.pay(key, amount).await;
            reply.replayed().then_some(reply)
        });
        let reply = settled.await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()
    }

    /// Fetches something through the gateway.
    pub(super) async fn get(&self, path: &str) -> Reply {
        self.request("GET", path).to(self.gateway).await
    }

    /// Returns the state that the page shows.
    pub(super) async fn state(&self) -> Value {
        self.get("/demo/state").await.json()
    }

    /// Returns the number of charges.
    pub(super) async fn count(&self) -> u64 {
        self.state().await["count"].as_u64().expect("it is a number")
    }

    /// Changes the bad days.
    pub(super) async fn switch(&self, body: &'static str) -> Reply {
        let request = self.request("PUT", "/demo/switches").with("content-type", "application/json");
        request.body(body).to(self.gateway).await
    }

    /// Sends a request to the admin API.
    pub(super) async fn admin(&self, method: &'static str, path: &str, body: Option<Value>) -> Reply {
        let request = self.request(method, path);
        let request = match body {
            Some(body) => request.with("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        request.to(self.admin).await
    }

    /// Settles a command as executed, with the line of this charge in the ledger as its answer.
    pub(super) async fn resolve(&self, id: &str, charge: &Value) {
        let verdict = json!({
            "reason": "found in the ledger", "verdict": "executed", "status": 201, "body": charge["body"]
        });
        let path = format!("/admin/v1/records/{id}/resolve");
        let settled = self.admin("POST", &path, Some(verdict)).await;
        assert_eq!(settled.status, 200, "{settled:?}");
    }
}

/// Payment service of a demo, without the demo.
pub(super) struct BareService {
    process: Child,
    pub(super) address: SocketAddr,
}

impl Drop for BareService {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a payment service with this ledger. It is told nothing.
pub(super) fn bare_service(ledger: &Path) -> BareService {
    let mut command = semel(ledger.parent().expect("it is in a folder"));
    command.args(["demo-service", "--port", "0", "--ledger"]).arg(ledger);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
    let mut line = String::new();
    let output = process.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line).expect("it is text");
    BareService { process, address: line.trim().parse().expect("it says where it listens") }
}

/// Waits until there is something.
pub(super) async fn eventually<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what}: not so in time"))
}
