//! Faults of real connections, and the machine's own clock, over both transports. No test waits for a time to be over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use semel_client::{
    CallError, Cancellation, ClientCommand, ClientOptions, CommandClient, CommandClientBuilder,
    CommandOutcome, MemoryJournal, StopReason,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, Service};

/// Listens, and hands each connection to the function with the head of its request, whose body is `{}`.
async fn serving<F>(serve: impl Fn(TcpStream, String) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = Vec::new();
            while !read.ends_with(b"\r\n\r\n{}") {
                if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            tokio::spawn(serve(stream, String::from_utf8(read).unwrap()));
        }
    });
    origin
}

/// Listens, and answers each request with these bytes.
async fn answering(answer: &'static str) -> String {
    serving(move |mut stream, _| async move {
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await
}

fn once() -> ClientOptions {
    let mut options = ClientOptions::default();
    options.attempts = 1;
    options
}

/// Returns clients over both transports.
fn clients(builder: impl Fn() -> CommandClientBuilder) -> [CommandClient; 2] {
    let hyper = Client::builder(TokioExecutor::new()).build_http();
    let no_proxy = reqwest::Client::builder().no_proxy();
    [builder().http(no_proxy).build().unwrap(), builder().layer().unwrap().layer(hyper)]
}

fn pay(origin: &str) -> ClientCommand {
    ClientCommand::post(format!("{origin}/payments")).body("{}")
}

#[track_caller]
fn last_reason(ended: &Result<CommandOutcome, CallError>) -> &'static str {
    match ended {
        Ok(CommandOutcome::Unresolved { last: Some(last), .. }) => last.reason.as_str(),
        other => panic!("unexpected: {other:?}"),
    }
}

#[tokio::test]
async fn a_chunked_answer_without_its_last_chunk_is_lost() {
    let origin = answering("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    for client in clients(|| CommandClient::builder([&origin]).options(once())) {
        assert_eq!(last_reason(&client.send(pay(&origin)).await), "lost");
    }
}

#[tokio::test]
async fn an_interim_response_is_not_the_answer() {
    let answer =
        "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";
    let origin = answering(answer).await;
    for client in clients(|| CommandClient::builder([&origin]).options(once())) {
        let ended = client.send(pay(&origin)).await.unwrap();
        let CommandOutcome::Final { response, .. } = ended else { panic!("{ended:?}") };
        assert_eq!((response.status().as_u16(), &*response.text()), (201, "ok"));
    }
}

#[tokio::test]
async fn an_encoded_body_is_left_as_it_was_sent() {
    let answer = "HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x0bx";
    let origin = answering(answer).await;
    for client in clients(|| CommandClient::builder([&origin]).options(once())) {
        let ended = client.send(pay(&origin)).await.unwrap();
        let CommandOutcome::Final { response, .. } = ended else { panic!("{ended:?}") };
        assert_eq!(response.body(), &Bytes::from_static(b"\x1f\x0bx"));
    }
}

#[tokio::test]
async fn a_chunked_answer_over_its_bound_is_not_read_on() {
    let answer =
        "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nhello\r\n0\r\n\r\n";
    let origin = answering(answer).await;
    let options = || {
        let mut options = once();
        options.response_bound = 9;
        options
    };
    for client in clients(|| CommandClient::builder([&origin]).options(options())) {
        assert_eq!(last_reason(&client.send(pay(&origin)).await), "too_large");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_times_out() {
    let open = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&open);
    let origin = serving(move |stream, _| {
        kept.lock().unwrap().push(stream);
        async {}
    })
    .await;
    let options = || {
        let mut options = once();
        options.attempt_timeout = Duration::from_millis(50);
        options
    };
    for client in clients(|| CommandClient::builder([&origin]).options(options())) {
        assert!(matches!(last_reason(&client.send(pay(&origin)).await), "timeout"));
    }
}

#[tokio::test]
async fn a_cancellation_ends_an_attempt_that_is_under_way() {
    let cancellation = Arc::new(Mutex::new(Cancellation::new()));
    let shared = Arc::clone(&cancellation);
    // The request has arrived: the call is cancelled, and the connection stays open.
    let origin = serving(move |stream, _| {
        shared.lock().unwrap().cancel();
        async move {
            let _open = stream;
            std::future::pending::<()>().await;
        }
    })
    .await;
    for client in clients(|| CommandClient::builder([&origin])) {
        let signal = Cancellation::new();
        *cancellation.lock().unwrap() = signal.clone();
        let ended = client.send(pay(&origin).cancellation(signal)).await;
        let Ok(CommandOutcome::Unresolved { stopped, attempts, .. }) = ended else { panic!("{ended:?}") };
        assert_eq!((stopped, attempts), (StopReason::Cancelled, 1));
    }
}

#[tokio::test]
async fn a_call_whose_future_is_dropped_stays_in_the_journal() {
    let arrived = Arc::new(tokio::sync::Notify::new());
    let notify = Arc::clone(&arrived);
    let origin = serving(move |stream, _| {
        notify.notify_one();
        async move {
            let _open = stream;
            std::future::pending::<()>().await;
        }
    })
    .await;
    for client in clients(|| CommandClient::builder([&origin]).journal(MemoryJournal::new())) {
        tokio::select! {
            ended = client.send(pay(&origin).intent("invoice 4711")) => panic!("{ended:?}"),
            () = arrived.notified() => {}
        }
        assert_eq!(client.pending().await.unwrap()[0].intent, "invoice 4711");
    }
}

#[tokio::test]
async fn clones_and_services_of_one_layer_share_the_retry_budget() {
    let origin = answering("HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n").await;
    let mut options = ClientOptions::default();
    (options.attempts, options.base) = (2, Duration::ZERO);
    let layer = CommandClient::builder([&origin]).options(options).layer().unwrap();
    let hyper = Client::builder(TokioExecutor::new()).build_http();
    let (first, second) = (layer.layer(hyper.clone()), layer.layer(hyper));
    for client in [first.clone(), first.clone(), second] {
        let ended = client.send(pay(&origin)).await.unwrap();
        assert_eq!(ended.kind(), "unresolved");
    }
    assert_eq!(first.tokens(), 500 - 3 * 14);
}

#[tokio::test]
async fn a_client_is_a_service_for_requests_of_http() {
    let head = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&head);
    let origin = serving(move |mut stream, read| {
        *seen.lock().unwrap() = read;
        async move {
            let answer =
                "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nIdempotency-Operation-Id: op_1\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    for mut client in clients(|| CommandClient::builder([&origin])) {
        let request =
            Request::post(format!("{origin}/payments")).header("x-tenant", "t1").body("{}").unwrap();
        let ended = Service::call(&mut client, request).await.unwrap();
        assert_eq!(ended.kind(), "final");
        let head = head.lock().unwrap().to_lowercase();
        for field in ["x-tenant: t1\r\n", "idempotency-key: \"", "semel-deadline: ", "content-length: 2\r\n"]
        {
            assert!(head.contains(field), "{head}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_even_if_reqwest_was_told_to() {
    let origin = answering("HTTP/1.1 307 Elsewhere\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n").await;
    let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::limited(5));
    let client = CommandClient::builder([&origin]).http(http).build().unwrap();
    assert_eq!(client.send(pay(&origin)).await.map_err(|error| error.kind()).err(), Some("redirect"));
}

#[tokio::test]
async fn a_hook_that_panics_does_not_lose_the_outcome() {
    let origin = answering("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").await;
    for client in clients(|| CommandClient::builder([&origin]).on_attempt(|_| panic!("on purpose"))) {
        assert_eq!(client.send(pay(&origin)).await.unwrap().kind(), "final");
    }
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let setting = |builder: CommandClientBuilder| builder.layer().err().map(|error| error.setting());
    assert_eq!(setting(CommandClient::builder(["pay.example"])), Some("origins"));
    assert_eq!(setting(CommandClient::builder(["https://pay.example/v1"])), Some("origins"));
    let mut options = ClientOptions::default();
    options.attempts = 0;
    assert_eq!(setting(CommandClient::builder(["https://pay.example"]).options(options)), Some("attempts"));
}
