//! A body whose trailers follow the rules for fields.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use semel_core::fields::{self, Section, Treatment};

use crate::body::BoxError;

/// A body that checks its trailers. A forbidden field in the trailers of a request is an error; from a response, it is removed.
#[derive(Debug)]
pub struct ScreenedBody<B> {
    body: B,
    section: Section,
}

impl<B> ScreenedBody<B> {
    /// Wraps the body of a request.
    pub fn of_request(body: B) -> ScreenedBody<B> {
        ScreenedBody { body, section: Section::RequestTrailer }
    }

    /// Wraps the body of a response.
    pub fn of_response(body: B) -> ScreenedBody<B> {
        ScreenedBody { body, section: Section::ResponseTrailer }
    }
}

impl<B> Body for ScreenedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
        let mut frame = frame.map_err(Into::into)?;
        if let Some(trailers) = frame.trailers_mut() {
            if self.section == Section::RequestTrailer {
                fields::check_request_trailers(trailers)?;
            }
            fields::remove(trailers, self.section, Treatment::Strip);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
