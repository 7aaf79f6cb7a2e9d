//! Reader's session at a terminal: one folder, the started servers, and the real addresses for the README's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};

use semel_testkit::postgres::{self, Database};
use tempfile::TempDir;

use super::blocks;
use crate::commands::text;
use crate::gateway::lab::semel;

/// Database that the README names.
const DATABASE: &str = "postgres://semel@db.internal/semel";
/// Placeholder for the id of the command with an unknown outcome.
const LOST: &str = "OPERATION_ID";

pub(super) struct Session {
    /// Dropped before the folder that they write to.
    servers: Vec<Server>,
    folder: TempDir,
    /// Addresses in the README, with the real ones.
    places: Vec<(&'static str, String)>,
    database: Database,
}

/// Program that stays up.
struct Server {
    process: Child,
    /// Held open: the program would end if its output could not be read.
    output: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Session {
    pub(super) fn new() -> Session {
        for tool in ["bash", "curl"] {
            let found = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
            assert!(
                found.is_ok_and(|status| status.success()),
                "the README's commands need {tool}: install it (apt-get install {tool}) and run this again"
            );
        }
        let folder = TempDir::new().expect("there is room");
        let document = include_str!("../audit/bank.yaml");
        let database = postgres::shared().expect("there is a PostgreSQL").create_database();
        let session = Session {
            folder,
            places: vec![("127.0.0.1:3000", upstream())],
            servers: Vec::new(),
            database: database.expect("it can be created"),
        };
        session.write("openapi.yaml", document);
        session
    }

    pub(super) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.folder.path().join(name), content).expect("there is room");
    }

    /// Runs a command of the README, and returns its output.
    pub(super) fn run(&mut self, command: &blocks::Command, line: usize) -> String {
        match command.line.as_str() {
            "cargo run --release -- demo" => self.start_demo(),
            serve if serve.starts_with("semel serve") => self.start_gateway(serve),
            other => {
                let output = self.bash(other).output().expect("bash runs");
                let (said, complained) = (text(&output.stdout), text(&output.stderr));
                assert_eq!(
                    output.status.code(),
                    Some(command.code),
                    "README.md:{line}: {other}\n{said}\n{complained}"
                );
                self.as_printed(&said)
            }
        }
    }

    /// Returns a shell command that finds `semel`, with settings for the running servers.
    fn bash(&self, line: &str) -> Command {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_semel"));
        let folder = program.parent().expect("it is in a folder").display();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
            command.env_remove(name);
        }
        command
            .args(["-o", "pipefail", "-c", &self.really(line)])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        for (printed, setting) in
            [("127.0.0.1:8080", "SEMEL_LISTEN"), ("127.0.0.1:9090", "SEMEL_ADMIN_LISTEN")]
        {
            command.env(setting, self.place(printed).unwrap_or("127.0.0.1:0"));
        }
        command.env("SEMEL_UPSTREAM", format!("http://{}", self.place("127.0.0.1:3000").unwrap_or_default()));
        command
    }

    fn place(&self, printed: &str) -> Option<&str> {
        self.places.iter().find(|(name, _)| *name == printed).map(|(_, place)| place.as_str())
    }

    fn set_place(&mut self, printed: &'static str, place: String) {
        self.places.retain(|(name, _)| *name != printed);
        self.places.push((printed, place));
    }

    /// Returns the line with the real addresses and ids.
    fn really(&self, line: &str) -> String {
        let mut really = line.replace(DATABASE, &self.database.url());
        if really.contains(LOST) {
            really = really.replace(LOST, &self.lost());
        }
        // Not one after the other: a replacement may look like a further placeholder.
        let marked = self
            .places
            .iter()
            .zip('a'..)
            .fold(really, |line, ((printed, _), mark)| line.replace(printed, &format!("<{mark}>")));
        self.places
            .iter()
            .zip('a'..)
            .fold(marked, |line, ((_, place), mark)| line.replace(&format!("<{mark}>"), place))
    }

    /// Returns the output with the README's addresses.
    fn as_printed(&self, said: &str) -> String {
        self.places.iter().fold(said.to_owned(), |said, (printed, place)| said.replace(place, printed))
    }

    /// Returns the id of the command with an unknown outcome.
    fn lost(&self) -> String {
        let mut list = semel(self.folder.path());
        let list = list.args(["records", "list", "--state", "unknown", "--json"]).output().expect("it runs");
        let records: serde_json::Value = serde_json::from_slice(&list.stdout).expect("it is JSON");
        records[0]["operationId"].as_str().expect("a command was lost").to_owned()
    }

    /// Starts the demo like the README, with the program under test.
    fn start_demo(&mut self) -> String {
        let mut demo = semel(self.folder.path());
        let (server, said) = start(demo.arg("demo").env("TMPDIR", self.folder.path()), "  curl -s http://");
        let after = |label: &str, until: &[char]| {
            let rest = said.split_once(label).unwrap_or_else(|| panic!("no {label:?} in {said}")).1;
            rest.split(until).next().expect("there is a first part").to_owned()
        };
        self.set_place(
            "127.0.0.1:8081",
            after("service listens on ", &[' ']).trim_end_matches('.').to_owned(),
        );
        self.set_place(
            "127.0.0.1:8080",
            after("in front of it on ", &[' ']).trim_end_matches('.').to_owned(),
        );
        self.servers.push(server);
        self.as_printed(&said)
    }

    /// Starts a gateway on its own ports, and sends one command whose answer is lost.
    fn start_gateway(&mut self, line: &str) -> String {
        let mut serve = self.bash(&format!("exec {line}"));
        serve.env("SEMEL_LISTEN", "127.0.0.1:0").env("SEMEL_ADMIN_LISTEN", "127.0.0.1:0");
        let (server, said) = start(&mut serve, "store ");
        self.servers.push(server);
        for (printed, label) in
            [("127.0.0.1:8080", "listening on http://"), ("127.0.0.1:9090", "admin on http://")]
        {
            let line = said.lines().find_map(|line| line.strip_prefix(label)).expect("it says where");
            self.set_place(printed, line.to_owned());
        }
        let lose = "curl -s http://127.0.0.1:8080/payments -H 'X-Break-Off: yes' \
                    -H 'Content-Type: application/json' -H 'Idempotency-Key: a-lost-payment-0001' -d '{}'";
        let lost = self.bash(lose).output().expect("bash runs");
        assert!(text(&lost.stdout).contains("IDEMPOTENCY_OUTCOME_UNKNOWN"), "{lost:?}");
        self.as_printed(&said)
    }
}

/// Starts a program, and reads its output up to the line with this beginning.
fn start(command: &mut Command, last: &str) -> (Server, String) {
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program runs");
    let output = BufReader::new(process.stdout.take().expect("it is piped"));
    let mut server = Server { process, output };
    let mut said = String::new();
    loop {
        let from = said.len();
        let read = server.output.read_line(&mut said).expect("it is text");
        assert!(read > 0, "it ended before it said {last:?}: {said}");
        if said[from..].starts_with(last) {
            return (server, said);
        }
    }
}

/// Starts the reader's own service: it answers, or breaks off after a request that asks for that.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut reader = BufReader::new(&stream);
                while !head.ends_with(b"\r\n\r\n") && reader.read_until(b'\n', &mut head).is_ok_and(|n| n > 0)
                {
                }
                let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
                let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next());
                let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
                let _ = std::io::copy(&mut reader.take(length), &mut std::io::sink());
                if !head.contains("x-break-off") {
                    let _ =
                        write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                }
            });
        }
    });
    address
}
