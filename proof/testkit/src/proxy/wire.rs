//! PostgreSQL's messages, parsed just far enough to know each message's end and statement.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Largest message that is forwarded, and largest part of an answer that is held back.
pub(super) const LARGEST: usize = 16 << 20;
/// Maximum number of remembered statements and portals of one connection.
const MOST_NAMES: usize = 4_096;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_ENCRYPTION_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// First message of a connection.
pub(super) enum Opening {
    /// The client asks for encryption.
    Encryption,
    /// The client wants another connection's statement cancelled, and nothing else.
    Cancel(Vec<u8>),
    /// The client logs in.
    Startup(Vec<u8>),
}

/// Reads the first message, which has no type. `None` if the client left without one.
pub(super) async fn opening(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Opening>> {
    let Some(message) = read(from, Vec::new()).await? else { return Ok(None) };
    let code = message.get(4..8).map(|code| u32::from_be_bytes([code[0], code[1], code[2], code[3]]));
    Ok(Some(match code {
        Some(SSL_REQUEST | GSS_ENCRYPTION_REQUEST) => Opening::Encryption,
        Some(CANCEL_REQUEST) => Opening::Cancel(message),
        _ => Opening::Startup(message),
    }))
}

/// Reads any later message whole: its type is the first byte. `None` at the end.
pub(super) async fn message(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>> {
    let mut kind = [0];
    match from.read(&mut kind).await? {
        0 => Ok(None),
        _ => read(from, kind.to_vec()).await,
    }
}

/// Reads length and body, after the bytes that were read before them.
async fn read(from: &mut (impl AsyncRead + Unpin), mut message: Vec<u8>) -> Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof && message.is_empty() => return Ok(None),
        done => done?,
    };
    message.extend(length);
    let body = (u32::from_be_bytes(length) as usize).checked_sub(4).filter(|body| *body <= LARGEST);
    let body = body.ok_or_else(|| Error::new(ErrorKind::InvalidData, "no length of a message"))?;
    let begin = message.len();
    message.resize(begin + body, 0);
    from.read_exact(&mut message[begin..]).await?;
    Ok(Some(message))
}

/// Meaning of a client's message.
pub(super) enum Step {
    /// A statement in a message of its own, which is also the end of a round.
    Query(Arc<str>),
    /// The execution of a statement that was prepared before.
    Execute(Arc<str>),
    /// The end of a round: the server answers everything before it, and then that it is ready.
    Sync,
    /// Anything else.
    Other,
}

/// The statements and portals that one connection has named.
#[derive(Default)]
pub(super) struct Names {
    statements: HashMap<Vec<u8>, Arc<str>>,
    portals: HashMap<Vec<u8>, Arc<str>>,
}

impl Names {
    /// Returns the meaning of the client's next message.
    pub(super) fn read(&mut self, message: &[u8]) -> Result<Step> {
        let (kind, body) = (message[0], &message[5..]);
        match kind {
            b'Q' => return Ok(Step::Query(sql(text(body)?.0))),
            b'P' => {
                let (name, rest) = text(body)?;
                self.statements.insert(name.to_vec(), sql(text(rest)?.0));
            }
            b'B' => {
                let (portal, rest) = text(body)?;
                let (name, _) = text(rest)?;
                // An unknown one is left to the server to refuse.
                let statement = self.statements.get(name).cloned().unwrap_or_default();
                self.portals.insert(portal.to_vec(), statement);
            }
            b'C' => match body.split_first() {
                Some((b'S', name)) => drop(self.statements.remove(text(name)?.0)),
                Some((_, name)) => drop(self.portals.remove(text(name)?.0)),
                None => {}
            },
            b'E' => {
                return Ok(Step::Execute(self.portals.get(text(body)?.0).cloned().unwrap_or_default()));
            }
            // A call of a function by its number is a round of its own as well.
            b'S' | b'F' => return Ok(Step::Sync),
            _ => {}
        }
        if self.statements.len().max(self.portals.len()) > MOST_NAMES {
            return Err(Error::other(format!("more than {MOST_NAMES} statements on one connection")));
        }
        Ok(Step::Other)
    }
}

/// Returns the text up to its zero byte, and the rest.
fn text(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let end = end.ok_or_else(|| Error::new(ErrorKind::InvalidData, "text without an end"))?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn sql(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).into()
}
