//! Reading of an answer's body, up to its bound. Called by both transports.

use std::error::Error;

use bytes::{Buf, Bytes, BytesMut};
use http::response::Parts;
use http_body::Body;
use http_body_util::BodyExt;

use crate::fault::fault_of;
use crate::response::CommandResponse;
use crate::transport::AttemptFault;

/// Reads an answer whole. A body that breaks off, or is larger than its bound, is a fault.
pub(crate) async fn read_whole<B>(head: Parts, body: B, bound: usize) -> Result<CommandResponse, AttemptFault>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if body.size_hint().lower() > bound as u64 {
        return Err(AttemptFault::TooLarge);
    }
    let mut body = std::pin::pin!(body);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| fault_of(&*error.into(), true))?;
        let Ok(mut chunk) = frame.into_data() else { continue };
        if chunk.remaining() > bound - whole.len() {
            return Err(AttemptFault::TooLarge);
        }
        // Copied: a chunk may hold on to the buffer of its connection.
        let chunk: Bytes = chunk.copy_to_bytes(chunk.remaining());
        whole.extend_from_slice(&chunk);
    }
    Ok(CommandResponse::new(head.status, head.headers, whole.freeze()))
}
