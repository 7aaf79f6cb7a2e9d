"""What the clients do beside the decision: bodies, hooks, logs, cancellation, threads."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import ManualClock
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from semel import (
    Accepted,
    AsyncClient,
    AttemptEvent,
    BodyNotReplayable,
    Cancellation,
    Client,
    FileJournal,
    Final,
    MemoryJournal,
    NotExecuted,
    Options,
    Unknown,
    Unresolved,
)

ORIGIN = "https://pay.example"
URL = f"{ORIGIN}/payments"
MARK = {"Idempotency-Operation-Id": "op_1"}
KEY = "a-very-secret-key-4711"


class Server:
    """Answers from memory; a status below 100 is a lost answer."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        status = self._statuses.pop(0) if self._statuses else 201
        if status < 100:
            raise httpx.ReadError("lost")
        return httpx.Response(status, headers=MARK if status < 500 else {})

    def http(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self))

    def async_http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self))


def client(server: Server, **arguments: Any) -> Client:
    return Client([ORIGIN], http=server.http(), clock=ManualClock(1_800_000_000_000), **arguments)


def async_client(server: Server, **arguments: Any) -> AsyncClient:
    return AsyncClient([ORIGIN], http=server.async_http(), clock=ManualClock(1_800_000_000_000), **arguments)


def chunks() -> Iterator[bytes]:
    yield b"one"
    yield b"two"


async def async_chunks() -> AsyncIterator[bytes]:
    yield b"one"
    yield b"two"


def test_a_stream_is_refused_and_nothing_is_sent() -> None:
    server = Server()
    for stream in (chunks(), io.BytesIO(b"onetwo")):
        with pytest.raises(BodyNotReplayable):
            client(server).send("POST", URL, content=stream)
    with pytest.raises(BodyNotReplayable):
        asyncio.run(async_client(server).send("POST", URL, content=async_chunks()))
    assert server.requests == []


def test_a_stream_that_may_be_buffered_is_sent_twice_with_the_same_bytes() -> None:
    server = Server(0)
    assert isinstance(client(server).send("POST", URL, content=chunks(), buffer=True), Final)
    assert isinstance(asyncio.run(async_client(server).send("POST", URL, content=async_chunks(), buffer=True)), Final)
    assert [request.read() for request in server.requests] == [b"onetwo"] * 3
    assert all(request.headers["Content-Length"] == "6" for request in server.requests)
    assert not any("Transfer-Encoding" in request.headers for request in server.requests)


def test_a_stream_over_its_bound_is_refused_and_nothing_is_sent() -> None:
    server = Server()
    options = Options(request_bound=5)
    with pytest.raises(BodyNotReplayable, match="larger"):
        client(server, options=options).send("POST", URL, content=chunks(), buffer=True)
    with pytest.raises(BodyNotReplayable, match="larger"):
        asyncio.run(async_client(server, options=options).send("POST", URL, content=async_chunks(), buffer=True))
    assert server.requests == []


def test_forms_queries_and_base_addresses_are_those_of_httpx() -> None:
    server = Server()
    http = httpx.Client(transport=httpx.MockTransport(server), base_url=ORIGIN, headers={"X-Tenant": "t1"})
    Client([ORIGIN], http=http).send("POST", "/payments", data={"a": "1"}, params={"b": "2"})
    (request,) = server.requests
    assert str(request.url) == f"{URL}?b=2"
    assert request.read() == b"a=1"
    assert request.headers["X-Tenant"] == "t1"
    assert "Idempotency-Key" in request.headers


def test_a_redirect_is_not_followed_even_if_httpx_would() -> None:
    server = Server()

    def redirect(request: httpx.Request) -> httpx.Response:
        server.requests.append(request)
        return httpx.Response(307, headers={**MARK, "Location": "/elsewhere"})

    http = httpx.Client(transport=httpx.MockTransport(redirect), follow_redirects=True)
    assert isinstance(Client([ORIGIN], http=http).send("POST", URL, json={}), Final)
    assert len(server.requests) == 1


