"""The decision after an attempt, as one pure function. The loop around it only acts."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from semel._answer import Operation, Response, document_of, retry_after_ms
from semel._classify import Meaning, Verdict, classify
from semel._options import MAX_POLLS, OnAccepted, Options, Profile, milliseconds
from semel.outcome import LastAttempt, Reason, Stopped

FaultReason = Literal["connect", "name", "unknown_host", "certificate", "lost", "timeout", "too_large"]


@dataclass(frozen=True)
class Fault:
    """Attempt without a whole answer."""

    reason: FaultReason
    error: Exception | None = field(default=None, repr=False, compare=False)
    """The transport's error, if there was one."""


AttemptResult: TypeAlias = Response | Fault
"""Result of one exchange with the server."""


@dataclass(frozen=True)
class Rules:
    """What stays the same during a call. Times are in milliseconds."""

    profile: Profile
    named: bool
    """True if the origin is named and the method is a command's: only then a request is repeated."""
    url: str
    base: int
    cap: int
    deadline: int
    attempts: int
    retry_after_max: int
    budget_cost: int
    on_accepted: OnAccepted

    @classmethod
    def of(cls, options: Options, profile: Profile, named: bool, url: str) -> Rules:
        """Returns the rules for a call to `url`."""
        return cls(
            profile=profile,
            named=named,
            url=url,
            base=milliseconds(options.base),
            cap=milliseconds(options.cap),
            deadline=milliseconds(options.deadline),
            attempts=options.attempts,
            retry_after_max=milliseconds(options.retry_after_max),
            budget_cost=options.budget_cost,
            on_accepted=options.on_accepted,
        )


class Phase(enum.Enum):
    """Request whose result is decided on."""

    COMMAND = enum.auto()
    OPERATION = enum.auto()
    RESULT = enum.auto()


@dataclass(frozen=True)
class CallState:
    """What is known of a call when an attempt has ended. Times are in milliseconds."""

    ambiguous: bool
    """True if the command may have run."""
    phase: Phase = Phase.COMMAND
    attempts: int = 0
    polls: int = 0
    elapsed: int = 0
    wall: int = 0
    tokens: int = 0
    cancelled: bool = False
    operation: Operation | None = None
    polled_for: Literal["accepted", "unknown"] = "unknown"
    last: LastAttempt | None = None


Ending = Literal[
    "final",
    "unknown",
    "accepted",
    "unresolved",
    "not_executed",
    "certificate",
    "unknown_host",
    "redirect",
    "bad_key",
    "key_reused",
    "duplicate_business_reference",
    "record_expired",
    "response_not_retained",
    "response_unreadable",
]


@dataclass(frozen=True)
class Finish:
    """Decision to end the call."""

    ending: str
    """An `Ending`."""
    response: Response | None = None
    replayed: bool = False
    stopped: Stopped = "answer"


@dataclass(frozen=True)
class Retry:
    """Decision to take tokens, wait, and send the command again with the same key."""

    wait: int


@dataclass(frozen=True)
class Poll:
    """Decision to wait, and to ask for the operation."""

    wait: int


@dataclass(frozen=True)
class FetchResult:
    """Decision to ask for the result of the operation at once."""


Decision: TypeAlias = Finish | Retry | Poll | FetchResult


def decide(rules: Rules, state: CallState, result: AttemptResult, draw: float) -> tuple[CallState, Decision]:
    """Returns what the call does after an attempt, and what it knows by then. `draw` is at least 0 and below 1."""
    if state.phase is Phase.COMMAND:
        return _after_command(rules, state, result, draw)
    if isinstance(result, Fault):
        return _poll(rules, state, None, draw)
    if state.phase is Phase.OPERATION:
        return _after_poll(rules, state, result, draw)
    return _after_result(rules, state, result, draw)


def give_up(state: CallState, stopped: Stopped) -> Finish:
    """Returns the end of a call that makes no further attempt."""
    return Finish("unresolved" if state.ambiguous else "not_executed", stopped=stopped)


