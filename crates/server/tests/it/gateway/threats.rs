//! Attacks: for the rows of docs/src/explanation/threats-*.md without a test elsewhere.

use std::net::SocketAddr;

use http::HeaderMap;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::lab::{KEY, Reply, Send, Site, Upstream, lab, pay, problem};
use super::proxying::by_hand;

/// Identity settings: a proxy in front names the callers.
const NAMED: &str = "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
                     tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n";

/// Returns the request as this caller.
fn by(request: Send, tenant: &str, caller: &str) -> Send {
    request.with("x-tenant", tenant).with("x-caller", caller)
}

fn ask(target: impl Into<String>) -> Send {
    pay("").method("GET").target(target).without("idempotency-key")
}

fn id(reply: &Reply) -> String {
    reply.operation_id().expect("it is named").to_owned()
}

fn operation(id: &str) -> String {
    format!("/.well-known/semel/operations/{id}")
}

fn lines<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(|value| value.as_bytes()).collect()
}

/// Sends these bytes, and reads until the connection is closed.
async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(address).await.expect("it listens");
    client.write_all(bytes).await.expect("it is sent");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.expect("it is answered, and closed");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_foreign_operation_answers_like_one_that_is_not_there() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, NAMED, &["--wait", "0s", "--timeout", "60s"]);
    let alice = |request: Send| by(request, "acme", "alice");
    let done = id(&gateway.send(alice(pay("{}"))).await);
    let slow = pay("{}").set("idempotency-key", "one-that-still-runs-0001");
    let running = tokio::spawn(alice(slow.clone()).doing("gate").to(gateway.address));
    upstream.begun().await;
    upstream.begun().await;
    let busy = gateway.send(alice(slow.clone()).doing("gate")).await;
    let busy = busy.json()["operationId"].as_str().expect("its own caller is told").to_owned();

    for (tenant, caller) in [("globex", "alice"), ("acme", "bob")] {
        let shown = async |target: String| {
            let mut reply = gateway.send(by(ask(target), tenant, caller)).await;
            reply.headers.remove("date");
            reply.headers.remove("x-request-id");
            (reply.status, reply.headers, reply.body)
        };
        for suffix in ["", "/result"] {
            let absent = shown(operation("0190d1f0-7c5e-7000-8000-00000000ffff") + suffix).await;
            assert_eq!(absent.0, 404);
            for other in [&done, &busy, "nonsense"] {
                assert_eq!(shown(operation(other) + suffix).await, absent, "{other}{suffix}");
            }
        }
        // Under another caller's key a caller has its own command, whatever the state of the other.
        for taken in [pay("[]"), slow.clone().body("[]")] {
            let reply = gateway.send(by(taken, tenant, caller)).await;
            assert_eq!((reply.status.as_u16(), reply.replayed()), (201, false));
        }
    }
    upstream.open_gate();
    assert_eq!(running.await.expect("it is answered").status, 201);
}

