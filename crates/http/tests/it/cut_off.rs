//! HTTP/2 requests that break off, at every point and with every code: none of them is a command.

use semel_testkit::http2::{CODES, Peer, data, go_away, headers, reset};

use crate::lab::{Lab, pay};

/// A body, and a prefix of it that is valid JSON, too.
const WHOLE: &str = r#"[1][2]"#;
const PART: &str = "[1]";

/// Returns the head of a payment under this key.
fn head(key: &str, length: Option<usize>) -> Vec<u8> {
    let length = length.map(|length| length.to_string());
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "lab"),
        (":path", "/payments"),
        ("idempotency-key", key),
        ("x-user", "alice"),
        ("content-type", "application/json"),
    ];
    fields.extend(length.as_deref().map(|length| ("content-length", length)));
    headers(1, &fields, false)
}

/// Returns the sent frames of a body that breaks off: none, a part, or all without the end.
fn beginnings() -> [Vec<u8>; 3] {
    [Vec::new(), data(1, PART.as_bytes(), false), data(1, WHOLE.as_bytes(), false)]
}

/// Sends the beginning of a request, and its cut.
async fn send_cut(lab: &Lab, beginning: &[u8], cut: &[u8]) {
    let mut peer = Peer::connect(lab.address).await;
    // The handler reads the body before the cut comes.
    peer.send(beginning).await;
    peer.settle().await;
    peer.send(cut).await;
    peer.settle().await;
}

#[tokio::test]
async fn a_request_that_is_reset_before_its_end_is_no_command() {
    let lab = Lab::new().await;
    let mut sent = 0;
    for code in CODES {
        for length in [None, Some(WHOLE.len())] {
            for beginning in beginnings() {
                sent += 1;
                let key = format!("reset-before-its-end-{sent}");
                send_cut(&lab, &[head(&key, length), beginning].concat(), &reset(1, code)).await;
                let retry = pay(WHOLE).set("idempotency-key", &key).to(lab.address).await;
                assert_eq!((retry.status.as_u16(), retry.replayed()), (201, false), "{code} {length:?}");
                assert_eq!(lab.count(), sent, "the retry is the first that ran");
            }
        }
    }
}

#[tokio::test]
async fn a_request_whose_connection_ends_before_its_end_is_no_command() {
    let lab = Lab::new().await;
    let mut sent = 0;
    for beginning in beginnings() {
        for cut in [Vec::new(), go_away(0, 0), go_away(1, 0)] {
            sent += 1;
            let key = format!("connection-ended-first-{sent}");
            send_cut(&lab, &[head(&key, None), beginning.clone()].concat(), &cut).await;
            let retry = pay(WHOLE).set("idempotency-key", &key).to(lab.address).await;
            assert_eq!((retry.status.as_u16(), retry.replayed()), (201, false));
            assert_eq!(lab.count(), sent);
        }
    }
}

#[tokio::test]
async fn a_request_with_a_wrong_length_is_no_command() {
    let lab = Lab::new().await;
    for (number, length) in [WHOLE.len() - 1, WHOLE.len() + 1].into_iter().enumerate() {
        let key = format!("another-length-announced-{number}");
        let request = [head(&key, Some(length)), data(1, WHOLE.as_bytes(), true)].concat();
        send_cut(&lab, &request, &[]).await;
        let retry = pay(WHOLE).set("idempotency-key", &key).to(lab.address).await;
        assert_eq!((retry.status.as_u16(), retry.replayed(), lab.count()), (201, false, number + 1));
    }
}

#[tokio::test]
async fn a_request_that_was_ended_is_whole_in_every_form() {
    let lab = Lab::new().await;
    let sum = headers(1, &[("x-sum", "7")], true);
    let ends = [
        data(1, WHOLE.as_bytes(), true),
        [data(1, WHOLE.as_bytes(), false), data(1, b"", true)].concat(),
        [data(1, WHOLE.as_bytes(), false), sum].concat(),
        [data(1, PART.as_bytes(), false), data(1, b"[2]", true)].concat(),
    ];
    let mut sent = 0;
    for end in ends {
        for length in [None, Some(WHOLE.len())] {
            sent += 1;
            let key = format!("ended-in-one-of-its-forms-{sent}");
            let mut peer = Peer::connect(lab.address).await;
            peer.send(&[head(&key, length), end.clone()].concat()).await;
            assert!(peer.ends(1).await, "it is answered");
            let retry = pay(WHOLE).set("idempotency-key", &key).to(lab.address).await;
            assert!(retry.replayed(), "{retry:?}");
            assert_eq!(lab.count(), sent);
        }
    }
}

#[tokio::test]
async fn a_request_that_passes_and_is_reset_before_its_end_is_not_whole_for_its_handler() {
    let lab = Lab::new().await;
    let fields = [(":method", "PUT"), (":scheme", "http"), (":authority", "lab"), (":path", "/payments/1")];
    let head = headers(1, &fields, false);
    for code in CODES {
        send_cut(&lab, &[head.clone(), data(1, PART.as_bytes(), false)].concat(), &reset(1, code)).await;
    }
    let mut peer = Peer::connect(lab.address).await;
    peer.send(&[head, data(1, WHOLE.as_bytes(), true)].concat()).await;
    assert!(peer.ends(1).await, "it is answered");
    assert_eq!((lab.count(), lab.records().await), (1, 0), "only the last one was whole");
}
