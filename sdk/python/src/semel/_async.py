"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any

import httpx

from semel._call import AttemptHook, CallEnd, Sleep
from semel._client import ClientCore, Prepared
from semel._clock import Cancellation, Clock
from semel._command import Command, body_in_memory, read_stream_async
from semel._decide import AttemptResult
from semel._exchange import exchange_once_async
from semel._options import Options, Profile
from semel.journal import Journal, JournalEntry
from semel.outcome import Outcome


class AsyncClient:
    """Sends commands so that each happens at most once, to the origins that it names, without blocking the event loop.

    A task that is cancelled ends at once, with `asyncio.CancelledError`; a command with an intent stays in the journal.
    A `Cancellation` ends a call with an outcome.
    """

    def __init__(
        self,
        origins: Collection[str],
        profile: Profile = "semel",
        *,
        http: httpx.AsyncClient | None = None,
        options: Options | None = None,
        journal: Journal | None = None,
        caller: str = "",
        on_attempt: AttemptHook | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        """Makes a client. An `http` client that is given has to be closed by its owner, and so has the journal."""
        self._core = ClientCore(origins, profile, options, journal, caller, on_attempt, clock, random)
        self._owns_http = http is None
        self._http = http or httpx.AsyncClient()

    async def send(
        self,
        method: str,
        url: httpx.URL | str,
        *,
        json: Any = None,
        content: str | bytes | Iterable[bytes] | AsyncIterable[bytes] | None = None,
        data: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        intent: str | None = None,
        buffer: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Outcome:
        """Sends a command until its outcome is known, or the call has to stop.

        The key is drawn unless it is given. With an `intent`, the journal keeps the key before the first send. A stream
        as `content` is refused unless it may be read into memory, with `buffer=True`.
        """
        body = {"json": json, "content": content, "data": data}
        request = self._http.build_request(method, url, params=params, headers=headers, **body)
        command = await self._command(request, buffer)
        if intent is None:
            return await self._run(self._core.prepare(command, key, None, cancellation))
        # The journal waits for the disk.
        prepared = await asyncio.to_thread(self._core.prepare, command, key, intent, cancellation)
        return await self._run(prepared)

    async def resume(
        self,
        intent: str,
        method: str,
        url: httpx.URL | str,
        *,
        json: Any = None,
        content: str | bytes | Iterable[bytes] | AsyncIterable[bytes] | None = None,
        data: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        buffer: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Outcome:
        """Goes on with a command of the journal, with its key. The request must be the one that it was begun with."""
        body = {"json": json, "content": content, "data": data}
        request = self._http.build_request(method, url, params=params, headers=headers, **body)
        command = await self._command(request, buffer)
        prepared = await asyncio.to_thread(self._core.prepare_again, intent, command, cancellation)
        return await self._run(prepared)

    async def pending(self) -> list[JournalEntry]:
        """Returns the commands of the journal whose outcome is not known, the oldest first."""
        return await asyncio.to_thread(self._core.journal.pending)

    @property
    def tokens(self) -> int:
        """The tokens that are left in the retry budget."""
        return self._core.budget.tokens

    async def aclose(self) -> None:
        """Closes the connections that this client has opened itself."""
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _command(self, request: httpx.Request, buffer: bool) -> Command:
        body = body_in_memory(request, buffer)
        if body is None:
            body = await read_stream_async(request, self._core.options.request_bound)
        return Command.of(request, body)

    async def _run(self, prepared: Prepared) -> Outcome:
        end = await self._drive(prepared)
        if prepared.intent is not None:
            await asyncio.to_thread(self._core.clear_settled, prepared, end)
        return self._core.finish(prepared, end)

    async def _drive(self, prepared: Prepared) -> CallEnd:
        result: AttemptResult | None = None
        while True:
            try:
                step = prepared.steps.send(result)
            except StopIteration as stop:
                end: CallEnd = stop.value
                return end
            if isinstance(step, Sleep):
                await self._core.clock.sleep_async(step.milliseconds, prepared.cancellation)
                result = None
            else:
                bound = self._core.options.response_bound
                result = await exchange_once_async(self._http, step, bound, self._core.clock, prepared.cancellation)