def _after_command(rules: Rules, state: CallState, result: AttemptResult, draw: float) -> tuple[CallState, Decision]:
    if isinstance(result, Fault):
        last = LastAttempt(result.reason, error=result.error)
        return _after_fault(rules, replace(state, last=last), result.reason, draw)
    if not rules.named:
        return state, Finish("final", result)
    verdict = classify(rules.profile, rules.url, result)
    state = replace(
        state,
        ambiguous=state.ambiguous or verdict.ambiguous,
        operation=verdict.operation or state.operation,
        last=LastAttempt("answer", verdict.code, result),
    )
    match verdict.meaning:
        case Meaning.OUTCOME | Meaning.REPLAYED:
            return state, Finish("final", result, verdict.meaning is Meaning.REPLAYED)
        case Meaning.NOT_RETAINED:
            return state, Finish("response_not_retained", result)
        case Meaning.FINAL_IF_CLEAR:
            return state, _if_clear(state, Finish("final", result))
        case Meaning.REFUSED:
            return state, _if_clear(state, Finish(verdict.refusal, result, stopped=verdict.stopped))
        case Meaning.STOP:
            return state, Finish("unresolved", stopped=verdict.stopped)
        case Meaning.RETRY:
            return _retry(rules, state, result, draw)
        case Meaning.POLL:
            # An older answer's operation is not this answer's.
            if verdict.operation is None:
                return _retry(rules, state, result, draw)
            return _poll(rules, replace(state, polled_for="unknown"), result, draw)
        case Meaning.ACCEPTED:
            state = replace(state, polled_for="accepted")
            if rules.on_accepted == "return":
                return state, Finish("accepted")
            return _poll(rules, state, result, draw)


def _after_fault(rules: Rules, state: CallState, reason: Reason, draw: float) -> tuple[CallState, Decision]:
    if reason == "certificate" or reason == "unknown_host":
        return state, _if_clear(state, Finish(reason, stopped=reason))
    sent = reason not in ("connect", "name")
    state = replace(state, ambiguous=state.ambiguous or sent)
    if not rules.named:
        return state, give_up(state, "unnamed_origin")
    if reason == "too_large":
        return state, give_up(state, "too_large")
    return _retry(rules, state, None, draw)


def _after_poll(rules: Rules, state: CallState, response: Response, draw: float) -> tuple[CallState, Decision]:
    if response.status in (408, 425, 429) or response.status >= 500:
        return _poll(rules, state, response, draw)
    document = document_of(response) if response.status == 200 else None
    if document is None:
        return state, Finish(state.polled_for)
    match document.get("state"):
        case "succeeded" | "failed_final":
            return state, FetchResult()
        case "failed_retryable":
            return _retry(rules, replace(state, phase=Phase.COMMAND), response, draw)
        case "expired":
            return state, Finish("unresolved", stopped="expired")
        case _:
            return _poll(rules, state, response, draw)


def _after_result(rules: Rules, state: CallState, response: Response, draw: float) -> tuple[CallState, Decision]:
    verdict: Verdict = classify(rules.profile, rules.url, response)
    match verdict.meaning:
        case Meaning.OUTCOME | Meaning.REPLAYED:
            return state, Finish("final", response, verdict.meaning is Meaning.REPLAYED)
        case Meaning.NOT_RETAINED:
            return state, Finish("response_not_retained", response)
        case Meaning.RETRY | Meaning.POLL | Meaning.ACCEPTED:
            return _poll(rules, state, response, draw)
        case Meaning.FINAL_IF_CLEAR | Meaning.REFUSED | Meaning.STOP:
            return state, Finish(state.polled_for)


def _if_clear(state: CallState, finish: Finish) -> Finish:
    """Returns this end if the command has not run; else the call is unresolved."""
    return Finish("unresolved", stopped=finish.stopped) if state.ambiguous else finish


def _retry(rules: Rules, state: CallState, response: Response | None, draw: float) -> tuple[CallState, Decision]:
    if state.cancelled:
        return state, give_up(state, "cancelled")
    if state.attempts >= rules.attempts:
        return state, give_up(state, "attempts")
    wait = _wait(rules, state, response, state.attempts - 1, draw)
    if state.elapsed + wait >= rules.deadline:
        return state, give_up(state, "deadline")
    if state.tokens < rules.budget_cost:
        return state, give_up(state, "budget")
    return state, Retry(wait)


def _poll(rules: Rules, state: CallState, response: Response | None, draw: float) -> tuple[CallState, Decision]:
    if state.operation is None or state.operation.url is None or state.polls >= MAX_POLLS:
        return state, Finish(state.polled_for)
    if state.cancelled:
        return state, Finish("unresolved", stopped="cancelled")
    wait = _wait(rules, state, response, state.polls, draw)
    if state.elapsed + wait >= rules.deadline:
        return state, Finish(state.polled_for)
    return replace(state, phase=Phase.OPERATION, polls=state.polls + 1), Poll(wait)


def _wait(rules: Rules, state: CallState, response: Response | None, n: int, draw: float) -> int:
    """Returns `Retry-After` plus a random time below the exponential backoff, in milliseconds."""
    asked = retry_after_ms(response, state.wall) if response else None
    # Beyond 2^32, every backoff has reached its cap.
    backoff = min(rules.cap, rules.base << min(n, 32))
    return min(asked or 0, rules.retry_after_max) + math.floor(draw * backoff)
