"""One exchange over httpx: a request is sent once, and ends in a whole response or a named fault.

No error leaves it, not even one of the program, such as a client that was closed in the meantime: the call would lose
what it knows of the attempts before.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator

import httpcore
import httpx

from semel._answer import Response
from semel._call import Exchange
from semel._clock import Cancellation, Clock
from semel._decide import AttemptResult, Fault

UNKNOWN_NAMES = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def request_of(exchange: Exchange) -> httpx.Request:
    """Returns the request, with the timeout of its attempt."""
    timeout = httpx.Timeout(exchange.timeout / 1000).as_dict()
    return httpx.Request(
        exchange.method,
        exchange.url,
        headers=exchange.headers,
        content=exchange.body or None,
        extensions={"timeout": timeout},
    )


def exchange_once(client: httpx.Client, exchange: Exchange, bound: int, clock: Clock) -> AttemptResult:
    """Sends a request once, and reads the answer whole."""
    began = clock.monotonic()
    try:
        answer = client.send(request_of(exchange), stream=True, follow_redirects=False)
    except Exception as error:  # noqa: BLE001
        return fault_of(error)
    try:
        body = Body(answer, bound)
        # A transport that has read the answer itself has decoded it as well.
        for chunk in answer.iter_bytes() if answer.is_stream_consumed else answer.iter_raw():
            if body.is_over(chunk):
                return Fault("too_large")
            # The timeouts of httpx are for each read: a slow server could stretch them without an end.
            if clock.monotonic() - began > exchange.timeout:
                return Fault("timeout")
        return body.response()
    except Exception as error:  # noqa: BLE001
        return fault_after_head(error)
    finally:
        # If the connection is lost now, the answer that was read stays as it is.
        with contextlib.suppress(Exception):
            answer.close()


async def exchange_once_async(
    client: httpx.AsyncClient, exchange: Exchange, bound: int, clock: Clock, cancellation: Cancellation
) -> AttemptResult:
    """Sends a request once, and reads the answer whole, until the timeout or the cancellation at most."""
    attempt = asyncio.ensure_future(_read_async(client, exchange, bound))
    timer = asyncio.ensure_future(clock.expire_async(exchange.timeout, cancellation))
    try:
        await asyncio.wait({attempt, timer}, return_when=asyncio.FIRST_COMPLETED)
        if attempt.done():
            return attempt.result()
        return Fault("lost" if cancellation.is_cancelled else "timeout")
    finally:
        for task in (attempt, timer):
            task.cancel()
        await asyncio.gather(attempt, timer, return_exceptions=True)


async def _read_async(client: httpx.AsyncClient, exchange: Exchange, bound: int) -> AttemptResult:
    try:
        answer = await client.send(request_of(exchange), stream=True, follow_redirects=False)
    except Exception as error:  # noqa: BLE001
        return fault_of(error)
    try:
        body = Body(answer, bound)
        async for chunk in answer.aiter_bytes() if answer.is_stream_consumed else answer.aiter_raw():
            if body.is_over(chunk):
                return Fault("too_large")
        return body.response()
    except Exception as error:  # noqa: BLE001
        return fault_after_head(error)
    finally:
        # If the connection is lost now, the answer that was read stays as it is.
        with contextlib.suppress(Exception):
            await answer.aclose()


class Body:
    """Body of an answer, as it was sent, while it is read up to its bound."""

    def __init__(self, answer: httpx.Response, bound: int) -> None:
        self._answer = answer
        self._bound = bound
        self._read = bytearray()

    def is_over(self, chunk: bytes) -> bool:
        """Adds a chunk; returns true if the body is larger than its bound."""
        if len(self._read) + len(chunk) > self._bound:
            return True
        self._read += chunk
        return False

    def response(self) -> Response:
        """Returns the whole response."""
        return Response(self._answer.status_code, self._answer.headers, bytes(self._read))


def fault_of(error: Exception) -> Fault:
    """Returns the fault of a request without an answer."""
    # Only these are raised before a byte of the request is sent.
    if isinstance(error, (httpx.ConnectError, httpx.ProxyError)):
        for cause in _causes(error):
            if isinstance(cause, ssl.SSLCertVerificationError):
                return Fault("certificate", error)
            if isinstance(cause, socket.gaierror):
                return Fault("unknown_host" if cause.errno in UNKNOWN_NAMES else "name", error)
        return Fault("connect", error)
    if isinstance(error, (httpx.ConnectTimeout, httpx.PoolTimeout)):
        return Fault("connect", error)
    return fault_after_head(error)


def fault_after_head(error: Exception) -> Fault:
    """Returns the fault of a request that was sent, at least in part."""
    is_timeout = isinstance(error, httpx.TimeoutException) or any(
        isinstance(cause, OSError) and cause.errno == errno.ETIMEDOUT for cause in _causes(error)
    )
    return Fault("timeout" if is_timeout else "lost", error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and what it was raised from.

    The context of an error leads out of the library, to an error that the caller is handling while it sends the
    command. Only of httpcore's `ConnectError` it is the cause, which its connection pool takes away.
    """
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        lacks_cause = current.__cause__ is None and isinstance(current, httpcore.ConnectError)
        current = current.__context__ if lacks_cause else current.__cause__
