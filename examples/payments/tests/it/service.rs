//! The payment service as processes, on a database that outlives them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use payments::service::stand::{Point, VARIABLE};
use semel_testkit::postgres::{self, Database};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{NoAnswer, Request, Response, get, post, put};
use crate::process::Provider;
use crate::receiver::SECRET;

/// Timeout: longer than anything should take.
const PATIENCE: Duration = Duration::from_secs(50);
/// Pause between two polls of something that has no signal.
const PAUSE: Duration = Duration::from_millis(10);

/// Database of the payments.
pub(crate) enum Place {
    File(PathBuf),
    Database(Box<Database>),
}

impl Place {
    pub(crate) fn sqlite(folder: &TempDir) -> Place {
        Place::File(folder.path().join("payments.db"))
    }

    pub(crate) fn postgres() -> Place {
        let server = postgres::shared().expect("there is a server");
        Place::Database(Box::new(server.create_database().expect("a database can be made")))
    }
}

impl Place {
    /// Returns the number that this statement counts.
    pub(crate) fn count(&self, statement: &str) -> i64 {
        match self {
            Place::File(path) => {
                let file = rusqlite::Connection::open(path).expect("it can be opened");
                file.busy_timeout(PATIENCE).expect("it can be set");
                file.query_row(statement, [], |row| row.get(0)).expect("it counts")
            }
            Place::Database(database) => {
                database.sql(statement).expect("it counts").trim().parse().expect("it is a number")
            }
        }
    }
}

/// Runs a test on either database.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(&|folder| $crate::service::Place::sqlite(folder)); })*
        }
        mod postgres {
            $(#[test] fn $name() { super::$name(&|_| $crate::service::Place::postgres()); })*
        }
    };
}
pub(crate) use both;

/// Creates a place in a folder.
pub(crate) type Make<'a> = &'a dyn Fn(&TempDir) -> Place;

/// A process that serves, works, or does both.
pub(crate) struct Service {
    process: Child,
    /// Address of the service; empty if it only works.
    pub(crate) address: String,
    lines: Receiver<String>,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Service {
    pub(crate) fn start(place: &Place, provider: &Provider, more: &[&str]) -> Service {
        Service::start_to_stand(place, provider, more, None)
    }

    /// Starts a service that blocks at this point.
    pub(crate) fn start_to_stand(
        place: &Place,
        provider: &Provider,
        more: &[&str],
        stand: Option<Point>,
    ) -> Service {
        let mut command = Command::new(env!("CARGO_BIN_EXE_payments"));
        command.env_remove("DATABASE_URL").env_remove(VARIABLE).stdout(Stdio::piped());
        command.args(["--provider", &format!("http://{}", provider.address), "--webhook-secret", SECRET]);
        match place {
            Place::File(path) => command.arg("--store").arg(path),
            Place::Database(database) => command.env("DATABASE_URL", database.url()),
        };
        command.envs(stand.map(|point| (VARIABLE, point.name())));
        // Its other output is for people whose test failed.
        command.env("RUST_LOG", "warn").args(more);
        let mut process = command.spawn().expect("the service runs");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (said, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).take_while(|line| said.send(line.clone()).is_ok()).count()
        });
        let mut service = Service { process, address: String::new(), lines };
        let first = service.line();
        service.address = first.strip_prefix("listening on ").unwrap_or_default().to_owned();
        assert!(!service.address.is_empty() || first == "working", "{first}");
        service
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("it says something")
    }

    /// Waits until the process blocks at this point.
    pub(crate) fn until_it_stands(&self, point: Point) {
        assert_eq!(self.line(), format!("standing at {}", point.name()));
    }

    /// Returns true if the process blocks at this point by now.
    pub(crate) fn stands(&self, point: Point) -> bool {
        self.lines.try_iter().any(|line| line == format!("standing at {}", point.name()))
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.expect("`kill` runs").success());
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

    /// Subscribes to the provider's events from now on, unsent ones included.
    pub(crate) fn subscribe(&self, provider: &Provider) {
        let url = format!("http://{}/webhooks/provider", self.address);
        let answer = provider.send(&put("/webhook", &json!({ "url": url, "secret": SECRET })));
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Returns the state of this operation of alice's.
    pub(crate) fn operation(&self, id: &str) -> Value {
        self.send(&get(&format!("/.well-known/semel/operations/{id}")).header("X-User", "alice")).json()
    }

    /// Retries a payment until its final answer comes.
    pub(crate) fn outcome(&self, request: &Request) -> Response {
        eventually("the payment is settled", || {
            self.try_send(request).ok().filter(|answer| matches!(answer.status, 201 | 402))
        })
    }

    /// Returns alice's payments.
    pub(crate) fn payments(&self) -> Vec<Value> {
        let listed = self.send(&get("/payments").header("X-User", "alice")).json();
        listed.as_array().expect("it is a list").clone()
    }
}

/// Polls until the value is there.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Returns a payment request of alice's.
pub(crate) fn payment(key: &str, order: &Value) -> Request {
    post("/payments", order).header("X-User", "alice").header("Idempotency-Key", key)
}

/// Returns alice's order.
pub(crate) fn order() -> Value {
    json!({ "amount": 1200, "currency": "EUR", "card": "4242424242424242" })
}

/// Returns the operation id in an answer.
pub(crate) fn operation_id(answer: &Response) -> String {
    answer.header("idempotency-operation-id").expect("it names its operation").to_owned()
}
