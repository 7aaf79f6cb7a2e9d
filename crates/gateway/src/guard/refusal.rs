//! Reasons for refusing a connection, with the response. The pure part of the guard raises them and
//! [`Farewell`](super::farewell::Farewell) sends them. The text is fixed: no byte of a client is ever sent
//! back.

use http::{HeaderName, HeaderValue};
use semel_core::Problem;
use semel_core::policy::Profile;
use semel_core::problem::{PROBLEMS_PATH, ProblemKind};
use thiserror::Error;

/// Fault in the bytes of a connection. Its text is the `detail` that a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum GuardRefusal {
    /// A line that ends in LF without CR.
    #[error("A line ends in a bare LF.")]
    BareLineFeed,
    /// A CR that no LF follows.
    #[error("A line contains a bare CR.")]
    BareCarriageReturn,
    /// A control byte other than HTAB.
    #[error("A line contains a control byte.")]
    ControlByte,
    /// More than one empty line before the request line.
    #[error("More than one empty line comes before the request line.")]
    LeadingLines,
    /// A request line that is not three non-empty parts with single spaces between them.
    #[error("The request line is not: method, one space, target, one space, version.")]
    RequestLine,
    /// A method that is no token, or too long.
    #[error("The method is not a token of at most 32 bytes.")]
    Method,
    /// `CONNECT` asks for a tunnel.
    #[error("CONNECT is not supported: this is a gateway and no tunnel.")]
    Connect,
    /// A version other than 1.1 and 1.0.
    #[error("The version is neither HTTP/1.1 nor HTTP/1.0.")]
    Version,
    /// Control, space or non-ASCII bytes in the target.
    #[error("The request target contains a byte that must be percent-encoded.")]
    TargetByte,
    /// A fragment in the target.
    #[error("The request target has a fragment.")]
    TargetFragment,
    /// A target that is not in origin-form, absolute-form or asterisk-form.
    #[error("The request target is neither a path nor an absolute http URI.")]
    TargetForm,
    /// `*` with a method other than `OPTIONS`.
    #[error("The request target * is for OPTIONS only.")]
    TargetAsterisk,
    /// An absolute-form target with a scheme other than `http`.
    #[error("The scheme of the request target is not http.")]
    TargetScheme,
    /// Userinfo in the target's authority.
    #[error("The request target has userinfo.")]
    TargetUserinfo,
    /// An authority of the target that is not a host and a port.
    #[error("The authority of the request target is not a host with an optional port.")]
    TargetAuthority,
    /// Different authorities in the target and `Host`.
    #[error("The request target and Host name different authorities.")]
    ForeignAuthority,
    /// An HTTP/1.1 request without `Host`.
    #[error("Host is missing.")]
    HostMissing,
    /// More than one `Host` line.
    #[error("There is more than one Host.")]
    HostRepeated,
    /// A `Host` that is not a host and a port.
    #[error("Host is not a host with an optional port.")]
    HostInvalid,
    /// A field line that continues the one before.
    #[error("A field line starts with white space.")]
    ObsoleteFold,
    /// A field line without a colon.
    #[error("A field line has no colon.")]
    ColonMissing,
    /// White space between a field name and its colon.
    #[error("There is white space between a field name and its colon.")]
    SpaceBeforeColon,
    /// A field name that is empty or not a token.
    #[error("A field name is empty or not a token.")]
    FieldName,
    /// `Content-Length` together with `Transfer-Encoding`.
    #[error("Content-Length and Transfer-Encoding come together.")]
    LengthWithCoding,
    /// More than one `Content-Length`, in several lines or in one list.
    #[error("There is more than one Content-Length.")]
    LengthRepeated,
    /// A `Content-Length` with a non-digit, or with a leading zero.
    #[error("Content-Length is not a decimal number in its shortest form.")]
    LengthInvalid,
    /// A `Content-Length` over 63 bits.
    #[error("Content-Length is too large.")]
    LengthTooLarge,
    /// More than one `Transfer-Encoding` line.
    #[error("There is more than one Transfer-Encoding.")]
    CodingRepeated,
    /// A transfer coding other than `chunked` alone.
    #[error("Transfer-Encoding is not chunked alone.")]
    CodingUnsupported,
    /// `Transfer-Encoding` in an HTTP/1.0 request.
    #[error("An HTTP/1.0 request has a Transfer-Encoding.")]
    CodingBeforeItsTime,
    /// A chunk size with a byte that is no hexadecimal digit.
    #[error("A chunk size is not a hexadecimal number.")]
    ChunkSize,
    /// A chunk size over 16 digits or 63 bits.
    #[error("A chunk size is too large.")]
    ChunkSizeTooLarge,
    /// Chunk extensions over the limit.
    #[error("The extensions of a chunk are too long.")]
    ChunkExtensionTooLong,
    /// Chunk data that CRLF does not follow.
    #[error("A chunk does not end where its size says.")]
    ChunkEnd,
    /// A trailer field that is allowed in a head only.
    #[error("A trailer field belongs into the head of the request, or is not the client's to send.")]
    TrailerForbidden,
    /// A head or trailer section over the limit.
    #[error("The head of the request is too large.")]
    HeadTooLarge,
    /// Too many field lines.
    #[error("The request has too many field lines.")]
    TooManyFields,
    /// A head that did not arrive before its timeout.
    #[error("The head of the request did not arrive in time.")]
    HeadTimeout,
}

impl GuardRefusal {
    /// Returns the kind of problem in the response.
    pub(super) fn kind(self) -> ProblemKind {
        match self {
            GuardRefusal::HeadTooLarge | GuardRefusal::TooManyFields => ProblemKind::RequestHeadTooLarge,
            GuardRefusal::HeadTimeout => ProblemKind::RequestHeadTimeout,
            _ => ProblemKind::MalformedRequest,
        }
    }

    /// Returns the whole response, after which the connection closes. A response to a `HEAD` has no body,
    /// only its length.
    pub(super) fn response(self, to_head: bool, profile: Profile) -> String {
        let kind = self.kind();
        let problem = Problem::new(kind, self.to_string());
        let body = problem.to_json(profile);
        let line = |(name, value): (HeaderName, HeaderValue)| {
            format!("{name}: {}\r\n", value.to_str().expect("values of ours are ASCII"))
        };
        format!(
            "HTTP/1.1 {status}\r\n\
             {fields}\
             Content-Length: {length}\r\n\
             Cache-Control: no-store\r\n\
             Link: <{PROBLEMS_PATH}{slug}>; rel=\"describedby\"\r\n\
             Connection: close\r\n\r\n{content}",
            status = problem.status(profile),
            fields = problem.header_fields(profile).into_iter().map(line).collect::<String>(),
            length = body.len(),
            content = if to_head { "" } else { &body },
            slug = kind.slug(),
        )
    }
}
