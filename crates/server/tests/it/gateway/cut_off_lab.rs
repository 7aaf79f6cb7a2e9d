//! Upstream that speaks HTTP/2 frame by frame, and breaks off at the test's command.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use semel_testkit::http2::{Peer, headers};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Head of an answer.
pub(crate) const CREATED: (&str, &str) = (":status", "201");

/// Frames of an answer on a stream, with true if the connection ends after them.
pub(crate) type Answer = Box<dyn FnOnce(u32) -> (Vec<u8>, bool) + std::marker::Send>;

/// Event of a request at the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Its head arrived.
    Begun,
    /// It ended with END_STREAM.
    Whole,
    /// It ended with a reset of this code.
    Reset(u32),
    /// It ended with its connection.
    Lost,
}

/// HTTP/2 upstream. It answers each complete request with the next of its answers.
pub(crate) struct FrameUpstream {
    pub(crate) address: SocketAddr,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    steps: mpsc::UnboundedReceiver<Step>,
}

impl FrameUpstream {
    pub(crate) async fn start() -> FrameUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let answers: Arc<Mutex<VecDeque<Answer>>> = Arc::default();
        let (telling, steps) = mpsc::unbounded_channel();
        let script = answers.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, telling) = (script.clone(), telling.clone());
                tokio::spawn(async move {
                    if let Some(peer) = Peer::accept(stream).await {
                        serve(peer, &script, &telling).await;
                    }
                });
            }
        });
        FrameUpstream { address, answers, steps }
    }

    /// Answers the next request with these frames on its stream; with `closes`, the connection ends after
    /// them.
    pub(crate) fn answer(
        &self,
        frames: impl FnOnce(u32) -> Vec<u8> + std::marker::Send + 'static,
        closes: bool,
    ) {
        let answer: Answer = Box::new(move |stream| (frames(stream), closes));
        self.answers.lock().expect("nobody panics with it").push_back(answer);
    }

    /// Returns the next event.
    pub(crate) async fn step(&mut self) -> Step {
        self.steps.recv().await.expect("it runs as long as the test")
    }

    /// Returns the number of requests that have begun since the last event was read.
    pub(crate) fn count(&mut self) -> usize {
        std::iter::from_fn(|| self.steps.try_recv().ok()).filter(|step| *step == Step::Begun).count()
    }
}

async fn serve(mut peer: Peer, script: &Mutex<VecDeque<Answer>>, telling: &mpsc::UnboundedSender<Step>) {
    let mut open = Vec::new();
    while let Some(frame) = peer.next().await {
        if frame.is_headers() && !open.contains(&frame.stream) {
            open.push(frame.stream);
            let _ = telling.send(Step::Begun);
        }
        let code = frame.reset_code().filter(|_| open.contains(&frame.stream));
        if !frame.ends_message() && code.is_none() {
            continue;
        }
        open.retain(|stream| *stream != frame.stream);
        let _ = telling.send(code.map_or(Step::Whole, Step::Reset));
        if code.is_some() {
            continue;
        }
        let answer = script.lock().expect("nobody panics with it").pop_front();
        let plain = |stream| (headers(stream, &[CREATED], true), false);
        let (frames, closes) = answer.map_or_else(|| plain(frame.stream), |answer| answer(frame.stream));
        peer.send(&frames).await;
        if closes {
            break;
        }
    }
    for _ in open {
        let _ = telling.send(Step::Lost);
    }
}
