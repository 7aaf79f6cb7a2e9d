//! The head guard: what a reverse proxy must refuse, refused before the lenient HTTP/1 parser behind it looks.
//!
//! [`Guarded`] wraps an accepted connection and is handed to hyper in its place. Two readers that disagree on
//! where a request ends let one request hide in another ("request smuggling"); so a request is either framed
//! beyond doubt, or it is answered with 400 (431 if its head is too large, 408 if too slow) and the connection
//! closes, with no byte of it passed on.
//!
//! ```text
//!  client ──► Inbound: Section, head, Body ──► held until judged ──► hyper
//!         ◄── Farewell (a refusal)             Outbound: Body    ◄──
//! ```
//!
//! - **One request at a time.** A head is judged and passed on only after the response before it was written
//!   out. hyper answers pipelined requests one after another anyway, so nothing is lost; and a refusal can never
//!   land in the middle of an earlier response, nor overtake it. It also settles what follows an `Upgrade`
//!   request: its bytes wait, and are opaque after a 101 and the next request after anything else.
//! - **Whole heads.** hyper sees a head once it is complete and accepted. Chunk size lines and trailer sections
//!   are held back in the same way; data pass as they come, uncopied where they fill hyper's buffer.
//! - **A fault inside a body** finds its head already passed on. The body breaks off with an error, and the
//!   client gets its 400 unless the response has begun.
//! - **HTTP/2 with prior knowledge**, and whatever follows a 101, is opaque: no check and no read limit applies.
//!   The limits of HTTP/2 are hyper's own to keep; writes without progress are bounded here all the same.
//!
//! hyper needs no setting for this; its own `header_read_timeout` would only see whole heads.
//!
//! All modules but `stream`, `farewell` and `deadline` are pure: they know nothing of time and sockets.

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

pub use limits::Limits;
pub use refusal::Refusal;
pub use stream::Guarded;
pub use target::is_authority;
