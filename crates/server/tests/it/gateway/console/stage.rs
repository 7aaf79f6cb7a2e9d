//! Gateway with a console, tokens and a service in a process of its own, which a script may kill.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::lab::{Gateway, Send, Site, pay};

/// Tokens of two operators and a viewer.
const TOKENS: [(&str, &str); 3] = [
    ("OTTO_TOKEN", "canary-otto-0123456789abcdef0123456789ab"),
    ("OLGA_TOKEN", "canary-olga-0123456789abcdef0123456789ab"),
    ("VERA_TOKEN", "canary-vera-0123456789abcdef0123456789ab"),
];
/// Token of the first operator at a gateway that was started anew.
const NEW_TOKEN: &str = "canary-otto-anew-0123456789abcdef012345";

/// Settings of every stage; `SERVICE` is the address of the service.
const SETTINGS: &str = r#"
[identity]
source = "trusted-headers"
trusted_proxies = ["127.0.0.1"]
tenant_header = "X-Tenant"
caller_header = "X-Caller"
[[admin.token]]
name = "otto"
role = "operator"
env = "OTTO_TOKEN"
[[admin.token]]
name = "olga"
role = "operator"
env = "OLGA_TOKEN"
[[admin.token]]
name = "vera"
role = "viewer"
env = "VERA_TOKEN"
[[operation]]
name = "payments.create"
match = "POST /payments"
keep_request = "while-unknown"
business_reference = "/reference"
[operation.reconcile]
url = "http://SERVICE/charges?reference={operation_id}"
result = "/0"
reference = "/reference"
status = "/status"
executed = ["captured"]
response_status = 201
[[operation]]
name = "refunds.create"
match = "POST /refunds"
[reconcile]
interval = "1h"
"#;

/// Settings of a comparison that begins at once, and of none.
pub(super) const LEDGER: &str = r#"
[ledger]
theirs = "http://SERVICE/ledger.ndjson"
operation = "payments.create"
their_reference = "key"
first_after = "1s"
"#;
pub(super) const NO_LEDGER: &str = "";

/// Number of lines of the log that a failure prints, and the length of each.
const LINES: usize = 10;
const LINE: usize = 400;

/// Service in a process of its own.
struct ServiceProcess {
    process: Child,
    address: SocketAddr,
    _output: BufReader<ChildStdout>,
}

impl ServiceProcess {
    fn start() -> ServiceProcess {
        let mut process = Command::new("node")
            .arg(folder().join("service.mjs"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`node` runs; `cargo xtask browser` installs it");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it can be read");
        let address = line.trim().parse().expect("the service prints its address");
        ServiceProcess { process, address, _output: output }
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the folder of the scripts.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/console")
}

/// Gateway and service that a browser looks at.
pub(super) struct ConsoleStage {
    pub(super) site: Arc<Site>,
    gateway: Gateway,
    service: Arc<ServiceProcess>,
    settings: String,
    tokens: [&'static str; 3],
}

impl ConsoleStage {
    /// Starts a service, and a gateway with these settings and arguments in front of it.
    pub(super) fn open(more: &str, arguments: &[&str]) -> ConsoleStage {
        let mut site = Site::new();
        site.variables = TOKENS.to_vec();
        let service = ServiceProcess::start();
        let settings = format!("{SETTINGS}{more}").replace("SERVICE", &service.address.to_string());
        let gateway = site.start_with(service.address, &settings, arguments);
        let tokens = TOKENS.map(|(_, token)| token);
        ConsoleStage { site: Arc::new(site), gateway, service: Arc::new(service), settings, tokens }
    }

    /// Starts another gateway on the same store, which knows another token of the first operator.
    pub(super) fn again(&self) -> ConsoleStage {
        let (site, service) = (self.site.clone(), self.service.clone());
        let variables = [("OTTO_TOKEN", NEW_TOKEN)];
        let gateway = site.start_in(service.address, &self.settings, &[], &variables);
        let tokens = [NEW_TOKEN, self.tokens[1], self.tokens[2]];
        ConsoleStage { site, gateway, service, settings: self.settings.clone(), tokens }
    }

    /// Returns what a script needs to know.
    pub(super) fn facts(&self) -> Value {
        let [otto, olga, vera] = self.tokens;
        json!({
            "admin": format!("http://{}", self.gateway.admin),
            "gateway": format!("http://{}", self.gateway.address),
            "service": { "address": self.service.address, "id": self.service.process.id() },
            "tokens": { "otto": otto, "olga": olga, "vera": vera },
        })
    }

    /// Sends a command of a tenant.
    pub(super) async fn command(&self, key: &str, instructions: &Value) {
        let request: Send =
            pay("{}").set("idempotency-key", key).with("x-tenant", "acme").with("x-caller", "alice");
        self.gateway.send(request.doing(&instructions.to_string())).await;
    }

    /// Runs a script, which leaves pictures in a folder of its own, and returns its output. Fails with it unless it succeeds.
    pub(super) async fn run(&self, script: &str, pictures: &str, more: &Value, limit: Duration) -> String {
        let store = if self.site.is_postgres() { "postgres" } else { "sqlite" };
        let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("console-{store}")).join(pictures);
        let _ = std::fs::remove_dir_all(&pictures);
        std::fs::create_dir_all(&pictures).expect("there is room for pictures");
        let mut facts = self.facts();
        facts["pictures"] = pictures.display().to_string().into();
        facts["more"] = more.clone();
        let (path, facts) = (folder().join(format!("{script}.mjs")), facts.to_string());
        let running = move || semel_testkit::browser::run(&path, &[&facts], limit);
        let ended = tokio::task::spawn_blocking(running).await.expect("it is not cancelled");
        match ended {
            Ok(said) => said,
            Err(why) => {
                panic!("pictures: {}; {why}\nthe gateway's log: {}", pictures.display(), self.end_of_log())
            }
        }
    }

    /// Returns the last lines of the gateway's log, and of each its beginning.
    fn end_of_log(&self) -> String {
        let log = self.gateway.log();
        let lines: Vec<String> = log.lines().map(|line| line.chars().take(LINE).collect()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}
