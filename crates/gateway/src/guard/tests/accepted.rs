//! Valid requests, including unusual ones, pass completely.

use super::{MAX_HEAD, Outcome, outcome};

/// Heads without a body.
const HEADS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "get /x?y=/z&a=http://b/ HTTP/1.1\r\nhOsT:a:8080\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "M-SEARCH /!$&'()*+,;=:@%20[]{}|\\^` HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET //double//slash HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET http://a/ HTTP/1.1\r\nHost: A:80\r\n\r\n",
    "GET HTTP://a:80?q HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET http://a:/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET http://a/user@host HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET http://[::1]:8080/ HTTP/1.1\r\nHost: [0:0::1]:8080\r\n\r\n",
    "GET http://a/ HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost:  \t a_b.c-d \t \r\n\r\n",
    "GET / HTTP/1.1\r\nHost: 127.0.0.1:3000\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX:\r\nY: a\tb: c, \"d\" \u{e9}\r\n!#$%&'*+-.^_`|~09: z\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding-X: identity\r\nX-Content-Length: 5, 5\r\n\r\n",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF / HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// Whole requests with a body.
const BODIES: &[&str] = &[
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\t5 \r\n\r\nhello",
    "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n\n\r\0\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \tCHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0000000000000003\r\n\r\n\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a;b=c;d=\"e f\"\r\nhello\r\n0;last\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5 \t; a = b\r\nhello\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\nEmpty:\r\n\r\n",
];

#[test]
fn the_guard_passes_valid_requests_alone_and_pipelined() {
    for request in HEADS.iter().chain(BODIES) {
        let passed = |heads: usize| Outcome { heads, passed: heads * request.len(), refusal: None };
        assert_eq!(outcome(request.as_bytes()), passed(1), "{request:?}");
        assert_eq!(outcome(request.repeat(10).as_bytes()), passed(10), "{request:?}");
    }
    let all: String = HEADS.iter().chain(BODIES).copied().collect();
    let expected = Outcome { heads: HEADS.len() + BODIES.len(), passed: all.len(), refusal: None };
    assert_eq!(outcome(all.as_bytes()), expected);
}

#[test]
fn an_incomplete_head_is_held_back_whole() {
    for request in HEADS {
        for end in 0..request.len() {
            let expected = Outcome { heads: 0, passed: 0, refusal: None };
            assert_eq!(outcome(&request.as_bytes()[..end]), expected, "{request:?} up to {end}");
        }
    }
}

#[test]
fn requests_at_a_limit_pass() {
    let padded = |length: usize| {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n";
        head.replace("X: ", &format!("X: {}", "x".repeat(length - head.len())))
    };
    assert_eq!(outcome(padded(MAX_HEAD).as_bytes()).heads, 1);
    assert!(outcome(padded(MAX_HEAD + 1).as_bytes()).refusal.is_some());

    let fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(127));
    assert_eq!(outcome(fields.as_bytes()).heads, 1);

    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let extended = format!("{head}0000000000000005;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(255));
    assert_eq!(outcome(extended.as_bytes()).passed, extended.len());

    let largest = format!("{head}7fffffffffffffff\r\nhello");
    assert_eq!(outcome(largest.as_bytes()).passed, largest.len());
    let longest = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\nhello";
    assert_eq!(outcome(longest.as_bytes()).passed, longest.len());
}

#[test]
fn an_http2_preface_makes_the_connection_opaque() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for end in 0..preface.len() {
        assert_eq!(outcome(&preface[..end]).passed, 0);
    }
    let bytes = [&preface[..], b"\0\0\0\x04\0\n\n anything"].concat();
    assert_eq!(outcome(&bytes), Outcome { heads: 0, passed: bytes.len(), refusal: None });
}
