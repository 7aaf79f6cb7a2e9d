//! The end of every response is found, and only a real 101 switches protocols.

use crate::guard::outbound::{Lost, Outbound};

/// State after following a response.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Untouched,
    Open,
    Idle,
    Switched,
}

fn end(response: &str, to_head: bool) -> Result<End, Lost> {
    let followed = |size: usize| {
        let mut outbound = Outbound::new();
        outbound.expect_response(to_head);
        for piece in response.as_bytes().chunks(size) {
            outbound.wrote(piece)?;
        }
        Ok(match (outbound.is_idle(), outbound.has_switched(), outbound.is_untouched()) {
            (true, _, _) => End::Idle,
            (_, true, _) => End::Switched,
            (_, _, true) => End::Untouched,
            (false, false, false) => End::Open,
        })
    };
    let whole = followed(response.len().max(1));
    for size in [1, 2, 3, 7, 16] {
        assert_eq!(followed(size), whole, "{response:?} in pieces of {size}");
    }
    whole
}

#[test]
fn a_response_is_over_when_its_framing_says_so() {
    let cases = [
        ("", End::Untouched),
        ("HTTP/1.1 100 Continue\r\n\r\n", End::Untouched),
        ("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", End::Untouched),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP", End::Open),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r", End::Open),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", End::Open),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", End::Idle),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", End::Idle),
        ("HTTP/1.1 204 No Content\r\n\r\n", End::Idle),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", End::Idle),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", End::Open),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", End::Idle),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nhost: a\r\nx: 1\r\n\r\n", End::Idle),
        ("HTTP/1.0 200 OK\r\n\r\nhello until the end", End::Open),
        ("HTTP/1.1 101 Switching Protocols\r\nupgrade: echo\r\n\r\n\0\n", End::Switched),
    ];
    for (response, expected) in cases {
        assert_eq!(end(response, false), Ok(expected), "{response:?}");
    }
    let alike = "content-length-hint: 0\r\nx-content-length: 0\r\ntransfer-encodings: chunked\r\nx-transfer-encoding: chunked";
    let sized = format!("HTTP/1.1 200 OK\r\n{alike}\r\nCONTENT-LENGTH:5 \r\n{alike}\r\n\r\nhello");
    assert_eq!(end(&sized, false), Ok(End::Idle), "other fields may have names like these");
    assert_eq!(end(sized.trim_end_matches('o'), false), Ok(End::Open));
    assert_eq!(end("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", true), Ok(End::Idle));
    assert_eq!(end("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", true), Ok(End::Idle));
}

#[test]
fn a_body_that_looks_like_a_101_does_not_switch() {
    let body = "HTTP/1.1 101 Switching Protocols\r\n\r\n";
    let sized = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    assert_eq!(end(&sized, false), Ok(End::Idle));
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    assert_eq!(end(&chunked, false), Ok(End::Idle));
    assert_eq!(end(&format!("HTTP/1.0 200 OK\r\n\r\n{body}"), false), Ok(End::Open));
}

#[test]
fn bytes_that_answer_no_request_are_an_error() {
    assert_eq!(end("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 101 x\r\n\r\n", false), Err(Lost));
    assert_eq!(end("nonsense\r\n\r\n", false), Err(Lost));
}
