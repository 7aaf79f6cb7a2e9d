//! Main property of the guard: hyper behind it sees exactly the requests that the guard saw, for all bytes.
//! Time is paused, so that a connection that waits for more bytes ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::MAX_HEAD;
use super::properties::bytes;
use crate::guard::inbound::{Inbound, InboundDecision};
use crate::guard::{ClientLimits, Guarded};

/// Returns the number of requests that the guard follows to their end.
fn judged(bytes: &[u8]) -> usize {
    let mut inbound = Inbound::new(MAX_HEAD);
    let (mut passed, mut whole) = (0, 0);
    while let Ok(InboundDecision::Pass(length) | InboundDecision::Head { length, .. }) =
        inbound.inspect(&bytes[passed..])
    {
        passed += length;
        whole += usize::from(inbound.expects_head());
    }
    whole
}

/// Returns the number of requests that a service behind the guard reads to their end.
async fn served(bytes: &[u8], piece: usize) -> usize {
    let seen = Arc::new(AtomicUsize::new(0));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            request.into_body().collect().await?;
            seen.fetch_add(1, Ordering::SeqCst);
            Ok::<_, hyper::Error>(Response::new(Full::<Bytes>::from("seen")))
        }
    });
    let (client, server) = tokio::io::duplex(64 * 1024);
    let guarded = Guarded::new(server, ClientLimits { max_head: MAX_HEAD, ..ClientLimits::default() });
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(guarded), service);
    let (mut reader, mut writer) = tokio::io::split(client);
    let writing = async {
        for piece in bytes.chunks(piece) {
            // A refused connection takes no more bytes.
            if writer.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let mut answers = Vec::new();
    // The end of the connection is not checked here.
    let _ = tokio::join!(serving, writing, reader.read_to_end(&mut answers));
    seen.load(Ordering::SeqCst)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hyper_sees_the_requests_the_guard_saw(bytes in bytes(), piece in 1..200usize) {
        // hyper checks HTTP/2 itself.
        if bytes.starts_with(b"PRI") {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let seen = runtime.expect("a runtime can be built").block_on(served(&bytes, piece));
        prop_assert_eq!(seen, judged(&bytes));
    }
}
