//! End of a refused connection: sends the response, closes the gateway's end, then waits briefly. Closing
//! with unread bytes would send a reset that can destroy the response on its way (RFC 9112 9.6), so some of
//! the client's further bytes are read and discarded.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use semel_core::policy::Profile;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::deadline::Deadline;
use super::refusal::GuardRefusal;

/// Timeout of the whole end.
const PATIENCE: Duration = Duration::from_secs(1);
/// Largest number of discarded bytes.
const MAX_DISCARDED: usize = 256 * 1024;

/// Refusal that is being sent.
#[derive(Debug)]
pub(super) struct Farewell {
    response: Bytes,
    stage: Stage,
    deadline: Deadline,
}

#[derive(Debug)]
enum Stage {
    Respond,
    Close,
    Discard(usize),
    Done,
}

impl Farewell {
    /// Makes the end of a connection. `to_head` is true if the refused request is a `HEAD`.
    pub(super) fn new(refusal: GuardRefusal, to_head: bool, profile: Profile) -> Farewell {
        let response = refusal.response(to_head, profile).into();
        Farewell { response, stage: Stage::Respond, deadline: Deadline::default() }
    }

    /// Becomes ready when only dropping the connection is left. Errors are not reported: they do not change
    /// that.
    pub(super) fn poll<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.poll_stages(stream, cx).is_pending() {
            ready!(self.deadline.poll(cx, PATIENCE));
        }
        self.stage = Stage::Done;
        Poll::Ready(())
    }

    fn poll_stages<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            self.stage = match self.stage {
                Stage::Respond if self.response.is_empty() => Stage::Close,
                Stage::Respond => {
                    let written = ready!(Pin::new(&mut *stream).poll_write(cx, &self.response))?;
                    if written == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    self.response.advance(written);
                    Stage::Respond
                }
                Stage::Close => {
                    ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
                    Stage::Discard(0)
                }
                Stage::Discard(discarded) if discarded > MAX_DISCARDED => Stage::Done,
                Stage::Discard(discarded) => {
                    let mut scratch = [MaybeUninit::uninit(); 8 * 1024];
                    let mut scratch = ReadBuf::uninit(&mut scratch);
                    ready!(Pin::new(&mut *stream).poll_read(cx, &mut scratch))?;
                    match scratch.filled().len() {
                        0 => Stage::Done,
                        read => Stage::Discard(discarded + read),
                    }
                }
                Stage::Done => return Poll::Ready(Ok(())),
            };
        }
    }
}
