"""Errors of a call: the command is known not to have run, or its outcome is known and cannot be shown."""

from __future__ import annotations

from typing import ClassVar

from semel._answer import Operation, Response
from semel.outcome import LastAttempt, Stopped


class SemelError(Exception):
    """Base of all errors of this package. No message has a key in it."""

    kind: ClassVar[str] = "error"
    """Name of the error, the same in every language."""


class AnswerError(SemelError):
    """Answer that ends a command, and that no retry changes."""

    def __init__(self, message: str, response: Response | None = None, operation: Operation | None = None) -> None:
        super().__init__(message)
        self.response = response
        self.operation = operation


class BadKey(AnswerError):
    """The key cannot be used: it is too short, too long, not ASCII, or refused by the server."""

    kind = "bad_key"


class KeyReused(AnswerError):
    """The key was used before, for another request."""

    kind = "key_reused"


class DuplicateBusinessReference(AnswerError):
    """Another command holds the business reference. This one did not run."""

    kind = "duplicate_business_reference"


class RecordExpired(AnswerError):
    """The command ran, and the server no longer keeps its response."""

    kind = "record_expired"


class ResponseNotRetained(AnswerError):
    """The command ran once, with the status of the response. The body of its response is not kept."""

    kind = "response_not_retained"


class ResponseUnreadable(AnswerError):
    """The command ran, and the server cannot read its stored response."""

    kind = "response_unreadable"


class Redirected(AnswerError):
    """The server sent the command elsewhere. Commands follow no redirect."""

    kind = "redirect"


class NotExecuted(SemelError):
    """No attempt of this call ran the command, and the call makes no further one."""

    kind = "not_executed"

    def __init__(self, message: str, attempts: int, last: LastAttempt | None, stopped: Stopped) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.last = last
        self.stopped = stopped


class CertificateRefused(SemelError):
    """The server's certificate is not trusted. Nothing was sent."""

    kind = "certificate"


class UnknownHost(SemelError):
    """There is no host of this name. Nothing was sent."""

    kind = "unknown_host"


class UnnamedOrigin(SemelError):
    """A key or an intent was given for an origin that the client does not name. Nothing was sent."""

    kind = "unnamed_origin"


class BodyNotReplayable(SemelError):
    """The body is a stream that may not be buffered, or is too large to be. Nothing was sent."""

    kind = "body_not_replayable"


class JournalUnavailable(SemelError):
    """The journal cannot be read or written. Nothing was sent."""

    kind = "journal_unavailable"


class IntentPending(SemelError):
    """The journal has an entry for this intent: resume it. Nothing was sent."""

    kind = "intent_pending"


class NoSuchEntry(SemelError):
    """The journal has no entry for this intent. Nothing was sent."""

    kind = "no_such_entry"


class OtherCaller(SemelError):
    """The journal entry is another caller's. A person has to look at it. Nothing was sent."""

    kind = "other_caller"


class EntryExpired(SemelError):
    """The journal entry is too old, or from the future. A person has to look at it. Nothing was sent."""

    kind = "entry_expired"


class RequestChanged(SemelError):
    """The request is not the one that the journal entry was made for. Nothing was sent."""

    kind = "request_changed"