def test_a_hook_that_fails_loses_no_outcome(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: AttemptEvent) -> None:
        raise RuntimeError("hook")

    assert isinstance(client(Server(0), on_attempt=fail).send("POST", URL, json={}), Final)
    assert "hook failed" in caplog.text


def test_no_log_and_no_hook_has_the_key(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    events: list[AttemptEvent] = []
    journal = FileJournal(tmp_path / "journal")
    caplog.set_level(logging.DEBUG)
    with caplog.at_level(logging.DEBUG):
        calls = client(Server(0, 503, 0, 0), on_attempt=events.append, journal=journal, options=Options(attempts=3))
        outcome = calls.send("POST", URL, json={}, key=KEY, intent="invoice 4711")
    assert isinstance(outcome, Unresolved)
    assert outcome.key == KEY
    assert len(events) == 3
    shown = caplog.text + repr(events) + repr(outcome) + repr(calls.pending())
    assert KEY not in shown
    assert "invoice" not in caplog.text
    journal.close()


def test_spans_have_attempts_and_the_outcome_and_no_key() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    client(Server(0, 503)).send("POST", URL, json={}, key=KEY)
    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["semel.outcome"] == "final"
    assert span.attributes["semel.attempts"] == 3
    reasons = [event.attributes["semel.reason"] for event in span.events if event.attributes]
    assert reasons == ["first", "lost", "answer"]
    assert KEY not in span.to_json()


def test_without_opentelemetry_everything_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> None:
        raise ImportError("absent")

    monkeypatch.setattr("importlib.import_module", absent)
    assert isinstance(client(Server(0)).send("POST", URL, json={}), Final)


def test_a_cancellation_from_another_thread_ends_a_wait() -> None:
    server = Server(0)
    cancellation = Cancellation()
    waits = Client(
        [ORIGIN],
        http=server.http(),
        options=Options(base=3600, cap=3600, deadline=10_000),
        random=lambda: 0.9,
        on_attempt=lambda _: threading.Timer(0.05, cancellation.cancel).start(),
    )
    outcome = waits.send("POST", URL, json={}, cancellation=cancellation)
    assert isinstance(outcome, Unresolved)
    assert outcome.stopped == "cancelled"
    assert len(server.requests) == 1


@pytest.mark.parametrize("error", [RuntimeError("closed"), httpx.InvalidURL("too long"), OverflowError(), KeyError()])
def test_no_error_of_an_exchange_loses_the_key(error: Exception) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise error

    options = Options(attempts=2)
    transport, clock = httpx.MockTransport(fail), ManualClock(0)
    calls = Client([ORIGIN], http=httpx.Client(transport=transport), clock=clock, options=options)
    async_calls = AsyncClient([ORIGIN], http=httpx.AsyncClient(transport=transport), clock=clock, options=options)
    for outcome in (
        calls.send("POST", URL, json={}, key=KEY),
        asyncio.run(async_calls.send("POST", URL, json={}, key=KEY)),
    ):
        assert isinstance(outcome, Unresolved)
        assert outcome.key == KEY
        assert outcome.last is not None
        assert outcome.last.reason == "lost"


def test_a_transport_that_is_closed_while_a_call_waits_leaves_it_unresolved() -> None:
    http = Server(0).http()

    def close(event: AttemptEvent) -> None:
        if event.number == 2:
            http.close()

    calls = Client([ORIGIN], http=http, clock=ManualClock(0), options=Options(attempts=3), on_attempt=close)
    assert isinstance(calls.send("POST", URL, json={}), Unresolved)


def test_an_operation_whose_address_is_too_long_to_ask_for_its_result_is_unknown() -> None:
    address = f"{ORIGIN}/" + "o" * (65_536 - len(ORIGIN) - 4)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"state": "succeeded"})
        problem = {"type": "urn:semel:problem:idempotency-outcome-unknown", "code": "IDEMPOTENCY_OUTCOME_UNKNOWN"}
        return httpx.Response(409, json={**problem, "operationId": "op_1", "operationUrl": address})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    assert isinstance(Client([ORIGIN], http=http, clock=ManualClock(0)).send("POST", URL, json={}), Unknown)


