"""The client for threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any

import httpx

from semel._call import AttemptHook, CallEnd, Sleep
from semel._client import ClientCore, Prepared
from semel._clock import Cancellation, Clock
from semel._command import Command, body_in_memory, read_stream
from semel._decide import AttemptResult
from semel._exchange import exchange_once
from semel._options import Options, Profile
from semel.journal import Journal, JournalEntry
from semel.outcome import Outcome


class Client:
    """Sends commands so that each happens at most once, to the origins that it names.

    It may be used by several threads. To any other origin it adds no key, and makes one attempt.
    """

    def __init__(
        self,
        origins: Collection[str],
        profile: Profile = "semel",
        *,
        http: httpx.Client | None = None,
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
        self._http = http or httpx.Client()

    def send(
        self,
        method: str,
        url: httpx.URL | str,
        *,
        json: Any = None,
        content: str | bytes | Iterable[bytes] | None = None,
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
        command = self._command(self._http.build_request(method, url, params=params, headers=headers, **body), buffer)
        return self._run(self._core.prepare(command, key, intent, cancellation))

    def resume(
        self,
        intent: str,
        method: str,
        url: httpx.URL | str,
        *,
        json: Any = None,
        content: str | bytes | Iterable[bytes] | None = None,
        data: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        buffer: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Outcome:
        """Goes on with a command of the journal, with its key. The request must be the one that it was begun with."""
        body = {"json": json, "content": content, "data": data}
        command = self._command(self._http.build_request(method, url, params=params, headers=headers, **body), buffer)
        return self._run(self._core.prepare_again(intent, command, cancellation))

    def pending(self) -> list[JournalEntry]:
        """Returns the commands of the journal whose outcome is not known, the oldest first."""
        return self._core.journal.pending()

    @property
    def tokens(self) -> int:
        """The tokens that are left in the retry budget."""
        return self._core.budget.tokens

    def close(self) -> None:
        """Closes the connections that this client has opened itself."""
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _command(self, request: httpx.Request, buffer: bool) -> Command:
        body = body_in_memory(request, buffer)
        if body is None:
            body = read_stream(request, self._core.options.request_bound)
        return Command.of(request, body)

    def _run(self, prepared: Prepared) -> Outcome:
        end = self._drive(prepared)
        self._core.clear_settled(prepared, end)
        return self._core.finish(prepared, end)

    def _drive(self, prepared: Prepared) -> CallEnd:
        result: AttemptResult | None = None
        while True:
            try:
                step = prepared.steps.send(result)
            except StopIteration as stop:
                end: CallEnd = stop.value
                return end
            if isinstance(step, Sleep):
                self._core.clock.sleep(step.milliseconds, prepared.cancellation)
                result = None
            else:
                bound = self._core.options.response_bound
                result = exchange_once(self._http, step, bound, self._core.clock)
