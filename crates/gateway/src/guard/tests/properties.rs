//! For all bytes and all splits: no panic, an equal outcome, and no byte passes unchecked.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Outcome, feed};
use crate::guard::outbound::Outbound;

/// Requests that look complete: a head with framing of every kind, consistent or not, and a body-like part.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let fields = prop::sample::select(vec![
        "Content-Length: 5\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length : 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "X: 1\r\n Transfer-Encoding: chunked\r\n",
        "X: 1\nTransfer-Encoding: chunked\r\n",
        "Upgrade: x\r\n",
        "X: 1\r\n",
    ]);
    let bodies = prop::sample::select(vec![
        "",
        "",
        "hello",
        "5\r\nhello\r\n0\r\n\r\n",
        "0\r\n\r\n",
        "0\r\nX: 1\r\n\r\n",
    ]);
    (prop::sample::select(vec!["GET", "HEAD", "POST"]), vec(fields, 0..3), bodies).prop_map(
        |(method, fields, body)| {
            format!("{method} / HTTP/1.1\r\nHost: a\r\n{}\r\n{body}", fields.concat()).into_bytes()
        },
    )
}

/// Pieces of requests and responses, and noise.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST http://a/ HTTP/1.1\r\n",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 101 x\r\n",
        "Host: a\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "\r",
        "\n",
        "hello",
        "5\r\nhello\r\n",
        "5;x=y\r\n",
        "0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]);
    prop_oneof![8 => known.prop_map(|piece| piece.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..8)]
}

/// Bytes that a connection may carry.
pub(super) fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => request(), 1 => piece()], 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn splits_never_change_the_outcome(bytes in bytes(), sizes in vec(1..40usize, 1..8)) {
        let whole = feed(&bytes, &[bytes.len().max(1)]);
        prop_assert!(whole.passed <= bytes.len());
        prop_assert_eq!(feed(&bytes, &sizes), whole);
    }

    #[test]
    fn random_bytes_have_one_outcome_in_every_split(bytes in vec(any::<u8>(), 0..400), sizes in vec(1..40usize, 1..8)) {
        let whole = feed(&bytes, &[bytes.len().max(1)]);
        prop_assert_eq!(feed(&bytes, &sizes), whole);
    }

    #[test]
    fn bytes_that_the_guard_let_through_do_not_depend_on_later_bytes(bytes in bytes(), cut in any::<prop::sample::Index>()) {
        let Outcome { passed: before, .. } = feed(&bytes[..cut.index(bytes.len() + 1)], &[usize::MAX >> 1]);
        prop_assert!(before <= feed(&bytes, &[bytes.len().max(1)]).passed);
    }

    #[test]
    fn responses_are_followed_alike_in_every_split(bytes in bytes(), size in 1..40usize) {
        let follow = |size: usize| {
            let mut outbound = Outbound::new();
            outbound.expect_response(false);
            let outcome = bytes.chunks(size).try_for_each(|piece| outbound.wrote(piece));
            (outcome.is_ok(), outcome.is_ok() && outbound.is_idle(), outcome.is_ok() && outbound.has_switched())
        };
        prop_assert_eq!(follow(size), follow(bytes.len().max(1)));
    }
}
