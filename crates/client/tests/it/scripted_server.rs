//! A server on loopback that gives the answers of a case, faults of the connection included. A request names its item.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::manual::ManualClock;

/// Header field with the number of an item, which the transport of the test adds.
pub(crate) const ITEM_FIELD: &str = "x-case-item";

pub(crate) struct ScriptedServer {
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    is_stripe: bool,
    clock: ManualClock,
    authority: String,
    items: Mutex<Vec<Map<String, Value>>>,
    bodies: Mutex<HashMap<usize, Vec<u8>>>,
}

impl ScriptedServer {
    pub(crate) async fn start(profile: &str, clock: ManualClock) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            is_stripe: profile == "stripe",
            clock,
            authority: listener.local_addr().unwrap().to_string(),
            items: Mutex::default(),
            bodies: Mutex::default(),
        });
        let accepting = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { shared.serve(stream).await });
                }
            }
        });
        ScriptedServer { shared, accepting }
    }

    pub(crate) fn authority(&self) -> &str {
        &self.shared.authority
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.shared.authority)
    }

    /// Adds an item; returns the number by which a request asks for it.
    pub(crate) fn add(&self, item: Map<String, Value>) -> usize {
        let mut items = self.shared.items.lock().unwrap();
        items.push(item);
        items.len() - 1
    }

    /// Returns the body that the server has read for an item.
    pub(crate) fn received(&self, item: usize) -> Option<Vec<u8>> {
        self.shared.bodies.lock().unwrap().get(&item).cloned()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        // A connection that breaks is the client's to notice.
        while let Ok(true) = self.exchange(&mut stream).await {}
    }

    /// Answers one request; returns false if the connection is over.
    async fn exchange(&self, stream: &mut BufReader<TcpStream>) -> io::Result<bool> {
        let mut fields = HashMap::new();
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(false);
        }
        loop {
            line.clear();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            fields.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = fields.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let number: usize = fields[ITEM_FIELD].parse().unwrap();
        self.bodies.lock().unwrap().insert(number, body);
        let item = self.items.lock().unwrap()[number].clone();
        self.clock.advance(item.get("elapse").map_or(0, |by| by.as_u64().unwrap()));
        self.clock.jump(item.get("jump").map_or(0, |by| by.as_i64().unwrap()));
        self.answer(stream.get_mut(), &item).await
    }

    async fn answer(&self, stream: &mut TcpStream, item: &Map<String, Value>) -> io::Result<bool> {
        match item.get("fault").map(|fault| fault.as_str().unwrap()) {
            Some("reset" | "cancel") => {
                stream.set_zero_linger()?;
                return Ok(false);
            }
            Some("close") => return Ok(false),
            Some("garbage") => {
                stream.write_all(b"\x16\x03\x01 this is not HTTP\r\n\r\n").await?;
                return Ok(false);
            }
            Some("cut") => {
                let head = self.head(item, None, 100);
                stream.write_all(&[head.as_bytes(), b"x".repeat(10).as_slice()].concat()).await?;
                return Ok(false);
            }
            Some(other) => panic!("the server knows no fault {other}"),
            None => {}
        }
        let (content, media_type) = self.content(item);
        let head = self.head(item, media_type, content.len());
        stream.write_all(&[head.as_bytes(), &content].concat()).await?;
        Ok(true)
    }

    fn head(&self, item: &Map<String, Value>, media_type: Option<&str>, length: usize) -> String {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", item["status"]);
        let mut has_media_type = false;
        for (name, value) in item.get("headers").and_then(Value::as_object).into_iter().flatten() {
            has_media_type |= name.eq_ignore_ascii_case("content-type");
            let lines = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            for line in lines {
                let line = self.with_origin(line.as_str().unwrap());
                head += &format!("{name}: {line}\r\n");
            }
        }
        if let Some(media_type) = media_type.filter(|_| !has_media_type) {
            head += &format!("Content-Type: {media_type}\r\n");
        }
        head + &format!("Content-Length: {length}\r\n\r\n")
    }

    /// Returns the body of an answer, and its media type.
    fn content(&self, item: &Map<String, Value>) -> (Vec<u8>, Option<&'static str>) {
        if item.contains_key("problem") {
            return self.problem(item);
        }
        if let Some(size) = item.get("bodySize") {
            return (b"x".repeat(usize::try_from(size.as_u64().unwrap()).unwrap()), None);
        }
        match item.get("body") {
            None => (Vec::new(), None),
            Some(Value::String(text)) => (text.clone().into_bytes(), None),
            Some(body) => (body.to_string().into_bytes(), Some("application/json")),
        }
    }

    fn problem(&self, item: &Map<String, Value>) -> (Vec<u8>, Option<&'static str>) {
        let code = item["problem"].as_str().unwrap();
        let mut members = Map::new();
        if let Some(operation) = item.get("operation").map(|operation| operation.as_str().unwrap()) {
            let url = item.get("operationUrl").map(|url| self.with_origin(url.as_str().unwrap()));
            let url = url.unwrap_or_else(|| format!("/.well-known/semel/operations/{operation}"));
            members.insert("operationId".into(), operation.into());
            members.insert("operationUrl".into(), url.into());
        }
        if self.is_stripe {
            members.insert("type".into(), "api_error".into());
            members.insert("code".into(), code.to_lowercase().into());
            members.insert("message".into(), "as scripted".into());
            return (json!({"error": members}).to_string().into_bytes(), Some("application/json"));
        }
        let kind = format!("urn:semel:problem:{}", code.to_lowercase().replace('_', "-"));
        members.insert("type".into(), kind.into());
        members.insert("title".into(), "A problem".into());
        members.insert("status".into(), item["status"].clone());
        members.insert("detail".into(), "as scripted".into());
        members.insert("code".into(), code.into());
        (Value::from(members).to_string().into_bytes(), Some("application/problem+json"))
    }

    fn with_origin(&self, text: &str) -> String {
        text.replace("$origin", &format!("http://{}", self.authority))
    }
}
