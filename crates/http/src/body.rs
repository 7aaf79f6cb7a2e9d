//! The one body type of this crate: bytes in hand, or a stream that passes through.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use semel_core::Principal;

use crate::shares::{Share, ShareHolder, Shares};

/// Any error, as tower and hyper pass them around.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The number of bytes of a refused body that are read and thrown away, so that the client can read the answer.
const MAX_DRAIN: usize = 8 << 20;

/// The time for that.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// A request or response body: bytes in hand, or a stream that passes through.
#[derive(Debug)]
pub struct Body(BodyKind);

#[derive(Debug)]
enum BodyKind {
    Full(Full<Bytes>),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

impl Body {
    /// Makes a body of these bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Body {
        Body(BodyKind::Full(Full::new(bytes.into())))
    }

    /// Makes a body of these bytes, followed by these trailers.
    pub fn with_trailers(bytes: Bytes, trailers: HeaderMap) -> Body {
        if trailers.is_empty() {
            return Body::full(bytes);
        }
        let body = Full::new(bytes).with_trailers(std::future::ready(Some(Ok(trailers))));
        Body::stream(UnknownLength(Box::pin(body)))
    }

    /// Returns the bytes, if all of them are in hand.
    ///
    /// # Errors
    /// The body itself, if it is a stream.
    pub fn into_bytes(self) -> Result<Bytes, Body> {
        use http_body::Body as _;
        match self.0 {
            BodyKind::Full(mut full) => {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                match Pin::new(&mut full).poll_frame(&mut cx) {
                    Poll::Ready(Some(Ok(frame))) => Ok(frame.into_data().unwrap_or_default()),
                    _ => Ok(Bytes::new()),
                }
            }
            other @ BodyKind::Stream(_) => Err(Body(other)),
        }
    }

    /// Makes a body that passes through.
    pub fn stream<B>(body: B) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body(BodyKind::Stream(body.map_err(Into::into).boxed_unsync()))
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::full(Bytes::new())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::full(bytes)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.get_mut().0 {
            BodyKind::Full(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            BodyKind::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Full(body) => body.is_end_stream(),
            BodyKind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Full(body) => body.size_hint(),
            BodyKind::Stream(body) => body.size_hint(),
        }
    }
}

/// The memory for the bodies of commands, all together, shared by tenant and caller. Bytes count when they arrive, not when they
/// are announced.
pub(crate) struct BodyRoom(Shares);

impl BodyRoom {
    pub(crate) fn new(bytes: usize) -> BodyRoom {
        BodyRoom(Shares::new(bytes))
    }

    /// Returns the part of this caller for one body; nothing of it is taken yet.
    pub(crate) fn of(&self, principal: &Principal) -> Share {
        self.0.part(ShareHolder::new(principal.tenant(), principal.caller()))
    }
}

/// Hides a body's length: HTTP/1 sends trailers only after a body of unknown length.
struct UnknownLength<B>(Pin<Box<B>>);

impl<B: http_body::Body> http_body::Body for UnknownLength<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.0.as_mut().poll_frame(cx)
    }
}

/// Returns true for a body that may never end.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media_type
        .split(';')
        .next()
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// A body that was read to its end, or to its bound.
pub(crate) enum Collected<B> {
    /// The whole body.
    Whole {
        /// Its bytes.
        bytes: Bytes,
        /// Its trailers.
        trailers: HeaderMap,
    },
    /// More than the bound: the bytes that were read, and the rest.
    TooLarge(Prefixed<B>),
    /// More than the memory: the bytes that were read, and the rest.
    NoRoom(Prefixed<B>),
}

/// Reads a body of at most `limit` bytes, and of no more than `room` can grow by. It never waits for room.
pub(crate) async fn collect<B>(
    mut body: B,
    limit: usize,
    mut room: Option<&mut Share>,
) -> Result<Collected<B>, BoxError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let mut read = Pieces::default();
    let mut trailers = HeaderMap::new();
    if usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX) > limit {
        return Ok(Collected::TooLarge(Prefixed { read: Bytes::new(), rest: body }));
    }
    let mut fits = |more: usize| room.as_mut().is_none_or(|room| room.grow(more));
    while let Some(frame) = body.frame().await {
        match frame.map_err(Into::into)?.into_data() {
            Ok(data) => {
                let has_room = fits(data.len());
                read.push(data);
                if !has_room {
                    return Ok(Collected::NoRoom(Prefixed { read: read.join(), rest: body }));
                }
                if read.len() > limit {
                    return Ok(Collected::TooLarge(Prefixed { read: read.join(), rest: body }));
                }
            }
            Err(frame) => {
                let more = frame.into_trailers().unwrap_or_default();
                if !fits(more.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()) {
                    return Ok(Collected::NoRoom(Prefixed { read: read.join(), rest: body }));
                }
                trailers.extend(more);
            }
        }
    }
    Ok(Collected::Whole { bytes: read.join(), trailers })
}

