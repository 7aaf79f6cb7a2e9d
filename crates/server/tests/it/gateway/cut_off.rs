//! Messages that break off, in both directions and both versions of HTTP: none is taken for a complete one.

use semel_testkit::http2::{CODES, NO_ERROR, Peer, REFUSED_STREAM, data, go_away, headers, reset};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::cut_off_lab::{CREATED, FrameUpstream, Step};
use super::lab::{Gateway, Site, lab, pay, problem};

/// A body, and a prefix of it that is valid JSON, too.
const WHOLE: &str = "[1][2]";
const PART: &str = "[1]";

/// Returns the head of a request, which is a command if it has a key.
fn head(method: &str, key: Option<&str>, length: Option<usize>) -> Vec<u8> {
    let length = length.map(|length| length.to_string());
    let mut fields = vec![
        (":method", method),
        (":scheme", "http"),
        (":authority", "lab"),
        (":path", "/payments"),
        ("content-type", "application/json"),
    ];
    fields.extend(key.map(|key| ("idempotency-key", key)));
    fields.extend(length.as_deref().map(|length| ("content-length", length)));
    headers(1, &fields, false)
}

/// Returns the sent frames of a body that breaks off: none, a part, or all without the end.
fn beginnings(stream: u32) -> [Vec<u8>; 3] {
    [Vec::new(), data(stream, PART.as_bytes(), false), data(stream, WHOLE.as_bytes(), false)]
}

/// Starts a gateway before an upstream that speaks HTTP/2.
async fn over_frames(site: &Site) -> (FrameUpstream, Gateway) {
    let upstream = FrameUpstream::start().await;
    let gateway = site.start(upstream.address, &["--upstream-protocol", "h2c"]);
    (upstream, gateway)
}

/// Returns the head of an answer, with this length if one is announced.
fn created(stream: u32, length: Option<usize>) -> Vec<u8> {
    let length = length.map(|length| length.to_string());
    let mut fields = vec![CREATED];
    fields.extend(length.as_deref().map(|length| ("content-length", length)));
    headers(stream, &fields, false)
}

#[tokio::test]
async fn a_request_that_is_reset_before_its_end_is_not_carried_out() {
    let (site, upstream, gateway) = lab(&[]).await;
    let mut sent = 0;
    for code in CODES {
        for length in [None, Some(WHOLE.len())] {
            for beginning in beginnings(1) {
                let key = format!("reset-before-its-end-{sent}");
                let mut peer = Peer::connect(gateway.address).await;
                peer.send(&[head("POST", Some(&key), length), beginning].concat()).await;
                peer.settle().await;
                peer.send(&reset(1, code)).await;
                peer.settle().await;
                let retry = gateway.send(pay(WHOLE).set("idempotency-key", &key)).await;
                assert_eq!((retry.status.as_u16(), retry.replayed()), (201, false), "{code} {length:?}");
                sent += 1;
                assert_eq!(upstream.seen(), sent, "the retry is the first that was sent");
            }
        }
    }
    assert_eq!(site.states(), vec!["succeeded"; sent]);
}

