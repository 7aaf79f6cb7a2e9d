//! The lines that the quickstart prints, sent to it: first call, replay, 422, 409.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

struct Service {
    process: Child,
    address: String,
    /// Held open: a service with a closed output would end.
    _output: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start() -> Service {
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    let mut process = Command::new(env!("CARGO_BIN_EXE_quickstart"))
        .arg(folder.path().join("quickstart.db"))
        .env("LISTEN", "127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example runs");
    let mut line = String::new();
    let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
    output.read_line(&mut line).expect("it prints");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = address.expect("it prints a curl line").to_owned();
    Service { process, address, _output: output, _folder: folder }
}

fn pay(address: &str, key: &str, amount: u32) -> String {
    let body = format!("{{\"amount\": {amount}}}");
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "POST /payments HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-User: alice\r\n\
         Content-Type: application/json\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    answer
}

#[test]
fn the_printed_curl_lines_get_the_responses_they_announce() {
    let service = start();
    let key = "my-first-payment-0001";
    let first = pay(&service.address, key, 5);
    assert!(first.starts_with("HTTP/1.1 201 ") && first.contains("\"charge\":1"), "{first}");
    let replay = pay(&service.address, key, 5);
    assert!(replay.contains("idempotency-replayed: true") && replay.contains("\"charge\":1"), "{replay}");
    let mismatch = pay(&service.address, key, 6);
    assert!(mismatch.starts_with("HTTP/1.1 422 "), "{mismatch}");

    let address = service.address.clone();
    let other = std::thread::spawn(move || pay(&address, "my-second-payment-0002", 7));
    let mine = pay(&service.address, "my-second-payment-0002", 7);
    let mut statuses = [mine, other.join().expect("it is answered")].map(|answer| answer[9..12].to_owned());
    statuses.sort();
    assert_eq!(statuses, ["201", "409"], "one runs, the other is told so");
    assert!(pay(&service.address, "my-second-payment-0002", 7).contains("\"charge\":2"));
}