#[tokio::test]
async fn a_reference_of_another_tenant_does_not_show() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let rule = "[[operation]]\nname = \"orders.create\"\nmatch = \"POST /orders\"\nbusiness_reference = \"/order\"\n";
    let gateway = site.start_with(upstream.address, &format!("{NAMED}{rule}"), &[]);
    let order = |key: &str, tenant: &str, caller: &str| {
        let request = pay(r#"{"order":"7"}"#).target("/orders");
        by(request.set("idempotency-key", format!("{key}-0123456789")), tenant, caller)
    };
    let first = gateway.send(order("first", "acme", "alice")).await;
    assert_eq!(first.status, 201);
    let elsewhere = gateway.send(order("second", "globex", "alice")).await;
    assert_eq!(elsewhere.status, 201, "another tenant has references of its own");
    let colleague = gateway.send(order("third", "acme", "bob")).await;
    assert_eq!(colleague.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"));
    assert_eq!(colleague.header("idempotency-operation-id"), None);
    assert!(colleague.json()["operationId"].is_null(), "a colleague is not told whose it is");
    let own = gateway.send(order("fourth", "acme", "alice")).await;
    assert_eq!(own.json()["operationId"], id(&first));
    assert_eq!(upstream.seen(), 2);
}

#[tokio::test]
async fn an_upstream_cannot_put_lines_into_a_replay() {
    let answer = |line: &str| format!("HTTP/1.1 201 Created\r\n{line}\r\ncontent-length: 2\r\n\r\nok");
    for line in ["x-note: a\rset-cookie: evil=1", "x-note: a\0b", "x-note: a\r\r\nset-cookie: evil=1"] {
        let answer = answer(line);
        let upstream = by_hand(move |_, _| Some(answer.clone().into_bytes())).await;
        let site = Site::new();
        let gateway = site.start(upstream, &[]);
        assert_eq!(gateway.send(pay("{}")).await.problem(), problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        assert_eq!(gateway.send(pay("{}")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    }
    // A header that is read as two lines is two lines, with a cookie for the first caller only.
    let split = answer("x-note: a\nset-cookie: evil=1");
    let trailing = "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, set-cookie\r\n\r\n\
                    2\r\nok\r\n0\r\nx-sum: 7\r\nset-cookie: evil=1\r\n\r\n";
    for answer in [split, trailing.to_owned()] {
        let upstream = by_hand(move |_, _| Some(answer.clone().into_bytes())).await;
        let site = Site::new();
        let gateway = site.start(upstream, &[]);
        assert_eq!(gateway.send(pay("{}")).await.status, 201);
        let request = pay("{}").with("te", "trailers").with("connection", "close, te").into_bytes();
        let again = raw(gateway.address, &request).await;
        assert!(
            again.starts_with("HTTP/1.1 201 ") && again.contains("idempotency-replayed: true"),
            "{again}"
        );
        assert!(!again.contains("evil"), "{again}");
    }
}

#[tokio::test]
async fn a_record_that_was_tampered_with_cannot_put_lines_into_a_replay() {
    let (site, upstream, gateway) = lab(&[]).await;
    let request = || pay("{}").with("x-note", "first--evil: 1");
    assert_eq!(gateway.send(request()).await.header("seen-x-note"), Some("first--evil: 1"));
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02X}")).collect::<String>();
    let (before, after) = (hex("first--evil: 1"), hex("first\r\nevil: 1"));
    let changed = if site.is_postgres() {
        format!("decode(replace(upper(encode(response, 'hex')), '{before}', '{after}'), 'hex')")
    } else {
        format!("unhex(replace(hex(response), '{before}', '{after}'))")
    };
    site.column(&format!("UPDATE semel_records SET response = {changed} RETURNING state"));
    // Another gateway, with an empty cache.
    let second = site.start(upstream.address, &[]);
    let again = second.send(request()).await;
    assert_eq!(again.problem(), problem(500, "IDEMPOTENCY_RESPONSE_UNREADABLE"));
    assert!(!again.headers.contains_key("evil"));
    assert_eq!(upstream.seen(), 1, "and it is not run again");
}

#[tokio::test]
async fn answers_of_the_gateway_forbid_shared_caching() {
    let upstream = by_hand(|_, _| {
        let for_caches = "cache-control: public, max-age=600\r\ncdn-cache-control: max-age=600\r\n\
                          surrogate-control: max-age=600\r\nexpires: Thu, 01 Jan 2099 00:00:00 GMT";
        Some(format!("HTTP/1.1 201 Created\r\n{for_caches}\r\ncontent-length: 2\r\n\r\nok").into_bytes())
    })
    .await;
    let site = Site::new();
    let gateway = site.start(upstream, &[]);
    let first = gateway.send(pay("{}")).await;
    let replay = gateway.send(pay("{}")).await;
    assert_eq!(
        lines(&replay.headers, "cache-control"),
        lines(&first.headers, "cache-control"),
        "its own word"
    );

    let page = operation(&id(&first));
    let result = gateway.send(ask(format!("{page}/result"))).await;
    assert_eq!(&result.body[..], b"ok");
    for name in ["cdn-cache-control", "surrogate-control", "expires"] {
        assert_eq!(result.header(name), None, "{name}");
    }
    let mismatch = gateway.send(pay("[]")).await;
    let absent = gateway.send(ask(operation("nonsense"))).await;
    for reply in [result, gateway.send(ask(page)).await, mismatch, absent] {
        assert_eq!(lines(&reply.headers, "cache-control"), [b"no-store"], "{reply:?}");
    }
}

#[tokio::test]
async fn a_stored_page_does_nothing_in_a_browser() {
    let upstream = by_hand(|_, _| {
        let head =
            "HTTP/1.1 201 Created\r\ncontent-type: text/html\r\ncontent-security-policy: default-src 'self'";
        Some(format!("{head}\r\ncontent-length: 25\r\n\r\n<script>alert(1)</script>").into_bytes())
    })
    .await;
    let site = Site::new();
    let gateway = site.start(upstream, &[]);
    let first = gateway.send(pay("{}")).await;
    let replay = gateway.send(pay("{}")).await;
    for reply in [&first, &replay] {
        assert_eq!(reply.header("content-type"), Some("text/html"));
        assert_eq!(
            lines(&reply.headers, "content-security-policy"),
            [b"default-src 'self'"],
            "as it was said"
        );
        assert_eq!(reply.header("x-content-type-options"), None);
    }
    let page = operation(&id(&first));
    let result = gateway.send(ask(format!("{page}/result"))).await;
    assert_eq!(result.body, first.body);
    let policies = lines(&result.headers, "content-security-policy");
    assert_eq!(policies, [&b"default-src 'self'"[..], b"default-src 'none'; sandbox"]);

    let described = gateway.send(ask("/.well-known/semel/problems/idempotency-outcome-unknown")).await;
    let own = [(result, "text/html"), (gateway.send(ask(page)).await, "application/json")];
    let told = [
        (gateway.send(pay("[]")).await, "application/problem+json"),
        (described, "text/plain; charset=utf-8"),
    ];
    for (reply, kind) in own.into_iter().chain(told) {
        assert_eq!(reply.header("content-type"), Some(kind));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
}

#[tokio::test]
async fn no_request_or_redirect_chooses_the_upstream() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let elsewhere = Upstream::start().await;
    let other = elsewhere.address;
    let (mut sent, mut accepted) = (0, 0);
    for method in ["GET", "POST"] {
        for (target, host, more) in [
            ("/payments".to_owned(), other.to_string(), String::new()),
            (format!("http://{other}/payments"), other.to_string(), String::new()),
            (format!("//{other}/payments"), "lab".to_owned(), String::new()),
            (
                "/payments".to_owned(),
                "lab".to_owned(),
                format!("X-Forwarded-Host: {other}\r\nForwarded: host={other}\r\n"),
            ),
            (
                format!("/http://{other}/payments"),
                "lab".to_owned(),
                format!("X-Forwarded-Server: {other}\r\n"),
            ),
        ] {
            sent += 1;
            let key = format!("chooses-its-upstream-{sent}");
            let request = format!(
                "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nIdempotency-Key: {key}\r\n\
                 {more}Content-Length: 0\r\n\r\n"
            );
            let answer = raw(gateway.address, request.as_bytes()).await;
            // A path with an empty segment has no normal form.
            let is_refused = target.starts_with('/') && target.contains("//");
            accepted += usize::from(!is_refused);
            let status = if is_refused { "400" } else { "201" };
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        }
    }
    let stream = TcpStream::connect(gateway.address).await.expect("it listens");
    let http2 = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = http2.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    let request = http::Request::get(format!("http://{other}/payments"));
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).expect("it is a request");
    assert_eq!(sender.send_request(request).await.expect("it is answered").status(), 201);
    assert_eq!((upstream.seen(), elsewhere.seen()), (accepted + 1, 0));

    // Nor does an answer.
    let redirecting = by_hand(move |_, _| {
        Some(format!("HTTP/1.1 307 X\r\nlocation: http://{other}/\r\ncontent-length: 0\r\n\r\n").into_bytes())
    })
    .await;
    let site = Site::new();
    let gateway = site.start(redirecting, &[]);
    assert_eq!(gateway.send(pay("{}")).await.status, 307);
    assert_eq!(gateway.send(ask("/")).await.status, 307);
    assert_eq!(elsewhere.seen(), 0);
}

/// Returns almost a mebibyte of gzip that unpacks to 160 MiB of zeros: one zero, then "repeat the last byte
/// 258 times".
fn bomb() -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let (mut bits, mut held) = (0_u32, 0);
    let mut put = |value: u32, count: u32| {
        bits |= value << held;
        held += count;
        while held >= 8 {
            out.push((bits & 0xff) as u8);
            bits >>= 8;
            held -= 8;
        }
    };
    put(0b011, 3); // the last block, with the fixed codes
    put(0b0000_1100, 8); // a zero: 00110000, the first bit first
    for _ in 0..640_000 {
        put(0b1010_0011, 8); // a length of 258: 11000101
        put(0, 5); // a distance of 1
    }
    put(0, 7); // the end
    put(0, 7);
    out
}

#[tokio::test]
async fn a_compression_bomb_is_stored_and_replayed_compressed() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let bomb = bomb();
    assert!(bomb.len() > 1_000_000 && bomb.len() < 1 << 20);
    let before = gateway.memory();
    let request = || pay("").body(bomb.clone()).with("content-encoding", "gzip");
    for replayed in [false, true] {
        let reply = gateway.send(request()).await;
        assert_eq!((reply.status.as_u16(), reply.replayed()), (201, replayed));
        assert!(reply.body.ends_with(&bomb), "as it came");
    }
    let after = gateway.memory();
    assert!(after < before + 64, "{before} MiB before, {after} MiB after a bomb of 160 MiB");
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn deep_and_wide_json_is_no_burden() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let rule = "[[operation]]\nname = \"orders.create\"\nmatch = \"POST /orders\"\n\
                business_reference = \"/order\"\nfingerprint_exclude = [\"/sentAt\", \"/a/a/a\"]\n";
    let gateway = site.start_with(upstream.address, rule, &[]);
    let members: String = (0..20_000).map(|number| format!("\"k{number}\":0,")).collect();
    let bodies = [
        "[".repeat(1_000_000),
        "{\"a\":".repeat(170_000),
        format!("{}{}", "[".repeat(500_000), "]".repeat(500_000)),
        format!("{{{members}\"order\":1}}"),
        format!("{{{}\"order\":2}}", "\"a\":0,".repeat(100_000)),
        format!("{{\"order\":3,\"n\":{}}}", "9".repeat(900_000)),
        format!("{{\"order\":4,\"n\":1e{}}}", "9".repeat(900_000)),
        format!("{{\"order\":5,\"s\":\"{}\"}}", "\\u0000".repeat(150_000)),
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        for target in ["/orders", "/payments"] {
            let key = format!("deep-and-wide-{number:06}");
            let request = || pay("").body(body.clone()).target(target).set("idempotency-key", &key);
            let first = gateway.send(request()).await;
            let again = gateway.send(request()).await;
            match first.status.as_u16() {
                201 => assert!(again.replayed(), "{number} {target}"),
                400 => assert_eq!(again.problem(), problem(400, "MALFORMED_REQUEST"), "{number} {target}"),
                other => panic!("{number} {target}: {other}"),
            }
        }
    }
    assert_eq!(gateway.send(pay("{}").set("idempotency-key", KEY)).await.status, 201, "it still works");
}