#[tokio::test]
async fn a_response_that_is_cut_off_leaves_an_unknown() {
    let site = Site::new();
    let (mut upstream, gateway) = over_frames(&site).await;
    let mut number = 0;
    for code in CODES {
        for length in [None, Some(WHOLE.len())] {
            for point in 0..3 {
                number += 1;
                let request = || pay("{}").set("idempotency-key", format!("cut-off-response-{number}"));
                upstream.answer(
                    move |id| [created(id, length), beginnings(id)[point].clone(), reset(id, code)].concat(),
                    false,
                );
                let first = gateway.send(request()).await.problem();
                assert_eq!(first, problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"), "{code} {length:?} {point}");
                assert_eq!(gateway.send(request()).await.problem().0, 409, "{code} {length:?} {point}");
                assert_eq!(upstream.count(), 1);
            }
        }
    }
    assert_eq!(site.states(), vec!["unknown"; number]);
}

#[tokio::test]
async fn a_response_whose_connection_ends_first_leaves_an_unknown() {
    let site = Site::new();
    let (mut upstream, gateway) = over_frames(&site).await;
    let mut number = 0;
    for point in 0..3 {
        for last in [None, Some(0), Some(1)] {
            number += 1;
            let request = || pay("{}").set("idempotency-key", format!("connection-ends-first-{number}"));
            let farewell = last.map_or(Vec::new(), |last| go_away(last, NO_ERROR));
            upstream.answer(
                move |id| [created(id, None), beginnings(id)[point].clone(), farewell].concat(),
                true,
            );
            let first = gateway.send(request()).await.problem();
            assert_eq!(first, problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"), "{point} {last:?}");
            assert_eq!(gateway.send(request()).await.problem().0, 409);
            assert_eq!(upstream.count(), 1);
        }
    }
}

#[tokio::test]
async fn a_reset_before_the_response_is_unknown_unless_the_stream_was_refused() {
    let site = Site::new();
    let (mut upstream, gateway) = over_frames(&site).await;
    for code in CODES {
        let request = || pay("{}").set("idempotency-key", format!("reset-before-the-response-{code}"));
        upstream.answer(move |id| reset(id, code), false);
        let first = gateway.send(request()).await.problem();
        let again = gateway.send(request()).await;
        if code == REFUSED_STREAM {
            assert_eq!(first, problem(502, "UPSTREAM_UNREACHABLE"));
            assert_eq!((again.status.as_u16(), upstream.count()), (201, 2), "it may run now");
        } else {
            assert_eq!(first, problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"), "{code}");
            assert_eq!((again.problem().0, upstream.count()), (409, 1), "{code}");
        }
    }
}

#[tokio::test]
async fn a_response_that_was_ended_is_whole_in_every_form() {
    let site = Site::new();
    let (mut upstream, gateway) = over_frames(&site).await;
    let ends: [fn(u32) -> Vec<u8>; 4] = [
        |id| data(id, WHOLE.as_bytes(), true),
        |id| [data(id, WHOLE.as_bytes(), false), data(id, b"", true)].concat(),
        |id| [data(id, WHOLE.as_bytes(), false), headers(id, &[("x-sum", "7")], true)].concat(),
        |id| [data(id, PART.as_bytes(), false), data(id, b"[2]", true)].concat(),
    ];
    let mut number = 0;
    for end in ends {
        for length in [None, Some(WHOLE.len())] {
            for reset_after in [false, true] {
                number += 1;
                let request = || pay("{}").set("idempotency-key", format!("whole-in-every-form-{number}"));
                upstream.answer(
                    move |id| {
                        let after = if reset_after { reset(id, NO_ERROR) } else { Vec::new() };
                        [created(id, length), end(id), after].concat()
                    },
                    false,
                );
                let first = gateway.send(request()).await;
                assert_eq!((first.status.as_u16(), &first.body[..]), (201, WHOLE.as_bytes()));
                let again = gateway.send(request()).await;
                assert!(again.replayed() && again.body == first.body, "{again:?}");
                assert_eq!(upstream.count(), 1);
            }
        }
    }
    upstream.answer(|id| headers(id, &[CREATED], true), false);
    assert_eq!(gateway.send(pay("{}")).await.status, 201);
    assert!(gateway.send(pay("{}")).await.replayed());
}

#[tokio::test]
async fn a_response_with_a_wrong_length_leaves_an_unknown() {
    let site = Site::new();
    let (upstream, gateway) = over_frames(&site).await;
    for (number, length) in [WHOLE.len() - 1, WHOLE.len() + 1].into_iter().enumerate() {
        let request = || pay("{}").set("idempotency-key", format!("another-length-announced-{number}"));
        upstream
            .answer(move |id| [created(id, Some(length)), data(id, WHOLE.as_bytes(), true)].concat(), false);
        let first = gateway.send(request()).await.problem();
        assert_eq!(first, problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"), "{length}");
        assert_eq!(gateway.send(request()).await.problem().0, 409, "{length}");
    }
}

#[tokio::test]
async fn a_cut_request_that_is_passed_on_is_reset_at_the_upstream() {
    let site = Site::new();
    let (mut upstream, gateway) = over_frames(&site).await;
    for code in CODES {
        for length in [None, Some(WHOLE.len())] {
            for beginning in beginnings(1) {
                let mut peer = Peer::connect(gateway.address).await;
                peer.send(&[head("PUT", None, length), beginning].concat()).await;
                assert_eq!(upstream.step().await, Step::Begun);
                peer.send(&reset(1, code)).await;
                let ended = upstream.step().await;
                assert!(matches!(ended, Step::Reset(1..)), "{code} {length:?}: {ended:?}");
            }
        }
    }
}

/// Returns everything that an HTTP/1 upstream gets on the next connection. `cut` runs after the head.
async fn received(listener: &TcpListener, cut: impl Future<Output = ()>) -> String {
    let (mut stream, _) = listener.accept().await.expect("it is called");
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut bytes).await.expect("there is a head"), 0);
    }
    cut.await;
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).expect("tests send text")
}

