//! Timeouts for responses over HTTP/2.
//!
//! Over HTTP/1, the guard detects a client that reads nothing. Over HTTP/2 a client can read its socket and
//! give a stream no window, which would hold its response and the upstream connection without limit. So a
//! task takes the response in pieces of their own memory, and gives up when a piece is not taken in time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use semel_http::{Body, BoxError, Share, ShareHolder, Shares};
use tokio::sync::Notify;

/// Largest response that needs no task, in bytes.
const SMALL: u64 = 16 * 1024;

/// Largest piece in bytes.
const PIECE: usize = 16 * 1024;

/// Returns these bytes with a share, which is returned once the bytes are written and dropped.
pub(crate) fn counted(bytes: Bytes, share: Share) -> Bytes {
    struct Counted(Bytes, #[expect(dead_code, reason = "it is given back when it is dropped")] Share);
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Counted(bytes, share))
}

/// Returns the body with a timeout for each piece that the client does not take. Its pieces count among
/// `responses` until they are written; the body is not read on while this client has too many of them.
pub(crate) fn paced(body: Body, patience: Duration, responses: &Shares, holder: ShareHolder) -> Body {
    use http_body::Body as _;
    let size = body.size_hint();
    if body.is_end_stream() || size.exact().is_some_and(|size| size <= SMALL) {
        return body;
    }
    let between = Arc::new(Between::default());
    let room = ResponseRoom { responses: responses.clone(), holder, patience };
    tokio::spawn(pump(body, between.clone(), room));
    Body::stream(Paced { between, size })
}

/// State shared by the task and the client's side.
#[derive(Default)]
struct Between {
    place: Mutex<PiecePlace>,
    /// Notified when the client took a piece or left.
    taken: Notify,
}

#[derive(Default)]
struct PiecePlace {
    piece: ResponsePiece,
    client: Option<Waker>,
    client_left: bool,
}

#[derive(Default)]
enum ResponsePiece {
    /// No piece yet.
    #[default]
    None,
    /// Next piece.
    Next(Frame<Bytes>),
    /// End of the body.
    End,
    /// Failure before the end of the body.
    Broken(BoxError),
}

impl Between {
    fn place(&self) -> MutexGuard<'_, PiecePlace> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, piece: ResponsePiece) {
        let mut place = self.place();
        place.piece = piece;
        if let Some(client) = place.client.take() {
            client.wake();
        }
    }

    fn is_free(&self) -> bool {
        let place = self.place();
        place.client_left || !matches!(place.piece, ResponsePiece::Next(_))
    }

    /// Waits until the piece is taken.
    async fn taken(&self) {
        loop {
            let notified = self.taken.notified();
            if self.is_free() {
                return;
            }
            notified.await;
        }
    }

    async fn left(&self) {
        loop {
            let notified = self.taken.notified();
            if self.place().client_left {
                return;
            }
            notified.await;
        }
    }
}

/// Share of one response in the memory for responses.
struct ResponseRoom {
    responses: Shares,
    holder: ShareHolder,
    patience: Duration,
}

impl ResponseRoom {
    /// Copies a piece, since a slice that waits in a buffer would keep its whole source alive. Returns `None`
    /// if there is no room before the timeout.
    async fn piece(&self, data: &[u8]) -> Option<Bytes> {
        let taking = self.responses.take(self.holder, data.len());
        let share = tokio::time::timeout(self.patience, taking).await.ok()?;
        Some(counted(Bytes::copy_from_slice(data), share))
    }
}

async fn pump(mut body: Body, between: Arc<Between>, room: ResponseRoom) {
    let patience = room.patience;
    loop {
        let next = std::future::poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx));
        let frame = tokio::select! {
            frame = next => frame,
            () = between.left() => return,
        };
        let frame = match frame {
            None => return between.put(ResponsePiece::End),
            Some(Err(error)) => return between.put(ResponsePiece::Broken(error)),
            Some(Ok(frame)) => frame,
        };
        let is_taken = match frame.into_data() {
            Ok(data) => {
                let mut pieces = data.chunks(PIECE);
                loop {
                    let Some(piece) = pieces.next() else { break true };
                    let Some(piece) = room.piece(piece).await else {
                        between.put(ResponsePiece::Broken("the client has too much unread".into()));
                        break false;
                    };
                    if !hand_over(&between, Frame::data(piece), patience).await {
                        break false;
                    }
                }
            }
            Err(other) => hand_over(&between, other, patience).await,
        };
        if !is_taken {
            return;
        }
    }
}

