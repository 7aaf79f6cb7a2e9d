//! Every refused request, with its refusal.

use std::collections::HashSet;

use semel_core::policy::Profile;

use super::{MAX_HEAD, Outcome, outcome};
use crate::guard::refusal::GuardRefusal;

/// Invalid heads by refusal.
const HEADS: &[(GuardRefusal, &str)] = &[
    (GuardRefusal::BareLineFeed, "GET / HTTP/1.1\nHost: a\n\n"),
    (GuardRefusal::BareLineFeed, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\nY: 2\r\n\r\n"),
    (GuardRefusal::BareLineFeed, "GET / HTTP/1.1\r\nHost: a\r\n\n"),
    (GuardRefusal::BareLineFeed, "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::BareCarriageReturn, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\rY: 2\r\n\r\n"),
    (GuardRefusal::BareCarriageReturn, "GET / HTTP/1.1\rHost: a\r\n\r\n"),
    (GuardRefusal::BareCarriageReturn, "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n"),
    (GuardRefusal::BareCarriageReturn, "GET / HTTP/1.1\r\nHost: a\r\n\r\r\n\r\n"),
    (GuardRefusal::ControlByte, "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"),
    (GuardRefusal::ControlByte, "GET / HTTP/1.1\r\nHost: a\r\nX: a\x0bb\r\n\r\n"),
    (GuardRefusal::ControlByte, "GET / HTTP/1.1\r\nHost: a\r\nX: a\x7fb\r\n\r\n"),
    (GuardRefusal::ControlByte, "GET / HTTP/1.1\r\nHost: a\r\nX\0: a\r\n\r\n"),
    (GuardRefusal::ControlByte, "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::LeadingLines, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::RequestLine, "GET /\r\nHost: a\r\n\r\n"),
    (GuardRefusal::RequestLine, "GET\r\nHost: a\r\n\r\n"),
    (GuardRefusal::RequestLine, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::RequestLine, " GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::RequestLine, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
    (GuardRefusal::RequestLine, "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::RequestLine, "GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Method, "GE(T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Method, "G\u{c9}T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Method, "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Connect, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"),
    (GuardRefusal::Connect, "CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Version, "GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Version, "GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Version, "GET / HTTP/0.9\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Version, "GET / http/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Version, "GET / HTTP/1.10\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Version, "GET / HTTP/01.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::Version, "PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n"),
    (GuardRefusal::TargetByte, "GET /caf\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetByte, "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetFragment, "GET /#top HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetFragment, "GET http://a/#top HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetForm, "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetForm, "GET index.html HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetForm, "GET ?q HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetForm, "GET @a/x://b HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetForm, "GET ** HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetAsterisk, "GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetScheme, "GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetScheme, "GET file:///etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetScheme, "GET ://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetUserinfo, "GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n"),
    (GuardRefusal::TargetUserinfo, "GET http://a:p@b/ HTTP/1.1\r\nHost: b\r\n\r\n"),
    (GuardRefusal::TargetAuthority, "GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetAuthority, "GET http://a:b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::TargetAuthority, "GET http://a,b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::ForeignAuthority, "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::ForeignAuthority, "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (GuardRefusal::ForeignAuthority, "GET http://a/ HTTP/1.0\r\nHost: b\r\n\r\n"),
    (GuardRefusal::ForeignAuthority, "GET http://[::1]/ HTTP/1.1\r\nHost: [::2]\r\n\r\n"),
    (GuardRefusal::ForeignAuthority, "GET http://a?@b HTTP/1.1\r\nHost: b\r\n\r\n"),
    (GuardRefusal::HostMissing, "GET / HTTP/1.1\r\n\r\n"),
    (GuardRefusal::HostMissing, "GET http://a/ HTTP/1.1\r\nX: 1\r\n\r\n"),
    (GuardRefusal::HostRepeated, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    (GuardRefusal::HostRepeated, "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"),
    (GuardRefusal::HostRepeated, "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: a:+80\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    (GuardRefusal::HostInvalid, "GET / HTTP/1.1\r\nHost: caf\u{e9}\r\n\r\n"),
    (GuardRefusal::ObsoleteFold, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n"),
    (GuardRefusal::ObsoleteFold, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n\tContent-Length: 5\r\n\r\n"),
    (GuardRefusal::ObsoleteFold, "GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    (GuardRefusal::ObsoleteFold, "GET / HTTP/1.1\r\nHost: a\r\n \r\n\r\n"),
    (GuardRefusal::ColonMissing, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length 5\r\n\r\n"),
    (GuardRefusal::ColonMissing, "GET / HTTP/1.1\r\nHost: a\r\nGET /admin HTTP/1.1\r\n\r\n"),
    (GuardRefusal::SpaceBeforeColon, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello"),
    (
        GuardRefusal::SpaceBeforeColon,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    ),
    (GuardRefusal::FieldName, "GET / HTTP/1.1\r\nHost: a\r\n: 5\r\n\r\n"),
    (GuardRefusal::FieldName, "GET / HTTP/1.1\r\nHost: a\r\nX Y: 5\r\n\r\n"),
    (GuardRefusal::FieldName, "GET / HTTP/1.1\r\nHost: a\r\n\"X\": 5\r\n\r\n"),
    (GuardRefusal::FieldName, "GET / HTTP/1.1\r\nHost: a\r\nContent\u{2010}Length: 5\r\n\r\n"),
    (
        GuardRefusal::LengthWithCoding,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    (
        GuardRefusal::LengthWithCoding,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
    ),
    (
        GuardRefusal::LengthRepeated,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    ),
    (
        GuardRefusal::LengthRepeated,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\ncontent-length: 6\r\n\r\nhello",
    ),
    (GuardRefusal::LengthRepeated, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello"),
    (GuardRefusal::LengthRepeated, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5,\r\n\r\nhello"),
    (GuardRefusal::LengthInvalid, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 05\r\n\r\nhello"),
    (GuardRefusal::LengthInvalid, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello"),
    (GuardRefusal::LengthInvalid, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello"),
    (GuardRefusal::LengthInvalid, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello"),
    (GuardRefusal::LengthInvalid, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\nhello"),
    (GuardRefusal::LengthInvalid, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nhello"),
    (GuardRefusal::LengthInvalid, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \u{665}\r\n\r\nhello"),
    (
        GuardRefusal::LengthTooLarge,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n",
    ),
    (
        GuardRefusal::LengthTooLarge,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\n",
    ),
    (
        GuardRefusal::CodingRepeated,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    (
        GuardRefusal::CodingRepeated,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
    ),
    (GuardRefusal::CodingUnsupported, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"),
    (
        GuardRefusal::CodingUnsupported,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ),
    (
        GuardRefusal::CodingUnsupported,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
    ),
    (
        GuardRefusal::CodingUnsupported,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
    ),
    (GuardRefusal::CodingUnsupported, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n"),
    (GuardRefusal::CodingUnsupported, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n"),
    (GuardRefusal::CodingUnsupported, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n"),
    (GuardRefusal::CodingUnsupported, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n"),
    (
        GuardRefusal::CodingBeforeItsTime,
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        GuardRefusal::CodingBeforeItsTime,
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
    ),
];

/// Invalid bodies after a head with `Transfer-Encoding: chunked`, by refusal.
const CHUNKS: &[(GuardRefusal, &str)] = &[
    (GuardRefusal::ChunkSize, "\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSize, "x\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSize, "0x5\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSize, "+5\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSize, "-1\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSize, " 5\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSize, "5 \r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSize, "5 5\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSize, ";a=b\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSizeTooLarge, "00000000000000005\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSizeTooLarge, "10000000000000005\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSizeTooLarge, "ffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ChunkSizeTooLarge, "8000000000000000\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::BareLineFeed, "5\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::BareLineFeed, "5;a\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::BareLineFeed, "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::BareLineFeed, "5\r\nhello\r\n0\r\nX: 1\n\r\n"),
    (GuardRefusal::BareLineFeed, "5\r\nhello\r\n0\r\n\n"),
    (GuardRefusal::BareCarriageReturn, "5\rX\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::BareCarriageReturn, "5;a\rb\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::BareCarriageReturn, "5\r\nhello\r\n0\r\nX: 1\r2\r\n\r\n"),
    (GuardRefusal::ControlByte, "5;a=\0\r\nhello\r\n0\r\n\r\n"),
    (GuardRefusal::ControlByte, "5\r\nhello\r\n0\r\nX: \x08\r\n\r\n"),
    (GuardRefusal::ChunkEnd, "5\r\nhello0\r\n\r\n"),
    (GuardRefusal::ChunkEnd, "5\r\nhello\n0\r\n\r\n"),
    (GuardRefusal::ChunkEnd, "5\r\nhello\rX0\r\n\r\n"),
    (GuardRefusal::ChunkEnd, "5\r\nhello world\r\n0\r\n\r\n"),
    (GuardRefusal::TrailerForbidden, "5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n"),
    (GuardRefusal::TrailerForbidden, "5\r\nhello\r\n0\r\nX: 1\r\ntransfer-encoding: chunked\r\n\r\n"),
    (GuardRefusal::TrailerForbidden, "5\r\nhello\r\n0\r\nHOST: b\r\n\r\n"),
    (GuardRefusal::ObsoleteFold, "5\r\nhello\r\n0\r\nX: 1\r\n 2\r\n\r\n"),
    (GuardRefusal::ColonMissing, "5\r\nhello\r\n0\r\nGET / HTTP/1.1\r\n\r\n"),
    (GuardRefusal::SpaceBeforeColon, "5\r\nhello\r\n0\r\nX : 1\r\n\r\n"),
    (GuardRefusal::FieldName, "5\r\nhello\r\n0\r\n: 1\r\n\r\n"),
];

/// Valid request.
const GOOD: &str = "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
/// Head of a request with a chunked body.
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Returns the cases that are too long to write out.
fn long_cases() -> Vec<(GuardRefusal, String)> {
    let fields = |count: usize| "X: 1\r\n".repeat(count);
    vec![
        (
            GuardRefusal::HeadTooLarge,
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD)),
        ),
        (GuardRefusal::HeadTooLarge, format!("GET /{}", "x".repeat(MAX_HEAD))),
        (GuardRefusal::HeadTooLarge, format!("{CHUNKED}0\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD))),
        (GuardRefusal::TooManyFields, format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(128))),
        (GuardRefusal::TooManyFields, format!("{CHUNKED}0\r\n{}\r\n", fields(129))),
        (
            GuardRefusal::ChunkExtensionTooLong,
            format!("{CHUNKED}5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(256)),
        ),
        (GuardRefusal::ChunkExtensionTooLong, format!("{CHUNKED}5;{}", "x".repeat(500))),
    ]
}

#[test]
fn every_bad_head_is_refused_for_its_own_reason_and_not_a_byte_of_it_passes() {
    for (refusal, head) in HEADS {
        let expected = Outcome { heads: 0, passed: 0, refusal: Some(*refusal) };
        assert_eq!(outcome(head.as_bytes()), expected, "{head:?}");
    }
}

#[test]
fn a_bad_head_after_good_requests_on_a_connection_is_refused() {
    for (refusal, head) in HEADS {
        let expected = Outcome { heads: 2, passed: 2 * GOOD.len(), refusal: Some(*refusal) };
        assert_eq!(outcome(format!("{GOOD}{GOOD}{head}").as_bytes()), expected, "{head:?}");
    }
}

#[test]
fn every_bad_chunk_is_refused_and_its_request_never_completes() {
    for (refusal, chunks) in CHUNKS {
        let found = outcome(format!("{CHUNKED}{chunks}").as_bytes());
        assert_eq!((found.heads, found.refusal), (1, Some(*refusal)), "{chunks:?}");
        assert!(found.passed < CHUNKED.len() + chunks.len(), "{chunks:?}");
    }
}

#[test]
fn heads_and_chunks_over_a_limit_are_refused() {
    for (refusal, bytes) in long_cases() {
        assert_eq!(outcome(bytes.as_bytes()).refusal, Some(refusal), "{:?}", &bytes[..60]);
    }
}

#[test]
fn a_second_preface_is_a_bad_request() {
    let bytes = format!("{GOOD}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(outcome(bytes.as_bytes()).refusal, Some(GuardRefusal::Version));
}

#[test]
fn a_refusal_is_a_whole_response_with_a_problem_document() {
    let long = long_cases();
    let cases = HEADS.iter().chain(CHUNKS).map(|(refusal, _)| *refusal);
    let refusals: HashSet<_> = cases.chain(long.iter().map(|(refusal, _)| *refusal)).collect();
    assert_eq!(refusals.len(), 37, "every refusal but the timeout has a case here");
    for refusal in refusals.into_iter().chain([GuardRefusal::HeadTimeout]) {
        let response = refusal.response(false, Profile::Ietf);
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        let status = match refusal {
            GuardRefusal::HeadTooLarge | GuardRefusal::TooManyFields => 431,
            GuardRefusal::HeadTimeout => 408,
            _ => 400,
        };
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.contains("\r\nConnection: close"), "{head}");
        let advice = if refusal == GuardRefusal::HeadTimeout { "same-key" } else { "never" };
        assert!(head.contains(&format!("\r\nidempotency-retry: {advice}\r\n")), "{head}");
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{head}");
        let document: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(document["status"], status);
        assert_eq!(document["detail"], refusal.to_string());
        if status == 400 {
            assert_eq!(document["type"], "urn:semel:problem:malformed-request");
            assert_eq!(document["code"], "MALFORMED_REQUEST");
        }
    }
}

#[test]
fn a_refusal_in_stripes_profile_has_stripes_envelope() {
    let response = GuardRefusal::HeadTooLarge.response(false, Profile::Stripe);
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
    let document: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(document["error"]["type"], "invalid_request_error");
    assert_eq!(document["error"]["message"], GuardRefusal::HeadTooLarge.to_string());
}
