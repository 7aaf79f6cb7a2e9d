"""Faults of real connections, as both clients see them."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
import trustme

from semel import (
    AsyncClient,
    CertificateRefused,
    Client,
    Final,
    NotExecuted,
    Options,
    Outcome,
    UnknownHost,
    Unresolved,
)

ONCE = Options(attempts=1)
Send = Callable[[str, Options], Outcome]


def send_in_thread(origin: str, options: Options) -> Outcome:
    with httpx.Client(trust_env=False) as http:
        return Client([origin], http=http, options=options).send("POST", f"{origin}/payments", json={})


def send_in_loop(origin: str, options: Options) -> Outcome:
    async def send() -> Outcome:
        async with httpx.AsyncClient(trust_env=False) as http:
            return await AsyncClient([origin], http=http, options=options).send("POST", f"{origin}/payments", json={})

    return asyncio.run(send())


BOTH = pytest.mark.parametrize("send", [send_in_thread, send_in_loop])


@contextmanager
def listening(serve: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serves the first connection; yields the authority."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        try:
            connection, _ = listener.accept()
            with connection:
                serve(context.wrap_socket(connection, server_side=True) if context else connection)
        except OSError:
            return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        thread.join()


def read_request(connection: socket.socket) -> None:
    """Reads a request whose body is `{}`."""
    read = b""
    while not read.endswith(b"\r\n\r\n{}"):
        read += connection.recv(65536) or b"\r\n\r\n{}"


@BOTH
def test_a_closed_port_has_run_nothing(send: Send) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NotExecuted) as raised:
        send(f"http://127.0.0.1:{port}", ONCE)
    assert raised.value.last is not None
    assert raised.value.last.reason == "connect"


@BOTH
def test_a_certificate_that_is_not_trusted_is_refused(send: Send) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with listening(lambda connection: None, context) as authority, pytest.raises(CertificateRefused):
        send(f"https://{authority}", ONCE)


@BOTH
@pytest.mark.parametrize(
    ("number", "error", "reason"),
    [(socket.EAI_NONAME, UnknownHost, None), (socket.EAI_AGAIN, NotExecuted, "name")],
)
def test_names_are_unknown_or_cannot_be_resolved_now(
    send: Send, number: int, error: type[Exception], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(number, "as scripted")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(error) as raised:
        send("http://pay.example", ONCE)
    if isinstance(raised.value, NotExecuted) and raised.value.last:
        assert raised.value.last.reason == reason


@BOTH
@pytest.mark.parametrize(
    "handled", [ssl.SSLCertVerificationError(1, "refused"), socket.gaierror(socket.EAI_NONAME, "no such name")]
)
def test_an_error_that_the_caller_handles_is_no_cause_of_a_lost_answer(send: Send, handled: OSError) -> None:
    with listening(read_request) as authority:
        try:
            raise handled
        except OSError:
            outcome = send(f"http://{authority}", ONCE)
    assert isinstance(outcome, Unresolved)
    assert outcome.last is not None
    assert outcome.last.reason == "lost"


@BOTH
def test_an_error_that_the_caller_handles_is_no_cause_of_a_closed_port(send: Send) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    try:
        raise ssl.SSLCertVerificationError(1, "refused")
    except OSError:
        with pytest.raises(NotExecuted):
            send(f"http://127.0.0.1:{port}", ONCE)


@pytest.mark.parametrize("error", [httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError])
def test_a_certificate_error_after_the_connection_was_made_is_a_lost_answer(error: type[httpx.HTTPError]) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise error("lost") from ssl.SSLCertVerificationError(1, "refused")

    http = httpx.Client(transport=httpx.MockTransport(answer))
    outcome = Client(["https://pay.example"], http=http, options=ONCE).send("POST", "https://pay.example/", json={})
    assert isinstance(outcome, Unresolved)


@BOTH
def test_a_server_that_never_answers_times_out(send: Send) -> None:
    released = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        released.wait(60)

    with listening(serve) as authority:
        outcome = send(f"http://{authority}", Options(attempts=1, attempt_timeout=0.2))
        released.set()
    assert isinstance(outcome, Unresolved)
    assert outcome.last is not None
    assert outcome.last.reason == "timeout"


@BOTH
def test_a_server_that_answers_in_drops_times_out_all_the_same(send: Send) -> None:
    released = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 1000000\r\n\r\n")
        while not released.wait(0.02):
            connection.sendall(b"x")

    with listening(serve) as authority:
        outcome = send(f"http://{authority}", Options(attempts=1, attempt_timeout=0.3))
        released.set()
    assert isinstance(outcome, Unresolved)
    assert outcome.last is not None
    assert outcome.last.reason == "timeout"


@BOTH
def test_a_compressed_answer_is_not_asked_for_and_not_decoded(send: Send) -> None:
    bomb = gzip.compress(b"x" * 1_000_000)
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        requests.append(connection.recv(65536))
        head = f"HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
        connection.sendall(head.encode() + bomb)

    with listening(serve) as authority:
        outcome = send(f"http://{authority}", Options(attempts=1, response_bound=len(bomb)))
    assert isinstance(outcome, Final)
    assert outcome.response.content == bomb
    assert b"\r\naccept-encoding: identity\r\n" in requests[0].lower()
    assert requests[0].lower().count(b"accept-encoding") == 1
    with listening(serve) as authority:
        outcome = send(f"http://{authority}", Options(attempts=1, response_bound=len(bomb) - 1))
    assert isinstance(outcome, Unresolved)
    assert outcome.stopped == "too_large"


@BOTH
def test_a_chunked_answer_without_its_last_chunk_is_lost(send: Send) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")

    with listening(serve) as authority:
        outcome = send(f"http://{authority}", ONCE)
    assert isinstance(outcome, Unresolved)
    assert outcome.last is not None
    assert outcome.last.reason == "lost"


@BOTH
def test_an_interim_response_is_not_the_answer(send: Send) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        connection.sendall(early + b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")

    with listening(serve) as authority:
        outcome = send(f"http://{authority}", ONCE)
    assert isinstance(outcome, Final)
    assert (outcome.response.status, outcome.response.text) == (201, "ok")


@BOTH
def test_no_library_below_logs_the_key(send: Send, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")

    with listening(serve) as authority:
        assert isinstance(send(f"http://{authority}", ONCE), Final)
    key = next(line for line in seen[0].split(b"\r\n") if line.lower().startswith(b"idempotency-key:"))
    assert "httpcore" in {record.name.partition(".")[0] for record in caplog.records}
    assert key.decode().split('"')[1] not in caplog.text