@pytest.mark.parametrize("method", ["start_span", "add_event", "set_attribute", "end"])
def test_a_tracer_that_fails_loses_no_outcome(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Tracer:
        def __getattr__(self, name: str) -> Callable[..., Tracer]:
            def act(*_: object, **__: object) -> Tracer:
                if name == method:
                    raise RuntimeError("tracer")
                return self

            return act

    monkeypatch.setattr("semel._telemetry._tracer", Tracer)
    events: list[AttemptEvent] = []
    assert isinstance(client(Server(0), on_attempt=events.append).send("POST", URL, json={}), Final)
    assert len(events) == 2
    assert "the tracer failed" in caplog.text


def test_polls_ask_for_no_compressed_answer_and_callers_may() -> None:
    asked: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.headers["Accept-Encoding"]))
        if request.method == "GET":
            return httpx.Response(404)
        problem = {"type": "urn:semel:problem:idempotency-outcome-unknown", "code": "IDEMPOTENCY_OUTCOME_UNKNOWN"}
        return httpx.Response(409, json={**problem, "operationId": "op_1"})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    calls = Client([ORIGIN], http=http, clock=ManualClock(0))
    calls.send("POST", URL, json={})
    calls.send("POST", URL, json={}, headers={"Accept-Encoding": "zstd"})
    http.headers["Accept-Encoding"] = "br"
    calls.send("POST", URL, json={})
    wanted = ("identity", "zstd", "br")
    assert asked == [(method, encoding) for encoding in wanted for method in ("POST", "GET")]


def refuse(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


def test_not_executed_says_where_and_why() -> None:
    http = httpx.Client(transport=httpx.MockTransport(refuse))
    calls = Client([ORIGIN], http=http, clock=ManualClock(0), options=Options(attempts=2))
    with pytest.raises(NotExecuted) as raised:
        calls.send("POST", URL, json={}, key=KEY)
    assert str(raised.value) == (
        "no attempt of this call ran the command: stopped by attempts after 2 attempts at https://pay.example:443, "
        "the last one ended by connect"
    )
    assert isinstance(raised.value.__cause__, httpx.ConnectError)
    too_many = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(429)))
    busy = Client([ORIGIN], http=too_many, clock=ManualClock(0), options=Options(attempts=1))
    with pytest.raises(NotExecuted, match="the last one ended by answer") as raised:
        busy.send("POST", URL, json={})
    assert raised.value.__cause__ is None
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(NotExecuted, match=r"after 0 attempts at https://pay\.example:443$"):
        busy.send("POST", URL, json={}, cancellation=cancellation)


def test_handles_of_operations_have_the_key_and_do_not_show_it() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.content == b"1":
            return httpx.Response(202, headers={**MARK, "Location": "/.well-known/semel/operations/op_1"})
        problem = {"type": "urn:semel:problem:idempotency-outcome-unknown", "code": "IDEMPOTENCY_OUTCOME_UNKNOWN"}
        elsewhere = {"operationId": "op_1", "operationUrl": "https://evil.example/op_1"}
        return httpx.Response(409, json={**problem, **elsewhere})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    calls = Client([ORIGIN], http=http, clock=ManualClock(0), options=Options(on_accepted="return"))
    for content, kind in (("1", Accepted), ("2", Unknown)):
        outcome = calls.send("POST", URL, content=content, key=KEY)
        assert isinstance(outcome, kind)
        assert isinstance(outcome, (Accepted, Unknown))
        assert outcome.key == KEY
        assert KEY not in repr(outcome)


def test_entries_are_too_old_an_hour_before_the_server_forgets_them() -> None:
    assert Options().max_age == 23 * 60 * 60


def hanging(arrived: asyncio.Event) -> Callable[[httpx.Request], Any]:
    async def answer(_: httpx.Request) -> httpx.Response:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets the event")

    return answer


