//! Messages of HTTP/1.1 as bytes: whole requests and whole answers, read by their `Content-Length`.
//!
//! The proxy and the broken drivers call it. A message is read whole, or it is an error.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Largest head and body of a message.
const MAX_HEAD: u64 = 64 * 1024;
const MAX_BODY: u64 = 1024 * 1024;

/// Request or answer: its first line, its fields in order, and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) first: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Reads one message. `None` if the other side closed the connection between messages.
    pub(crate) async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Message>> {
        let mut head = from.take(MAX_HEAD);
        let Some(first) = line(&mut head).await? else { return Ok(None) };
        let mut fields = Vec::new();
        loop {
            let field = line(&mut head).await?.ok_or_else(|| wrong("the head broke off"))?;
            if field.is_empty() {
                break;
            }
            let (name, value) = field.split_once(':').ok_or_else(|| wrong("a field has no colon"))?;
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut message = Message { first, fields, body: Vec::new() };
        if message.field("transfer-encoding").is_some() {
            return Err(wrong("a message has no Content-Length"));
        }
        let length = match message.field("content-length") {
            None => 0,
            Some(length) => length.parse().map_err(|_| wrong("Content-Length is no number"))?,
        };
        if length > MAX_BODY {
            return Err(wrong("a body is too large"));
        }
        message.body.resize(usize::try_from(length).map_err(|_| wrong("a body is too large"))?, 0);
        from.read_exact(&mut message.body).await?;
        Ok(Some(message))
    }

    /// Returns the value of the first field of this name, which is in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the second word of the first line: the target of a request, the status of an answer.
    pub(crate) fn second_word(&self) -> &str {
        self.first.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the status of an answer, or 0.
    pub(crate) fn status(&self) -> u16 {
        self.second_word().parse().unwrap_or_default()
    }

    /// Returns the bytes as sent.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.first);
        for (name, value) in &self.fields {
            text += &format!("{name}: {value}\r\n");
        }
        text += "\r\n";
        [text.as_bytes(), &self.body].concat()
    }
}

async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<String>> {
    let mut line = Vec::new();
    if from.read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(wrong("a line broke off"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map(Some).map_err(|_| wrong("a line is no text"))
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_follow_each_other_on_one_connection() {
        let mut bytes = &b"POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\n\r\n"[..];
        let first = Message::read(&mut bytes).await.expect("it is whole").expect("it is there");
        assert_eq!((first.second_word(), &first.body[..]), ("/a", &b"hi"[..]));
        assert_eq!(first.to_bytes(), b"POST /a HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi");
        let second = Message::read(&mut bytes).await.expect("it is whole").expect("it is there");
        assert_eq!(second.second_word(), "/b");
        assert_eq!(Message::read(&mut bytes).await.expect("it is the end"), None);
    }

    #[tokio::test]
    async fn half_a_message_is_an_error() {
        for half in ["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 2"] {
            assert!(Message::read(&mut half.as_bytes()).await.is_err(), "{half:?}");
        }
    }
}
