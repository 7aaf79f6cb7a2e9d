"""Settings of a client, and the bounds that have no setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Profile = Literal["semel", "ietf", "stripe"]
"""Dialect of the server: Semel's own, the IETF draft's, or Stripe's."""

OnAccepted = Literal["poll", "return"]
"""What a call does with 202: poll the operation within the deadline, or return its handle."""

MAX_POLLS = 100
"""Most polls of one call."""

CLOCK_TOLERANCE_MS = 300_000
"""How far in the future the begin of a journal entry may be: more means that the wall clock was set back."""

MAX_TIME = 9_999_999
"""Longest time of an option in seconds. `Semel-Deadline` has at most ten digits."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class Options:
    """Limits of a call, and of the retry budget that all calls of a client share. Times are in seconds."""

    base: float = 0.1
    """Upper bound of the first random wait."""
    cap: float = 5.0
    """Upper bound of every random wait."""
    deadline: float = 30.0
    """Total time of a call: attempts, waits and polls."""
    attempt_timeout: float = 10.0
    """Time of one attempt."""
    attempts: int = 8
    """Most attempts of a call."""
    retry_after_max: float = 30.0
    """Most that is waited for a `Retry-After`."""
    budget_tokens: int = 500
    """Tokens of a full retry budget."""
    budget_cost: int = 14
    """Tokens that a retry costs."""
    budget_return: int = 1
    """Tokens that a final outcome puts back."""
    max_age: float = 82_800.0
    """Age from which a journal entry is not sent any more. It must be below the server's `ttl`, by default 24 h."""
    response_bound: int = 16 * MIB
    """Largest body of an answer in bytes, as it was sent."""
    request_bound: int = 16 * MIB
    """Largest stream that is buffered as a request body, in bytes."""
    on_accepted: OnAccepted = "poll"
    """What a call does with 202."""

    def __post_init__(self) -> None:
        for name in ("base", "cap", "retry_after_max"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative")
        for name in ("deadline", "attempt_timeout", "max_age"):
            if not getattr(self, name) >= 0.001:
                raise ValueError(f"{name} must be at least a millisecond")
        for name in ("base", "cap", "retry_after_max", "deadline", "attempt_timeout", "max_age"):
            if getattr(self, name) > MAX_TIME:
                raise ValueError(f"{name} must be at most {MAX_TIME} seconds")
        for name in ("attempts", "response_bound", "request_bound"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("budget_tokens", "budget_cost", "budget_return"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if self.on_accepted not in ("poll", "return"):
            raise ValueError("on_accepted must be 'poll' or 'return'")


def milliseconds(seconds: float) -> int:
    """Returns a time in whole milliseconds, to the nearest."""
    return round(seconds * 1000)
