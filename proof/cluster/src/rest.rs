//! Requests to Patroni's REST interface. Blocks, with a timeout for everything: a node may be cut off.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of each step of a request. A switchover is answered once it is done.
const PATIENCE: Duration = Duration::from_millis(1_500);
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// Returns status and body of an answer.
pub(crate) fn ask(
    host: Ipv4Addr,
    port: u16,
    method: &str,
    path: &str,
    body: &str,
) -> Result<(u16, String), String> {
    let text = |error: std::io::Error| format!("Patroni on {host}: {error}");
    let address = SocketAddr::new(IpAddr::V4(host), port);
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(text)?;
    let patience = if path == "/switchover" { LONG_PATIENCE } else { PATIENCE };
    stream.set_read_timeout(Some(patience)).map_err(text)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(text)?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).map_err(text)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(text)?;
    parse(&answer).ok_or_else(|| format!("Patroni on {host} gave no answer in HTTP: {answer:?}"))
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_has_a_status_and_a_body() {
        let answer = "HTTP/1.0 503 Service Unavailable\r\nServer: x\r\n\r\n{\"role\": \"replica\"}";
        assert_eq!(parse(answer), Some((503, "{\"role\": \"replica\"}".to_owned())));
        assert_eq!(parse("nonsense"), None);
    }
}