#[tokio::test]
async fn a_cut_request_that_is_passed_on_over_http1_is_not_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let site = Site::new();
    let gateway = site.start(listener.local_addr().expect("it is bound"), &[]);
    for code in [NO_ERROR, 8] {
        for length in [None, Some(WHOLE.len())] {
            for (point, beginning) in beginnings(1).into_iter().enumerate().skip(1) {
                let mut peer = Peer::connect(gateway.address).await;
                peer.send(&[head("PUT", None, length), beginning].concat()).await;
                let request = received(&listener, async { peer.send(&reset(1, code)).await }).await;
                let (head, body) = request.split_once("\r\n\r\n").unwrap_or((&request, ""));
                let is_whole = match length {
                    None => body.ends_with("0\r\n\r\n"),
                    Some(length) => head.contains("content-length") && body.len() >= length,
                };
                assert!(!is_whole, "{code} {length:?} {point}: {request}");
            }
        }
    }
}

#[tokio::test]
async fn a_cut_response_that_is_passed_on_is_not_ended() {
    let site = Site::new();
    let (upstream, gateway) = over_frames(&site).await;
    for code in CODES {
        for length in [None, Some(WHOLE.len())] {
            for point in 0..3 {
                let script =
                    move |id| [created(id, length), beginnings(id)[point].clone(), reset(id, code)].concat();
                upstream.answer(script, false);
                let mut peer = Peer::connect(gateway.address).await;
                let fields =
                    [(":method", "GET"), (":scheme", "http"), (":authority", "lab"), (":path", "/payments")];
                peer.send(&headers(1, &fields, true)).await;
                assert!(!peer.ends(1).await, "{code} {length:?} {point}: it was ended for the client");

                upstream.answer(script, false);
                let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
                let get = "GET /payments HTTP/1.1\r\nhost: lab\r\nconnection: close\r\n\r\n";
                client.write_all(get.as_bytes()).await.expect("it is sent");
                let mut answer = Vec::new();
                let _ = client.read_to_end(&mut answer).await;
                let answer = String::from_utf8(answer).expect("it is text");
                let (_, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
                let is_whole = match length {
                    None => body.ends_with("0\r\n\r\n"),
                    Some(length) => body.len() >= length,
                };
                assert!(!is_whole, "{code} {length:?} {point}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn a_request_over_http1_that_breaks_off_is_not_carried_out() {
    let (site, upstream, gateway) = lab(&[]).await;
    let head = "POST /payments HTTP/1.1\r\nhost: lab\r\nidempotency-key: broken-off-over-http1\r\n\
                content-type: application/json\r\n";
    for rest in [
        format!("content-length: {}\r\n\r\n{PART}", WHOLE.len()),
        format!("transfer-encoding: chunked\r\n\r\n3\r\n{PART}\r\n"),
        format!("transfer-encoding: chunked\r\n\r\n3\r\n{PART}\r\n0\r\n"),
    ] {
        let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
        client.write_all(format!("{head}{rest}").as_bytes()).await.expect("it is sent");
        client.shutdown().await.expect("nothing more comes");
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert_eq!((upstream.seen(), site.states().len()), (0, 0), "{rest}");
    }
}

/// Starts an HTTP/1 upstream that answers every request with these bytes, and ends the connection.
async fn saying(answer: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn a_response_over_http1_needs_its_length_or_its_last_chunk() {
    for answer in [
        "HTTP/1.1 201 Created\r\ncontent-length: 6\r\n\r\n[1]",
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1]\r\n",
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1]\r\n0\r\n",
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n",
    ] {
        let site = Site::new();
        let gateway = site.start(saying(answer).await, &[]);
        assert_eq!(gateway.send(pay("{}")).await.problem(), problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        assert_eq!(gateway.send(pay("{}")).await.problem().0, 409, "{answer}");
    }
}

#[tokio::test]
async fn a_response_that_ends_with_its_connection_is_passed_on_and_not_stored() {
    for head in [
        "HTTP/1.1 201 Created\r\nlocation: /p/1\r\n\r\n[1]",
        "HTTP/1.0 201 Created\r\nlocation: /p/1\r\n\r\n[1]",
    ] {
        let site = Site::new();
        let gateway = site.start(saying(head).await, &[]);
        let first = gateway.send(pay("{}")).await;
        assert_eq!((first.status.as_u16(), &first.body[..]), (201, &b"[1]"[..]));
        let again = gateway.send(pay("{}")).await;
        assert!(again.replayed(), "it is not carried out again");
        assert_eq!(again.header("location"), Some("/p/1"));
        assert_eq!(again.json()["code"], "IDEMPOTENCY_RESPONSE_NOT_RETAINED");
        assert_eq!(site.states(), ["succeeded"]);
    }
}