/// The pieces of a body. A single piece is kept as it is; from the second on they are copied together, so that many small pieces
/// take no more memory than their bytes.
#[derive(Default)]
struct Pieces {
    first: Bytes,
    joined: BytesMut,
}

impl Pieces {
    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&self.first);
            self.first = Bytes::new();
        }
        self.joined.extend_from_slice(&data);
    }

    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn join(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

/// The bytes that were already read of a body, and then the rest of it.
pub(crate) struct Prefixed<B> {
    read: Bytes,
    rest: B,
}

impl<B> Prefixed<B> {
    /// Returns the rest alone, and drops the bytes that were read.
    pub(crate) fn rest(self) -> B {
        self.rest
    }
}

/// Reads a body and throws it away, within bounds, so that a client that is still sending can read the answer.
pub(crate) async fn drain<B: http_body::Body<Data = Bytes>>(body: B) {
    let mut body = std::pin::pin!(body);
    let mut drained = 0_usize;
    let draining = async {
        while drained < MAX_DRAIN
            && let Some(Ok(frame)) = body.frame().await
        {
            drained = drained.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, draining).await;
}

impl<B> http_body::Body for Prefixed<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if this.read.is_empty() {
            return Pin::new(&mut this.rest).poll_frame(cx);
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.read)))))
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.len() as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that announces a lot, brings these pieces, and then waits.
    struct Announced(Vec<Bytes>);

    impl http_body::Body for Announced {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            self.0.pop().map_or(Poll::Pending, |piece| Poll::Ready(Some(Ok(Frame::data(piece)))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(1 << 20)
        }
    }

    fn caller(tenant: &str) -> Principal {
        Principal::new(tenant, "alice").expect("it is valid")
    }

    #[tokio::test]
    async fn a_body_takes_room_for_its_received_bytes_not_its_announced_length() {
        let room = BodyRoom::new(100 << 10);
        let mut held = Vec::new();
        for _ in 0..50 {
            let mut share = room.of(&caller("acme"));
            let body = Announced(vec![Bytes::from_static(&[0; 1024])]);
            let reading = collect(body, 1 << 20, Some(&mut share));
            assert!(tokio::time::timeout(Duration::ZERO, reading).await.is_err(), "it waits for the rest");
            assert_eq!(share.amount(), 1024);
            held.push(share);
        }
        let mut other = room.of(&caller("globex"));
        let whole = collect(Body::full(vec![0; 20 << 10]), 1 << 20, Some(&mut other)).await;
        assert!(matches!(whole, Ok(Collected::Whole { .. })), "nobody else is held up");
    }

    #[tokio::test]
    async fn a_tenant_that_fills_the_body_room_does_not_block_another_tenant() {
        let room = BodyRoom::new(100 << 10);
        let mut first = room.of(&caller("acme"));
        let body = Announced(vec![vec![0; 1024].into(); 66]);
        let reading = collect(body, 1 << 20, Some(&mut first));
        assert!(tokio::time::timeout(Duration::ZERO, reading).await.is_err());
        let mut second = room.of(&caller("acme"));
        let refused = collect(Body::full(vec![0; 10 << 10]), 1 << 20, Some(&mut second)).await;
        assert!(matches!(refused, Ok(Collected::NoRoom(_))), "it does not wait");
        let mut other = room.of(&caller("globex"));
        let whole = collect(Body::full(vec![0; 20 << 10]), 1 << 20, Some(&mut other)).await;
        assert!(matches!(whole, Ok(Collected::Whole { .. })));
    }

    #[tokio::test]
    async fn trailers_count_against_the_body_room() {
        let room = BodyRoom::new(1000);
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", http::HeaderValue::from_bytes(&[b'7'; 900]).expect("it is valid"));
        let mut share = room.of(&caller("acme"));
        let refused = collect(Body::with_trailers(Bytes::new(), trailers), 10, Some(&mut share)).await;
        assert!(matches!(refused, Ok(Collected::NoRoom(_))));
    }
}
