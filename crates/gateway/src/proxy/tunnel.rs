//! Tunnel between two connections that have switched protocols, within its limits.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use semel_settings::TunnelLimits;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Passes bytes in both directions until one side ends, both are idle for too long, or the time is over.
pub(super) async fn join<A, B>(client: A, upstream: B, limits: TunnelLimits)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let last = Arc::new(Mutex::new(Instant::now()));
    let mut client = Watched { stream: client, last: last.clone() };
    let mut upstream = Watched { stream: upstream, last: last.clone() };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => {}
        () = silence(&last, limits.idle) => tracing::debug!("a tunnel ended: both sides were silent"),
        () = tokio::time::sleep(limits.total) => tracing::debug!("a tunnel ended: its time was over"),
    }
}

/// Completes once no byte has come from either side for this long.
async fn silence(last: &Mutex<Instant>, idle: Duration) {
    loop {
        let due = *last.lock().unwrap_or_else(PoisonError::into_inner) + idle;
        if Instant::now() >= due {
            return;
        }
        tokio::time::sleep_until(due).await;
    }
}

/// Stream that records the time of its last bytes.
struct Watched<S> {
    stream: S,
    last: Arc<Mutex<Instant>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const LIMITS: TunnelLimits =
        TunnelLimits { idle: Duration::from_secs(10), total: Duration::from_secs(60) };

    #[tokio::test(start_paused = true)]
    async fn a_silent_tunnel_ends_and_so_does_one_that_is_never_silent() {
        for (pause, expected) in [(20, 10), (7, 60)] {
            let (mut client, outer) = duplex(64);
            let (inner, mut upstream) = duplex(64);
            let begun = Instant::now();
            let joined = tokio::spawn(join(outer, inner, LIMITS));
            let talking = tokio::spawn(async move {
                loop {
                    tokio::time::sleep(Duration::from_secs(pause)).await;
                    let mut byte = [0];
                    if client.write_all(b"x").await.is_err() || upstream.read_exact(&mut byte).await.is_err()
                    {
                        return;
                    }
                }
            });
            joined.await.expect("it ends");
            assert_eq!(begun.elapsed().as_secs(), expected);
            talking.await.expect("both sides are closed");
        }
    }
}
