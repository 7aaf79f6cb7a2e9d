//! Head guard: refuses requests that a reverse proxy must refuse, before the lenient HTTP/1 parser of hyper
//! reads them.
//!
//! [`Guarded`] wraps an accepted connection and is handed to hyper in its place. Two readers that disagree on
//! where a request ends let one request hide in another ("request smuggling"). So a request is either framed
//! unambiguously, or it gets 400 (431 if its head is too large, 408 if too slow), the connection closes, and
//! no byte of it is passed on.
//!
//! ```text
//!  client ──► Inbound: Section, head, Body ──► held until judged ──► hyper
//!         ◄── Farewell (a refusal)             Outbound: Body    ◄──
//! ```
//!
//! - **One request at a time.** A head is checked and passed on only after the previous response was written.
//!   hyper answers pipelined requests one after another anyway, so nothing is lost, and a refusal can never
//!   land inside an earlier response or overtake it. Bytes after an `Upgrade` request wait, too: they are
//!   opaque after a 101, and the next request after any other response.
//! - **Whole heads.** hyper sees a head once it is complete and accepted. Chunk size lines and trailer
//!   sections are held back in the same way; data pass as they come, uncopied if they fill hyper's buffer.
//! - **A fault inside a body** comes after its head was passed on. The body breaks off with an error, and the
//!   client gets its 400 unless the response has begun.
//! - **HTTP/2 with prior knowledge**, and every protocol after a 101, is opaque: no check and no read limit
//!   applies. hyper enforces the limits of HTTP/2; writes without progress are still bounded here.
//!
//! hyper needs no setting for this; its own `header_read_timeout` would only see whole heads.
//!
//! All modules except `stream`, `farewell` and `deadline` are pure: they use no clock and no socket.

mod body;
mod deadline;
mod farewell;
mod field;
mod head;
mod inbound;
mod limits;
mod outbound;
mod refusal;
mod section;
mod stream;
mod target;
#[cfg(test)]
mod tests;

pub use limits::ClientLimits;
pub use refusal::GuardRefusal;
pub use stream::Guarded;
pub use target::is_authority;
