"""Outcomes of a command."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from semel._answer import Operation, Response

Reason = Literal["answer", "connect", "name", "unknown_host", "certificate", "lost", "timeout", "too_large"]
"""How an attempt ended."""

Stopped = Literal[
    "attempts",
    "deadline",
    "budget",
    "cancelled",
    "answer",
    "redirect",
    "certificate",
    "unknown_host",
    "too_large",
    "expired",
    "unnamed_origin",
]
"""Why a call made no further attempt."""


@dataclass(frozen=True)
class LastAttempt:
    """End of the last attempt of a call."""

    reason: Reason
    """How it ended."""
    code: str | None = None
    """The code of the server's problem, if it answered with one."""
    response: Response | None = None
    """The answer, if there was a whole one."""
    error: Exception | None = field(default=None, repr=False, compare=False)
    """The transport's error, if there was no whole answer."""

    @property
    def status(self) -> int | None:
        """The status of the answer, if there was one."""
        return self.response.status if self.response else None


@dataclass(frozen=True)
class Final:
    """The command's own outcome: it is settled, and every later attempt would be answered like this."""

    response: Response
    """The answer, of any status: a `Final` is an outcome, not a success."""
    replayed: bool
    """True if the command ran before this answer was asked for."""
    operation_id: str | None
    """The operation's id, if the server named it."""
    expires: str | None
    """The date until which the server keeps the answer, as it was sent."""
    attempts: int
    """Number of attempts."""


@dataclass(frozen=True)
class Unknown:
    """The server does not know whether the command took effect. Never send it under another key."""

    key: str = field(repr=False)
    """The key of every attempt."""
    operation: Operation
    """The operation to ask for later."""
    attempts: int
    """Number of attempts."""


@dataclass(frozen=True)
class Accepted:
    """The server has accepted the command, and has not finished it yet."""

    key: str = field(repr=False)
    """The key of every attempt."""
    operation: Operation
    """The operation to ask for later."""
    attempts: int
    """Number of attempts."""


@dataclass(frozen=True)
class Unresolved:
    """The command may have run, and the client could not find out. Resume it with the same key; never use another."""

    key: str | None = field(repr=False)
    """The key to go on with; `None` at an origin that is not named."""
    operation: Operation | None
    """The operation, if an answer named it."""
    attempts: int
    """Number of attempts."""
    last: LastAttempt | None
    """End of the last attempt, if there was one."""
    stopped: Stopped
    """Why there was no further attempt."""


Outcome: TypeAlias = Final | Unknown | Accepted | Unresolved
"""Outcome of a command."""
