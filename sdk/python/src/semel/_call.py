"""One call as a generator: it yields what is to be done, and is sent the results. Both clients drive it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TypeAlias

from semel._answer import EXPIRES
from semel._budget import RetryBudget
from semel._clock import Cancellation, Clock
from semel._command import Command
from semel._decide import (
    AttemptResult,
    CallState,
    Fault,
    FetchResult,
    Finish,
    Phase,
    Poll,
    Retry,
    Rules,
    decide,
    give_up,
)
from semel._draws import Draws
from semel._key import spell
from semel.errors import (
    AnswerError,
    BadKey,
    CertificateRefused,
    DuplicateBusinessReference,
    KeyReused,
    NotExecuted,
    RecordExpired,
    Redirected,
    ResponseNotRetained,
    ResponseUnreadable,
    SemelError,
    UnknownHost,
)
from semel.outcome import Accepted, Final, Outcome, Reason, Unknown, Unresolved

log = logging.getLogger("semel")

# Endings that say what became of the command: the journal needs its entry no longer.
SETTLED = ("final", "response_not_retained", "duplicate_business_reference")

ANSWER_ERRORS: dict[str, tuple[type[AnswerError], str]] = {
    "bad_key": (BadKey, "the server refuses the idempotency key"),
    "key_reused": (KeyReused, "the idempotency key was used before for another request"),
    "duplicate_business_reference": (
        DuplicateBusinessReference,
        "another command holds the business reference",
    ),
    "record_expired": (RecordExpired, "the command ran, and its response is no longer kept"),
    "response_not_retained": (ResponseNotRetained, "the command ran once, and the body of its response is not kept"),
    "response_unreadable": (ResponseUnreadable, "the command ran, and its stored response cannot be read"),
    "redirect": (Redirected, "the server redirects the command, which is not followed"),
}


@dataclass(frozen=True)
class AttemptEvent:
    """Beginning of an attempt, for the hook of the client."""

    method: str
    origin: str
    number: int
    """1 for the first attempt."""
    wait: float
    """Seconds that the call waited before it."""
    reason: Reason | str
    """End of the attempt before: a `Reason`, or `first`."""


AttemptHook: TypeAlias = Callable[[AttemptEvent], None]


@dataclass(frozen=True)
class Exchange:
    """Request to make. The result is a response or a fault."""

    method: str
    url: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    timeout: int
    """Time in milliseconds."""


@dataclass(frozen=True)
class Sleep:
    """Wait to make, in milliseconds."""

    milliseconds: int


CallStep: TypeAlias = Generator[Exchange | Sleep, AttemptResult | None, "CallEnd"]


@dataclass(frozen=True)
class CallEnd:
    """End of a call."""

    state: CallState
    finish: Finish
    key: str | None
    origin: str

    @property
    def settles(self) -> bool:
        """True if it is known what became of the command."""
        return self.finish.ending in SETTLED

    def outcome(self) -> Outcome:
        """Returns the outcome, or raises the error."""
        finish, state = self.finish, self.state
        operation = state.operation
        if finish.ending == "final" and finish.response is not None:
            identifier = operation.id if operation else None
            expires = finish.response.headers.get(EXPIRES)
            return Final(finish.response, finish.replayed, identifier, expires, state.attempts)
        if finish.ending == "unknown" and operation is not None and self.key is not None:
            return Unknown(self.key, operation, state.attempts)
        if finish.ending == "accepted" and operation is not None and self.key is not None:
            return Accepted(self.key, operation, state.attempts)
        if finish.ending == "unresolved":
            return Unresolved(self.key, operation, state.attempts, state.last, finish.stopped)
        # An error with a response is about the response, not about an attempt before it.
        raise self._error() from (state.last.error if state.last and finish.response is None else None)

    def _error(self) -> SemelError:
        finish, state = self.finish, self.state
        if finish.ending in ANSWER_ERRORS:
            error, message = ANSWER_ERRORS[finish.ending]
            return error(message, finish.response, state.operation)
        if finish.ending == "certificate":
            return CertificateRefused("the server's certificate is not trusted")
        if finish.ending == "unknown_host":
            return UnknownHost("there is no host of this name")
        last = f", the last one ended by {state.last.reason}" if state.last else ""
        message = (
            f"no attempt of this call ran the command: stopped by {finish.stopped} "
            f"after {state.attempts} attempts at {self.origin}{last}"
        )
        return NotExecuted(message, state.attempts, state.last, finish.stopped)


@dataclass(frozen=True)
class CallContext:
    """What a call needs from its client."""

    rules: Rules
    attempt_timeout: int
    budget: RetryBudget
    budget_return: int
    clock: Clock
    draws: Draws
    cancellation: Cancellation
    hook: Callable[[AttemptEvent], None]


def call(context: CallContext, command: Command, key: str | None, resumed: bool) -> CallStep:
    """Makes the attempts, waits and polls of one command."""
    state = CallState(ambiguous=resumed)
    began = context.clock.monotonic()

    def observed(state: CallState) -> CallState:
        return replace(
            state,
            elapsed=context.clock.monotonic() - began,
            wall=context.clock.wall(),
            tokens=context.budget.tokens,
            cancelled=context.cancellation.is_cancelled,
        )

    def end(finish: Finish) -> CallEnd:
        if finish.ending == "final" and key is not None:
            context.budget.put_back(context.budget_return)
        return CallEnd(state, finish, key, command.origin)

    if context.cancellation.is_cancelled:
        return end(give_up(state, "cancelled"))
    wait, reason, url = 0, "first", command.url
    while True:
        remaining = context.rules.deadline - (context.clock.monotonic() - began)
        if remaining <= 0:
            # A wait took longer than asked for.
            late = state.phase is Phase.COMMAND
            return end(give_up(state, "deadline") if late else Finish(state.polled_for))
        timeout = min(context.attempt_timeout, remaining)
        if state.phase is Phase.COMMAND:
            state = replace(state, attempts=state.attempts + 1)
            _tell(context.hook, AttemptEvent(command.method, command.origin, state.attempts, wait / 1000, reason))
            headers = command_headers(context.rules, command, key, remaining)
            result = yield Exchange(command.method, command.url, headers, command.body, timeout)
        else:
            result = yield Exchange("GET", url, command.poll_headers(), b"", timeout)
        state = observed(state)
        state, decision = decide(context.rules, state, result or Fault("lost"), context.draws.peek())
        match decision:
            case Finish():
                return end(decision)
            case FetchResult():
                state = replace(state, phase=Phase.RESULT)
                url = f"{url}/result"
                continue
            case Retry(wait):
                if not context.budget.take(context.rules.budget_cost):
                    # Another call was faster.
                    return end(give_up(state, "budget"))
                reason = state.last.reason if state.last else "first"
            case Poll(wait):
                url = (state.operation and state.operation.url) or url
        context.draws.take()
        yield Sleep(wait)
        if context.cancellation.is_cancelled:
            return end(give_up(state, "cancelled"))


def command_headers(rules: Rules, command: Command, key: str | None, remaining: int) -> list[tuple[bytes, bytes]]:
    """Returns the header fields of an attempt."""
    headers = list(command.headers)
    if key is None:
        return headers
    headers.append((b"Idempotency-Key", spell(key, rules.profile).encode("ascii")))
    if rules.profile == "semel":
        headers.append((b"Semel-Deadline", str(remaining).encode("ascii")))
    return headers


def _tell(hook: Callable[[AttemptEvent], None], event: AttemptEvent) -> None:
    """Calls the hook. Its failure must not lose the outcome of a command that may have run."""
    try:
        hook(event)
    except Exception:
        log.warning("the attempt hook failed", exc_info=True)
