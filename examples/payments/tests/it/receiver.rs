//! Receiver of the provider's events: keeps them, and answers as the test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use payments::provider::signature;
use serde_json::{Value, json};

use crate::http::put;
use crate::process::Provider;

pub(crate) const SECRET: &str = "a secret of both sides";

/// Timeout: longer than any webhook should take.
const PATIENCE: Duration = Duration::from_secs(50);

pub(crate) struct Webhooks {
    pub(crate) url: String,
    arriving: Receiver<Webhook>,
}

/// A received webhook.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(crate) event_id: String,
    pub(crate) signature: String,
    pub(crate) body: String,
}

impl Webhooks {
    /// Listens, and answers with these statuses first, then with 204.
    pub(crate) fn listen(statuses: &'static [u16]) -> Webhooks {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        Webhooks::on(listener, statuses)
    }

    pub(crate) fn on(listener: TcpListener, statuses: &'static [u16]) -> Webhooks {
        let url = format!("http://{}/webhooks", listener.local_addr().expect("it has one"));
        let (arrived, arriving) = channel();
        std::thread::spawn(move || {
            let mut statuses = statuses.iter().copied();
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if take(stream, statuses.next().unwrap_or(204), &arrived).is_none() {
                    return;
                }
            }
        });
        Webhooks { url, arriving }
    }

    /// Subscribes to the provider's events from now on.
    pub(crate) fn subscribe(&self, provider: &Provider) {
        let answer = provider.send(&put("/webhook", &json!({ "url": self.url, "secret": SECRET })));
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Waits for the next webhook.
    pub(crate) fn next(&self) -> Webhook {
        self.arriving.recv_timeout(PATIENCE).expect("a webhook comes")
    }

    /// Returns the webhooks received so far.
    pub(crate) fn arrived(&self) -> Vec<Webhook> {
        self.arriving.try_iter().collect()
    }
}

/// Reads a webhook and answers it; `None` once the test is over.
fn take(stream: TcpStream, status: u16, arrived: &Sender<Webhook>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return Some(());
        }
    }
    let header = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}: ")));
        line.map(|line| line[name.len() + 2..].to_owned()).expect("the header is there")
    };
    let mut body = vec![0; header("content-length").parse().expect("it is a number")];
    reader.read_exact(&mut body).ok()?;
    let webhook = Webhook {
        event_id: header("semel-event-id"),
        signature: header("semel-signature"),
        body: String::from_utf8(body).expect("it is text"),
    };
    arrived.send(webhook).ok()?;
    let answer = format!("HTTP/1.1 {status} Told\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).ok()
}

impl Webhook {
    /// Returns the content, after a check of its signature.
    pub(crate) fn verified(&self) -> Value {
        let seconds = self.signature.strip_prefix("t=").and_then(|rest| rest.split(',').next());
        let seconds = seconds.and_then(|seconds| seconds.parse().ok()).expect("it says when");
        assert_eq!(self.signature, signature(SECRET, seconds, &self.event_id, &self.body));
        let event: Value = serde_json::from_str(&self.body).expect("it is JSON");
        assert_eq!(event["id"], self.event_id.as_str());
        event
    }

    /// Returns the reference of the event's charge.
    pub(crate) fn reference(&self) -> String {
        self.verified()["data"]["reference"].as_str().expect("it is text").to_owned()
    }
}
