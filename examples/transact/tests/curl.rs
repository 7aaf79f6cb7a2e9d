//! The curl lines of the example, sent to it on both databases: each gets the answer printed behind it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

struct Service {
    process: Child,
    address: String,
    /// Held open: a service with a closed output would end.
    _output: BufReader<ChildStdout>,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(configure: impl FnOnce(&mut Command) -> &mut Command) -> Service {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transact"));
    command.env("LISTEN", "127.0.0.1:0").env_remove("DATABASE_URL").stdout(Stdio::piped());
    let mut process = configure(&mut command).spawn().expect("the example runs");
    let mut line = String::new();
    let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
    output.read_line(&mut line).expect("it prints");
    let address = line.split_whitespace().nth(2).expect("it says where it listens");
    Service { process, address: address.trim_end_matches(';').to_owned(), _output: output }
}

/// A line of the example, with its expected answer.
struct Line {
    path: &'static str,
    headers: Vec<&'static str>,
    body: &'static str,
    status: &'static str,
    answer: &'static str,
    is_replayed: bool,
}

fn lines() -> Vec<Line> {
    let commands =
        include_str!("../src/main.rs").lines().filter_map(|line| line.strip_prefix("//! curl -si "));
    let read = |line: &'static str| {
        let (command, expected) = line.split_once("    # ").expect("each says what comes of it");
        let address = command.split(' ').next().expect("it has an address");
        let headers =
            command.split("-H '").skip(1).map(|rest| rest.split('\'').next().expect("it is quoted"));
        let body = command.split("--json '").nth(1).and_then(|rest| rest.split('\'').next());
        let answer = expected.split(' ').nth(1).filter(|word| word.starts_with('{'));
        Line {
            path: address.strip_prefix("127.0.0.1:3000").expect("it goes to the example"),
            headers: headers.collect(),
            body: body.expect("it sends JSON"),
            status: expected.split(' ').next().expect("it has a status"),
            answer: answer.unwrap_or_default(),
            is_replayed: expected.ends_with(" replayed"),
        }
    };
    commands.map(read).collect()
}

fn send(address: &str, line: &Line) -> String {
    let mut request = format!("POST {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", line.path);
    for header in &line.headers {
        request.push_str(&format!("{header}\r\n"));
    }
    let length = line.body.len();
    request.push_str(&format!(
        "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{}",
        line.body
    ));
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    answer
}

fn check(service: &Service) {
    let lines = lines();
    assert_eq!(lines.len(), 7, "all lines are read");
    for line in &lines {
        let answer = send(&service.address, line);
        assert!(answer.starts_with(&format!("HTTP/1.1 {} ", line.status)), "{}: {answer}", line.body);
        assert!(answer.ends_with(line.answer), "{}: {answer}", line.body);
        assert_eq!(
            answer.contains("idempotency-replayed: true"),
            line.is_replayed,
            "{}: {answer}",
            line.body
        );
    }
}

#[test]
fn the_printed_curl_lines_work_on_sqlite() {
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    check(&start(|command| command.arg(folder.path().join("transact.db"))));
}

#[test]
fn the_printed_curl_lines_work_on_postgres() {
    let server = semel_testkit::postgres::shared().expect("there is a server");
    let database = server.create_database().expect("a database can be made");
    check(&start(|command| command.env("DATABASE_URL", database.url())));
    let messages = database.sql("SELECT count(*) FROM semel_outbox").expect("it is there");
    assert_eq!(messages, "2", "each transfer that was made has its message");
}
