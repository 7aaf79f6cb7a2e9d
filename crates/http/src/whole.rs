//! A body that ends only where its sender ended it.
//!
//! hyper reports an HTTP/2 stream that was reset with NO_ERROR, or cut by a GOAWAY with NO_ERROR, as a body that has
//! ended. `is_end_stream` tells the two apart: it is true only once END_STREAM was received and everything before it was
//! read, also if a reset follows. Over HTTP/1, hyper itself reports a missing last chunk and a length that was not reached.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};

use crate::body::BoxError;

/// The message broke off: its sender did not end it.
///
/// It carries no cause on purpose: hyper copies the code of a cause into its own reset, and NO_ERROR would look like a
/// clean end to the next hop as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message broke off before its end")]
pub struct IncompleteBody;

/// A received body that yields [`IncompleteBody`] in place of an end that its sender did not send.
///
/// Put it around a `hyper::body::Incoming` before you pass the body on, or rely on its end. The layer puts it around the requests
/// that it gets. Middleware in front of the layer must
/// forward `is_end_stream` of the bodies that it wraps: otherwise requests with a body over HTTP/2 are refused as incomplete.
#[derive(Debug)]
pub struct WholeBody<B> {
    body: B,
    /// True if `is_end_stream` must confirm the end.
    is_framed: bool,
    has_ended: bool,
    /// The last bytes of an announced length, held until the end of the stream is known: a next hop that was told the
    /// length takes the message for whole once it has them.
    last: Option<Bytes>,
    /// The trailers that came after the held bytes.
    trailers: Option<Frame<Bytes>>,
}

impl<B> WholeBody<B> {
    /// Wraps the body of a message that was received in this version of HTTP.
    pub fn new(version: Version, body: B) -> WholeBody<B> {
        let is_framed = version == Version::HTTP_2;
        WholeBody { body, is_framed, has_ended: false, last: None, trailers: None }
    }
}

impl<B> WholeBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    /// Polls the next frame of an HTTP/2 body, its end, or an error in place of an end that was not sent.
    fn poll_framed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            // Once the end was seen it stands: a connection that fails later takes nothing of it back.
            self.has_ended |= self.body.is_end_stream();
            if self.has_ended {
                let last = self.last.take().map(Frame::data);
                return Poll::Ready(last.or_else(|| self.trailers.take()).map(Ok));
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(self.break_off(error.into())))),
                None if self.body.is_end_stream() => continue,
                None => return Poll::Ready(Some(Err(self.break_off(IncompleteBody.into())))),
            };
            self.has_ended = self.body.is_end_stream();
            if let Some(frame) = self.hold(frame) {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
    }

    /// Holds a frame that must not be passed on before the end of the stream is known; returns every other frame.
    fn hold(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        if self.last.is_some() {
            // Nothing but an empty frame or trailers can follow the announced length.
            self.trailers = Some(frame).filter(Frame::is_trailers);
            return None;
        }
        if self.has_ended || self.body.size_hint().exact() != Some(0) {
            return Some(frame);
        }
        frame.into_data().map(|data| self.last = Some(data)).err()
    }

    fn break_off(&mut self, error: BoxError) -> BoxError {
        (self.has_ended, self.last, self.trailers) = (true, None, None);
        error
    }
}

impl<B> Body for WholeBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.is_framed {
            return this.poll_framed(cx);
        }
        Pin::new(&mut this.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        let is_held = self.last.is_some() || self.trailers.is_some();
        !is_held && (self.has_ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.last {
            // The announced length was reached with it.
            Some(last) => SizeHint::with_exact(last.len() as u64),
            None => self.body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt;

    use super::*;

    /// The frames of a stream, one after the other; `None` is an end as hyper reports it after NO_ERROR.
    struct Stream {
        frames: VecDeque<Frame<Bytes>>,
        length: Option<u64>,
        is_ended: bool,
    }

    impl Body for Stream {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let frame = self.frames.pop_front();
            let read = frame.as_ref().and_then(|frame| frame.data_ref()).map_or(0, Bytes::len) as u64;
            self.length = self.length.map(|length| length - read);
            Poll::Ready(frame.map(Ok))
        }

        fn is_end_stream(&self) -> bool {
            self.is_ended && self.frames.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    fn trailers() -> Frame<Bytes> {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", http::HeaderValue::from_static("7"));
        Frame::trailers(trailers)
    }

    fn body(frames: Vec<Frame<Bytes>>, length: Option<u64>, is_ended: bool) -> WholeBody<Stream> {
        WholeBody::new(Version::HTTP_2, Stream { frames: frames.into(), length, is_ended })
    }

    #[tokio::test]
    async fn a_body_with_an_explicit_end_is_whole() {
        for length in [None, Some(4)] {
            for (after, with_trailers) in [(vec![], false), (vec![data("")], false), (vec![trailers()], true)]
            {
                let frames = [data("ab"), data("cd")].into_iter().chain(after).collect();
                let whole = body(frames, length, true).collect().await.expect("it is whole");
                assert_eq!(whole.trailers().is_some(), with_trailers);
                assert_eq!(whole.to_bytes(), "abcd");
            }
        }
        assert!(body(vec![], None, true).is_end_stream());
        assert_eq!(body(vec![], None, true).collect().await.expect("it is whole").to_bytes(), "");
    }

    #[tokio::test]
    async fn an_end_that_was_not_sent_is_an_error() {
        for (frames, length) in [
            (vec![], None),
            (vec![data("ab")], None),
            (vec![data("ab")], Some(4)),
            (vec![data("ab"), data("cd")], Some(4)),
        ] {
            let mut cut = body(frames, length, false);
            let mut read = 0;
            let error = loop {
                match cut.frame().await.expect("it does not end") {
                    Ok(frame) => read += frame.data_ref().map_or(0, Bytes::len),
                    Err(error) => break error,
                }
            };
            assert!(error.is::<IncompleteBody>());
            assert!(length.is_none_or(|length| (read as u64) < length), "the last bytes were passed on");
            assert!(cut.frame().await.is_none(), "nothing follows an error");
        }
    }

    #[tokio::test]
    async fn other_versions_end_as_their_bodies_say() {
        let stream = Stream { frames: vec![data("ab")].into(), length: None, is_ended: false };
        let body = WholeBody::new(Version::HTTP_11, stream);
        assert_eq!(body.collect().await.expect("it is whole").to_bytes(), "ab");
    }
}