def test_a_cancellation_ends_an_attempt_of_the_event_loop() -> None:
    async def run() -> None:
        arrived, cancellation = asyncio.Event(), Cancellation()
        http = httpx.AsyncClient(transport=httpx.MockTransport(hanging(arrived)))
        call = asyncio.ensure_future(
            AsyncClient([ORIGIN], http=http).send("POST", URL, json={}, cancellation=cancellation)
        )
        await arrived.wait()
        cancellation.cancel()
        outcome = await call
        assert isinstance(outcome, Unresolved)
        assert outcome.stopped == "cancelled"

    asyncio.run(run())


def test_a_cancellation_ends_a_wait_of_the_event_loop() -> None:
    async def run() -> None:
        cancellation = Cancellation()
        patient = AsyncClient(
            [ORIGIN],
            http=Server(0).async_http(),
            options=Options(base=3600, cap=3600, deadline=10_000),
            random=lambda: 0.9,
            on_attempt=lambda _: threading.Timer(0.05, cancellation.cancel).start(),
        )
        outcome = await patient.send("POST", URL, json={}, cancellation=cancellation)
        assert isinstance(outcome, Unresolved)
        assert outcome.stopped == "cancelled"

    asyncio.run(run())


def test_a_cancelled_task_leaves_its_journal_entry() -> None:
    async def run() -> None:
        arrived, journal = asyncio.Event(), MemoryJournal()
        http = httpx.AsyncClient(transport=httpx.MockTransport(hanging(arrived)))
        call = asyncio.ensure_future(
            AsyncClient([ORIGIN], http=http, journal=journal).send("POST", URL, json={}, intent="invoice 4711")
        )
        await arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert [entry.intent for entry in journal.pending()] == ["invoice 4711"]

    asyncio.run(run())


def test_threads_share_one_budget() -> None:
    shared = client(Server(*[503] * 400), options=Options(budget_tokens=140, budget_return=0, attempts=50))
    outcomes: list[object] = []

    def send() -> None:
        outcomes.append(shared.send("POST", URL, json={}))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 8
    assert shared.tokens == 0


def test_calls_of_one_event_loop_run_side_by_side() -> None:
    async def run() -> None:
        both, waiting = asyncio.Event(), 0

        async def answer(_: httpx.Request) -> httpx.Response:
            nonlocal waiting
            waiting += 1
            if waiting == 2:
                both.set()
            await both.wait()
            return httpx.Response(201, headers=MARK)

        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        calls = AsyncClient([ORIGIN], http=http)
        outcomes = await asyncio.gather(*(calls.send("POST", URL, json={}) for _ in range(2)))
        assert all(isinstance(outcome, Final) for outcome in outcomes)

    asyncio.run(run())


@pytest.mark.parametrize(
    "arguments",
    [
        {"attempts": 0},
        {"deadline": 0},
        {"deadline": 10_000_000},
        {"cap": float("inf")},
        {"attempt_timeout": -1},
        {"base": -0.1},
        {"base": float("nan")},
        {"budget_tokens": -1},
        {"response_bound": 0},
        {"on_accepted": "wait"},
    ],
)
def test_options_out_of_their_range_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Options(**arguments)


@pytest.mark.parametrize("origin", ["pay.example", "ftp://pay.example", "", "https://", "//pay.example"])
def test_an_origin_has_a_scheme_and_a_host(origin: str) -> None:
    with pytest.raises(ValueError, match="no origin"):
        Client([origin])


def test_origins_are_a_collection() -> None:
    with pytest.raises(ValueError, match="collection"):
        Client(ORIGIN)


def test_origins_have_one_form() -> None:
    server = Server()
    calls = Client(["HTTPS://Pay.Example:443/"], http=server.http())
    calls.send("POST", "https://pay.EXAMPLE/payments", json={})
    assert "Idempotency-Key" in server.requests[0].headers


def test_clients_close_what_they_opened() -> None:
    with Client([ORIGIN]) as opened:
        pass
    assert opened._http.is_closed
    given = Server().http()
    with Client([ORIGIN], http=given):
        pass
    assert not given.is_closed