#[tokio::test]
async fn a_flood_of_http2_resets_does_not_block_other_clients() {
    let (site, upstream, gateway) = lab(&[]).await;
    let before = gateway.memory();
    for round in 0..5 {
        let stream = TcpStream::connect(gateway.address).await.expect("there is room");
        let (client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
        let connection = tokio::spawn(connection);
        for number in 0..1000 {
            let Ok(mut ready) = client.clone().ready().await else { break };
            let request = http::Request::post("http://lab/payments")
                .header("idempotency-key", format!("opened-and-reset-{round}-{number}"));
            let Ok((_, mut stream)) = ready.send_request(request.body(()).expect("it is one"), true) else {
                break;
            };
            // Without this, no byte would ever leave this process.
            tokio::task::yield_now().await;
            stream.send_reset(h2::Reason::CANCEL);
        }
        drop(client);
        let _ = connection.await;
    }
    assert_eq!(gateway.send(pay("{}")).await.status, 201, "others are served");
    // Begun commands complete without their client, once.
    while site.states().iter().any(|state| state == "processing") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let records = site.states().len();
    assert_eq!((records, upstream.effects()), (upstream.seen(), upstream.seen()));
    let after = gateway.memory();
    println!("5,000 resets: {records} commands were taken up, {before} MiB before, {after} MiB after");
    assert!(after < before + 100, "{before} MiB before, {after} MiB after");
}

#[tokio::test]
async fn requests_cannot_forge_log_lines() {
    for format in ["json", "text"] {
        let garbage =
            by_hand(|_, _| Some(b"HTTP/1.1 200 \x1b[31mforged\r\nx: \x1b[2J\nforged\x07\r\n\r\n".to_vec()));
        let (site, garbage) = (Site::new(), garbage.await);
        let gateway = site.start_with(garbage, NAMED, &["--log-format", format]);
        let quoted = "acme\" outcome=\"forged";
        let attempts = [
            by(pay("{}").target("/%0aforged%1b[2J?forged=%0d%0aforged"), "acme", "alice"),
            by(pay("{}").set("idempotency-key", "\"0123456789abcdef\\\" forged\""), "acme", "alice"),
            by(pay("{}").set("idempotency-key", "tab\tforged"), "acme", "alice"),
            by(pay("{}"), "acme\tforged", "alice"),
            by(pay("{}"), "acme\u{202e}forged", "alice"),
            by(pay("{}"), quoted, "alice"),
        ];
        for attempt in attempts {
            gateway.send(attempt).await;
        }
        for line in ["X-Tenant: a\x1b[2Jforged", "X-Tenant: a\x0bforged", "X-Tenant: a\rforged", "X: a\x00"] {
            let head = format!("POST / HTTP/1.1\r\nHost: lab\r\n{line}\r\nX-Caller: b\r\n\r\n");
            assert!(raw(gateway.address, head.as_bytes()).await.starts_with("HTTP/1.1 400 "), "{line:?}");
        }
        gateway.send(by(pay("{}"), "the-last-one", "alice")).await;
        gateway.logs("the-last-one").await;
        let log = gateway.log();
        assert!(!log.contains(['\x1b', '\x07', '\r', '\0', '\u{202e}']), "{log:?}");
        for line in log.lines() {
            let is_line = match format {
                "json" => serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line.is_object()),
                _ => line.split_once('T').is_some_and(|(date, _)| date.len() == 10 && date.starts_with("20")),
            };
            assert!(is_line, "{line:?}");
            // A name and a path are each one value in the log.
            let as_values = if format == "json" {
                [r#""tenant":"acme\" outcome=\"forged""#, r#""path":"/%0aforged%1b[2J""#]
            } else {
                [r#"tenant="acme\" outcome=\"forged""#, r#"path="/%0aforged%1b[2J""#]
            };
            let is_value = as_values.iter().any(|value| line.contains(value));
            assert_eq!(line.contains("forged"), is_value, "{line:?}");
        }
        assert!(log.contains("forged"), "it is there: {log}");
    }
}

#[tokio::test]
async fn clients_cannot_forge_headers_of_the_gateway() {
    let (_site, _upstream, gateway) = lab(&[]).await;
    let forged = [
        "semel-tenant",
        "semel_tenant",
        "semel-caller",
        "semel-operation-id",
        "semel_attempt",
        "idempotency-replayed",
    ];
    let with_all = |request: Send| forged.iter().fold(request, |request, name| request.with(name, "forged"));
    let key = |number: usize| format!("speaks-for-the-gateway-{number}");
    for (number, method) in ["GET", "PUT", "POST", "PATCH"].into_iter().enumerate() {
        for (http2, extra) in [(false, 0), (true, 10)] {
            let body = if method == "GET" { "" } else { "{}" };
            let request = with_all(pay(body).method(method).set("idempotency-key", key(number + extra)));
            let reply =
                if http2 { request.over_http2(gateway.address).await } else { gateway.send(request).await };
            assert_eq!(reply.status, 201);
            let seen = reply.headers.iter().filter(|(name, _)| name.as_str().starts_with("seen-"));
            let believed: Vec<_> = seen.filter(|(_, value)| value.as_bytes() == b"forged").collect();
            assert!(believed.is_empty(), "{method}: {believed:?}");
            let is_command = matches!(method, "POST" | "PATCH");
            assert_eq!(reply.header("seen-semel-tenant"), is_command.then_some("local"), "{method}");
        }
    }
}

#[tokio::test]
async fn names_with_quotes_or_sql_are_stored_and_found_verbatim() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let rule = "[[operation]]\nname = \"orders.create\"\nmatch = \"POST /payments\"\nbusiness_reference = \"/order\"\n";
    let gateway = site.start_with(upstream.address, &format!("{NAMED}{rule}"), &[]);
    let names =
        ["o'brien", "x'; DROP TABLE semel_records; --", "\\'", "\"x\"", "$1", "%s", "NULL", "?1", "a\\"];
    for (number, name) in names.into_iter().enumerate() {
        let body = serde_json::json!({ "order": name }).to_string();
        let request = || by(pay(&body).set("idempotency-key", format!("\"{KEY}'{number}; --\"")), name, name);
        let first = gateway.send(request()).await;
        assert_eq!(first.status, 201, "{name}");
        assert!(gateway.send(request()).await.replayed(), "{name}");
        let page = gateway.send(by(ask(operation(&id(&first))), name, name)).await;
        assert_eq!(page.json()["state"], "succeeded", "{name}");
        let listed = site.semel().args(["records", "list", "--json", "--tenant", name]).output();
        let listed: serde_json::Value =
            serde_json::from_slice(&listed.expect("the program runs").stdout).expect("it is JSON");
        assert_eq!((listed.as_array().map(Vec::len), &listed[0]["tenant"]), (Some(1), &name.into()));
    }
    let mut kept = site.column("SELECT reference FROM semel_references");
    kept.sort();
    let mut expected = names.map(str::to_owned);
    expected.sort();
    assert_eq!(kept, expected);
    assert_eq!(upstream.seen(), names.len());
}
