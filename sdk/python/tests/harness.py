"""What the tests inject: a clock that does not wait, and transports that record requests and make faults."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from scripted_server import ITEM_FIELD, ScriptedServer

from semel import Cancellation
from semel._clock import CancelledSignal


class ManualClock:
    """Clock whose waits return at once."""

    def __init__(self, wall: int) -> None:
        self._wall = wall
        self._monotonic = 5_000
        self._lock = threading.Lock()
        self.waits: list[int] = []
        self.cancel_in_wait: int | None = None

    def wall(self) -> int:
        with self._lock:
            return self._wall

    def monotonic(self) -> int:
        with self._lock:
            return self._monotonic

    def advance(self, milliseconds: int) -> None:
        with self._lock:
            self._wall += milliseconds
            self._monotonic += milliseconds

    def jump(self, milliseconds: int) -> None:
        with self._lock:
            self._wall += milliseconds

    def sleep(self, milliseconds: int, cancellation: Cancellation) -> None:
        self.waits.append(milliseconds)
        if len(self.waits) == self.cancel_in_wait:
            cancellation.cancel()
        else:
            self.advance(milliseconds)

    async def sleep_async(self, milliseconds: int, cancellation: Cancellation) -> None:
        self.sleep(milliseconds, cancellation)

    async def expire_async(self, milliseconds: int, cancellation: Cancellation) -> None:
        # Attempts do not expire by themselves: the script says which do.
        async with CancelledSignal(cancellation) as signal:
            await signal.wait()


@dataclass(frozen=True)
class Sent:
    """Request that was handed to the transport."""

    method: str
    authority: str
    target: str
    headers: httpx.Headers
    body: bytes
    item: int


def chained(error: httpx.HTTPError, cause: BaseException) -> httpx.HTTPError:
    """Returns an error with its cause, as httpx raises it."""
    error.__cause__ = cause
    return error


def fault_error(fault: str) -> httpx.HTTPError | None:
    """Returns the error of httpx for a fault that a server on loopback cannot make."""
    refused = ConnectionRefusedError(111, "Connection refused")
    certificate = ssl.SSLCertVerificationError(1, "certificate verify failed")
    unknown, later = (
        socket.gaierror(socket.EAI_NONAME, "no such name"),
        socket.gaierror(socket.EAI_AGAIN, "try again"),
    )
    match fault:
        case "refuse":
            return chained(httpx.ConnectError("refused"), refused)
        case "connect_timeout":
            return httpx.ConnectTimeout("timed out")
        case "temporary_name":
            return chained(httpx.ConnectError("name"), later)
        case "unknown_host":
            return chained(httpx.ConnectError("name"), unknown)
        case "certificate":
            return chained(httpx.ConnectError("certificate"), certificate)
        case "hang":
            return httpx.ReadTimeout("timed out")
        case _:
            return None


@dataclass
class Script:
    """Items of a call that are left, and the requests that were made."""

    server: ScriptedServer
    clock: ManualClock
    items: list[dict[str, Any]] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    cancellation: Cancellation = field(default_factory=Cancellation)
    surplus: int = 0

    def begin(self, request: httpx.Request, body: bytes) -> httpx.Request:
        """Records a request; returns it for the server, or raises the fault of its item."""
        if not self.items:
            self.surplus += 1
            raise chained(httpx.ConnectError("the script is over"), socket.gaierror(socket.EAI_NONAME, "over"))
        item = self.items.pop(0)
        number = self.server.add(item)
        authority, target = request.url.netloc.decode(), request.url.raw_path.decode()
        self.sent.append(Sent(request.method, authority, target, request.headers.copy(), body, number))
        fault = item.get("fault", "")
        error = fault_error(fault)
        if error is not None:
            if fault in ("hang", "connect_timeout"):
                self.clock.advance(round(request.extensions["timeout"]["connect"] * 1000))
            self.clock.advance(item.get("elapse", 0))
            self.clock.jump(item.get("jump", 0))
            raise error
        if fault == "cancel":
            self.cancellation.cancel()
        request.headers[ITEM_FIELD] = str(number)
        # The server answers at once, but a busy machine may need more than what is left of the deadline.
        request.extensions = {**request.extensions, "timeout": httpx.Timeout(60).as_dict()}
        return request


class ScriptedTransport(httpx.BaseTransport):
    """Transport for threads around the real one."""

    def __init__(self, script: Callable[[], Script]) -> None:
        self._script = script
        self._real = httpx.HTTPTransport(verify=False, trust_env=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._real.handle_request(self._script().begin(request, request.read()))

    def close(self) -> None:
        self._real.close()


class AsyncScriptedTransport(httpx.AsyncBaseTransport):
    """Transport for asyncio around the real one."""

    def __init__(self, script: Callable[[], Script]) -> None:
        self._script = script
        self._real = httpx.AsyncHTTPTransport(verify=False, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._real.handle_async_request(self._script().begin(request, await request.aread()))

    async def aclose(self) -> None:
        await self._real.aclose()
