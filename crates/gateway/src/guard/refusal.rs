//! Why a connection is refused, and the response that says so. Raised by the pure part of the guard, sent by
//! [`Farewell`](super::farewell::Farewell). The text is fixed: nothing a client sent is ever sent back.

use http::{HeaderName, HeaderValue};
use semel_core::Problem;
use semel_core::policy::Profile;
use semel_core::problem::{Kind, PROBLEMS_PATH};
use thiserror::Error;

/// What was wrong with the bytes of a connection. Its text is the `detail` a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Refusal {
    /// A line ends in LF without CR.
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
    /// Not two single spaces between three non-empty parts.
    #[error("The request line is not: method, one space, target, one space, version.")]
    RequestLine,
    /// The method is not a token, or too long.
    #[error("The method is not a token of at most 32 bytes.")]
    Method,
    /// `CONNECT` asks for a tunnel.
    #[error("CONNECT is not supported: this is a gateway and no tunnel.")]
    Connect,
    /// Neither 1.1 nor 1.0.
    #[error("The version is neither HTTP/1.1 nor HTTP/1.0.")]
    Version,
    /// Control, space or non-ASCII bytes in the target.
    #[error("The request target contains a byte that must be percent-encoded.")]
    TargetByte,
    /// A fragment in the target.
    #[error("The request target has a fragment.")]
    TargetFragment,
    /// Not origin-form, absolute-form or asterisk-form.
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
    /// The authority of the target is not a host and a port.
    #[error("The authority of the request target is not a host with an optional port.")]
    TargetAuthority,
    /// The target and `Host` name different authorities.
    #[error("The request target and Host name different authorities.")]
    ForeignAuthority,
    /// An HTTP/1.1 request without `Host`.
    #[error("Host is missing.")]
    HostMissing,
    /// More than one `Host` line.
    #[error("There is more than one Host.")]
    HostRepeated,
    /// `Host` is not a host and a port.
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
    /// More than one `Content-Length`, be it in several lines or in one list.
    #[error("There is more than one Content-Length.")]
    LengthRepeated,
    /// `Content-Length` is not all digits, or has a zero in front.
    #[error("Content-Length is not a decimal number in its shortest form.")]
    LengthInvalid,
    /// `Content-Length` is over 63 bits.
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
    /// A chunk size is not all hexadecimal digits.
    #[error("A chunk size is not a hexadecimal number.")]
    ChunkSize,
    /// A chunk size is over 16 digits or 63 bits.
    #[error("A chunk size is too large.")]
    ChunkSizeTooLarge,
    /// The extensions of a chunk are over the limit.
    #[error("The extensions of a chunk are too long.")]
    ChunkExtensionTooLong,
    /// The data of a chunk are not followed by CRLF.
    #[error("A chunk does not end where its size says.")]
    ChunkEnd,
    /// A field after the body that means something in a head only.
    #[error("A trailer field belongs into the head of the request, or is not the client's to send.")]
    TrailerForbidden,
    /// The head, or the trailer section, is over the limit.
    #[error("The head of the request is too large.")]
    HeadTooLarge,
    /// Too many field lines.
    #[error("The request has too many field lines.")]
    TooManyFields,
    /// The head did not arrive in time.
    #[error("The head of the request did not arrive in time.")]
    HeadTimeout,
}

impl Refusal {
    /// The kind of problem that the client is told.
    pub(super) fn kind(self) -> Kind {
        match self {
            Refusal::HeadTooLarge | Refusal::TooManyFields => Kind::RequestHeadTooLarge,
            Refusal::HeadTimeout => Kind::RequestHeadTimeout,
            _ => Kind::MalformedRequest,
        }
    }

    /// The whole response, after which the connection closes. One to a `HEAD` has no body, only its length.
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
