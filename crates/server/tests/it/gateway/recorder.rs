//! Upstream that records every byte by connection, and answers each head with 200.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Recorded bytes of each connection.
#[derive(Clone, Default)]
pub(super) struct Record(Arc<Mutex<Vec<String>>>);

impl Record {
    /// Returns everything so far.
    pub(super) fn text(&self) -> String {
        self.connections().concat()
    }

    /// Returns the bytes of each connection.
    pub(super) fn connections(&self) -> Vec<String> {
        self.0.lock().expect("nobody panics with it").clone()
    }
}

/// Starts a recorder on a free port. It leaves bodies unread, like careless servers: the bytes after a head
/// are the next request.
pub(super) async fn recorder() -> (SocketAddr, Record) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let record = Record::default();
    let recording = record.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (recording, number) = (recording.clone(), {
                let mut connections = recording.0.lock().expect("nobody panics with it");
                connections.push(String::new());
                connections.len() - 1
            });
            tokio::spawn(async move {
                let (mut bytes, mut answered) = (vec![0; 64 * 1024], 0);
                while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                    let heads = {
                        let mut connections = recording.0.lock().expect("nobody panics with it");
                        connections[number].push_str(&String::from_utf8_lossy(&bytes[..length]));
                        connections[number].matches(" HTTP/1.1\r\n").count()
                    };
                    for _ in answered..heads {
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        if stream.write_all(answer).await.is_err() {
                            return;
                        }
                    }
                    answered = heads;
                }
            });
        }
    });
    (address, record)
}

/// Returns the gateway's answer to these bytes, up to the end of the connection, which the request asks for.
pub(super) async fn exchange(gateway: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(gateway).await.expect("it listens");
    client.write_all(bytes).await.expect("it is sent");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.expect("it is answered, and closed in good order");
    String::from_utf8_lossy(&answer).into_owned()
}
