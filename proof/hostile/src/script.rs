//! Scripts of the upstream: its behaviour for one request.

/// Behaviour of the upstream for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// A response with a length.
    Plain,
    /// A response in chunks.
    Chunked,
    /// A response in chunks, with trailers that are not allowed in trailers.
    Trailers,
    /// A response that ends with the connection.
    ToTheEnd,
    /// Interim responses of these statuses, then the response.
    Interim(&'static [u16]),
    /// The response as soon as the head has come.
    Early,
    /// The response, and these bytes behind it, in one write or in two.
    Surplus { extra: Extra, in_one: bool },
    /// The response, and these bytes once the client has received it.
    Late(Extra),
    /// A response in chunks with a length beside them, and bytes behind it.
    LengthAndChunks,
    /// A response with two lengths.
    TwoLengths,
    /// Half a head, or a head and half a body, then the end of the connection.
    Half { of_head: bool },
    /// The end of the connection, without a response.
    Drop,
    /// Bytes that are no response.
    Garbage,
    /// A response with status 503.
    Fail,
    /// A switch of protocols, requested or not.
    Switch { protocol: &'static str, accept: Accept },
}

/// Bytes that belong to no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    Response,
    HalfResponse,
    Interim,
    EmptyLine,
    Byte,
}

impl Extra {
    pub(crate) const ALL: [Extra; 5] =
        [Extra::Response, Extra::HalfResponse, Extra::Interim, Extra::EmptyLine, Extra::Byte];

    /// Returns the bytes, which name the request that they came after.
    pub(crate) fn bytes(self, mark: &str) -> Vec<u8> {
        let poison = format!("seen mark=poison-{mark} tenant=- caller=-\n");
        let response = format!(
            "HTTP/1.1 200 OK\r\nx-seen: mark=poison-{mark}\r\ncontent-length: {}\r\n\r\n{poison}",
            poison.len()
        );
        match self {
            Extra::Response => response.into_bytes(),
            Extra::HalfResponse => response.into_bytes()[..40].to_vec(),
            Extra::Interim => b"HTTP/1.1 103 Early Hints\r\nlink: </poison>\r\n\r\n".to_vec(),
            Extra::EmptyLine => b"\r\n".to_vec(),
            Extra::Byte => b"x".to_vec(),
        }
    }
}

/// `Sec-WebSocket-Accept` in a switch of protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    /// The value for [`WEBSOCKET_KEY`](crate::grammar::WEBSOCKET_KEY).
    Right,
    Wrong,
    Missing,
}

impl Script {
    /// Returns true if a gateway can forward the response: any other may become a 502.
    pub(crate) fn is_whole(self) -> bool {
        match self {
            Script::Plain
            | Script::Chunked
            | Script::Trailers
            | Script::Interim(_)
            | Script::Surplus { .. }
            | Script::Late(_) => true,
            Script::ToTheEnd
            | Script::Early
            | Script::LengthAndChunks
            | Script::TwoLengths
            | Script::Half { .. }
            | Script::Drop
            | Script::Garbage
            | Script::Fail
            | Script::Switch { .. } => false,
        }
    }
}
