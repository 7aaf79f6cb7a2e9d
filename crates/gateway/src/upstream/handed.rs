//! Body of an outgoing HTTP/2 request.
//!
//! Invariant: hyper asks for a frame only once the stream is open and the upstream's window covers every
//! earlier frame. So the end is a separate frame, not announced with the last one: a request for it proves
//! that the rest was sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use semel_http::{Body, BoxError, Delivery};

/// Body of an outgoing HTTP/2 request, which tells a command's delivery when all of it was handed over.
pub(super) struct HandedBody {
    body: Body,
    delivery: Option<Delivery>,
}

impl HandedBody {
    pub(super) fn new(body: Body, delivery: Option<Delivery>) -> HandedBody {
        HandedBody { body, delivery }
    }
}

impl http_body::Body for HandedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        let is_last = match &frame {
            None => true,
            Some(Ok(frame)) => frame.is_trailers(),
            Some(Err(_)) => false,
        };
        if let Some(delivery) = this.delivery.as_ref().filter(|_| is_last) {
            delivery.sent();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.delivery.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_body_is_handed_over_once_its_end_was_asked_for() {
        use http_body::Body as _;
        let delivery = Delivery::default();
        let is_sent = |delivery: &Delivery| format!("{delivery:?}").contains("is_sent: true");
        let mut body = HandedBody::new(Body::full("abcd"), Some(delivery.clone()));
        body.frame().await.expect("there is a frame").expect("it is good");
        assert!(!body.is_end_stream() && !is_sent(&delivery));
        assert!(body.frame().await.is_none());
        assert!(is_sent(&delivery));
        assert!(HandedBody::new(Body::default(), None).is_end_stream(), "what is no command is left alone");
    }
}
