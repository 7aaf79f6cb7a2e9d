//! HTTP/2 connection of a client.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use semel_testkit::http2::{Frame, Peer, frame};

use crate::answer::Answer;
use crate::case::{Ending, RawFrame};
use crate::over_http1::Heard;

/// A connection that is kept from case to case, until it ends.
#[derive(Default)]
pub(crate) struct Http2 {
    peer: Option<Peer>,
    /// Stream of the next request.
    next: u32,
}

/// Received part of one stream.
#[derive(Default)]
struct Stream {
    body: Vec<u8>,
    is_ended: bool,
    is_reset: bool,
}

impl Http2 {
    /// Sends the steps of a case with this number of requests, and reads the responses.
    pub(crate) async fn send(
        &mut self,
        gateway: SocketAddr,
        steps: &[Vec<RawFrame>],
        abandoned: &[usize],
        ending: Ending,
        asks: usize,
    ) -> Heard {
        let mut peer = match self.peer.take() {
            Some(peer) => peer,
            None => {
                self.next = 1;
                Peer::connect(gateway).await
            }
        };
        let first = self.next;
        self.next += 2 * u32::try_from(asks).unwrap_or_default();
        for step in steps {
            peer.send(&bytes(step, first)).await;
            tokio::task::yield_now().await;
        }
        if ending == Ending::Leave {
            return Heard::default();
        }
        let mut streams: BTreeMap<u32, Stream> = BTreeMap::new();
        let mut raw = Vec::new();
        if ending == Ending::HalfClose {
            peer.half_close().await;
        }
        let number = |ask: usize| first + 2 * u32::try_from(ask).unwrap_or_default();
        let is_done = |streams: &BTreeMap<u32, Stream>| {
            let is_over = |ask: usize| {
                streams.get(&number(ask)).is_some_and(|stream| stream.is_ended || stream.is_reset)
            };
            ending == Ending::Keep && (0..asks).all(|ask| abandoned.contains(&ask) || is_over(ask))
        };
        let mut is_open = true;
        while !is_done(&streams) {
            let Some(frame) = peer.next().await else {
                is_open = false;
                break;
            };
            is_open &= !frame.is_go_away();
            note(&frame, &mut streams, &mut raw);
        }
        if ending == Ending::Keep && is_open {
            self.peer = Some(peer);
        }
        let answer = |ask: usize| match streams.get(&number(ask)) {
            Some(stream) if stream.is_ended => Answer::of(&stream.body, None),
            _ => Answer::None,
        };
        Heard { raw, answers: (0..asks).map(answer).collect(), fault: None }
    }
}

fn note(frame: &Frame, streams: &mut BTreeMap<u32, Stream>, raw: &mut Vec<u8>) {
    raw.extend_from_slice(frame.data());
    let stream = streams.entry(frame.stream).or_default();
    stream.body.extend_from_slice(frame.data());
    stream.is_ended |= frame.ends_message();
    stream.is_reset |= frame.reset_code().is_some();
}

/// Encodes frames, with streams relative to this one.
pub(crate) fn bytes(frames: &[RawFrame], first: u32) -> Vec<u8> {
    let stream = |number: i32| first.saturating_add_signed(2 * number);
    let bytes = |raw: &RawFrame| frame(raw.kind, raw.flags, raw.stream.map_or(0, stream), &raw.payload);
    frames.iter().flat_map(bytes).collect()
}
