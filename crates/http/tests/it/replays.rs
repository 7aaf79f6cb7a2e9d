//! Replays are the stored response, to the byte.

use http::HeaderMap;

use crate::lab::{Lab, pay};

fn lines<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(|value| value.as_bytes()).collect()
}

#[tokio::test]
async fn a_replay_has_the_same_bytes_and_the_same_field_lines() {
    let lab = Lab::new().await;
    for what in ["", "binary"] {
        let key = format!("replay-of-the-bytes-{what}");
        let request = || pay("{\"a\":1}").set("idempotency-key", &key).doing(what);
        let first = lab.send(request()).await;
        let again = lab.send(request()).await;
        assert!(again.replayed());
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert_eq!(lines(&again.headers, "link"), [&b"</a>; rel=\"x, y\", </b>"[..], b"</c>"]);
        for name in first.headers.keys() {
            if !["date", "set-cookie"].contains(&name.as_str()) {
                assert_eq!(
                    lines(&again.headers, name.as_str()),
                    lines(&first.headers, name.as_str()),
                    "{name}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_replay_gives_no_cookie_and_is_not_to_be_cached() {
    let lab = Lab::new().await;
    lab.send(pay("{}")).await;
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.header("set-cookie"), None);
    assert_eq!(again.header("cache-control"), Some("no-store"));
    assert!(again.header("date").is_some());
}

#[tokio::test]
async fn a_replay_has_the_trailers_too() {
    let lab = Lab::new().await;
    for (replayed, http2) in [(false, false), (true, false), (true, true)] {
        let request = pay("{}").doing("trailers").with("te", "trailers");
        let reply = if http2 { request.over_http2(lab.address).await } else { request.to(lab.address).await };
        assert_eq!(reply.replayed(), replayed);
        let trailers = reply.trailers.expect("there are trailers");
        assert_eq!(trailers.get("grpc-status").map(|value| value.as_bytes()), Some(&b"0"[..]));
    }
}

#[tokio::test]
async fn a_replay_is_the_same_from_memory_and_from_the_store() {
    let lab = Lab::new().await;
    lab.send(pay("{}")).await;
    let from_memory = lab.send(pay("{}")).await;
    let (second, _) = lab.second(semel_core::Policy::default()).await;
    let mut from_store = pay("{}").to(second).await;
    from_store.headers.insert("date", from_memory.headers["date"].clone());
    assert_eq!((from_store.status, from_store.body), (from_memory.status, from_memory.body));
    assert_eq!(from_store.headers, from_memory.headers);
}