/// Hands a piece over, and waits until it is taken. Returns false if it was not.
async fn hand_over(between: &Between, piece: Frame<Bytes>, patience: Duration) -> bool {
    between.put(ResponsePiece::Next(piece));
    if tokio::time::timeout(patience, between.taken()).await.is_err() {
        tracing::debug!("a client took nothing of a response for too long");
        between.put(ResponsePiece::Broken("the client took nothing of it for too long".into()));
        return false;
    }
    !between.place().client_left
}

/// Client's side of the body.
struct Paced {
    between: Arc<Between>,
    size: SizeHint,
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut place = self.between.place();
        let answer = match std::mem::take(&mut place.piece) {
            ResponsePiece::None => {
                place.client = Some(cx.waker().clone());
                return Poll::Pending;
            }
            ResponsePiece::Next(frame) => Some(Ok(frame)),
            ResponsePiece::End => {
                place.piece = ResponsePiece::End;
                None
            }
            ResponsePiece::Broken(error) => {
                place.piece = ResponsePiece::End;
                Some(Err(error))
            }
        };
        drop(place);
        self.between.taken.notify_one();
        Poll::Ready(answer)
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.between.place().client_left = true;
        self.between.taken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Body of this many bytes that reports when it is dropped.
    struct Watched {
        left: usize,
        gone: Arc<Notify>,
    }

    impl http_body::Body for Watched {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let length = self.left.min(100_000);
            self.left -= length;
            Poll::Ready((length > 0).then(|| Ok(Frame::data(vec![7; length].into()))))
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.gone.notify_one();
        }
    }

    fn watched(left: usize) -> (Body, Arc<Notify>) {
        let gone = Arc::new(Notify::new());
        let body = Body::stream(Watched { left, gone: gone.clone() });
        (paced(body, PATIENCE, &Shares::new(4 << 20), ShareHolder::new("a", "1")), gone)
    }

    #[tokio::test(start_paused = true)]
    async fn a_paced_response_keeps_its_bytes_and_trailers() {
        let (body, _) = watched(1_000_000);
        let bytes = body.collect().await.expect("it arrives").to_bytes();
        assert!(bytes.len() == 1_000_000 && bytes.iter().all(|byte| *byte == 7));
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", http::HeaderValue::from_static("7"));
        let body = Body::with_trailers(vec![1; 50_000].into(), trailers.clone());
        let body = paced(body, PATIENCE, &Shares::new(4 << 20), ShareHolder::new("a", "1"));
        let collected = body.collect().await.expect("it arrives");
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes().len(), 50_000);
    }

    /// Reads a body to its end, and discards it.
    async fn read(mut body: Body) -> usize {
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.expect("it arrives").into_data().expect("it is data").len();
        }
        length
    }

    #[tokio::test(start_paused = true)]
    async fn unread_response_bytes_are_bounded_for_each_client() {
        let responses = Shares::new(3 << 20);
        let (greedy, other) = (ShareHolder::new("a", "1"), ShareHolder::new("b", "1"));
        let body = |holder| {
            let body = Body::stream(Watched { left: 10 << 20, gone: Arc::default() });
            paced(body, PATIENCE, &responses, holder)
        };
        // Like a connection whose client reads nothing: it takes every piece it gets, and keeps it.
        let (mut unread, mut kept) = (body(greedy), Vec::new());
        while let Some(Ok(frame)) = unread.frame().await {
            kept.push(frame.into_data().expect("it is data"));
        }
        let length: usize = kept.iter().map(Bytes::len).sum();
        assert!((1 << 20..=2 << 20).contains(&length), "{length}");
        assert_eq!(responses.held(), length, "all of it is counted");
        assert_eq!(read(body(other)).await, 10 << 20, "another client reads, and gets all of it");
        drop(kept);
        assert_eq!(responses.held(), 0);
        assert_eq!(read(body(greedy)).await, 10 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_gets_the_whole_response() {
        let (mut body, _) = watched(200_000);
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.expect("it is not given up").into_data().expect("it is data").len();
            tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
        }
        assert_eq!(length, 200_000);
    }

    #[tokio::test(start_paused = true)]
    async fn unread_response_is_given_up_and_ends_in_an_error() {
        let (mut body, gone) = watched(1_000_000);
        gone.notified().await;
        let frame = body.frame().await.expect("it has not ended");
        assert!(frame.is_err(), "a part of it would look like all of it");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_a_paced_body_drops_the_response_it_reads() {
        let (body, gone) = watched(1_000_000);
        drop(body);
        let begun = tokio::time::Instant::now();
        gone.notified().await;
        assert!(begun.elapsed() < PATIENCE);
    }
}
