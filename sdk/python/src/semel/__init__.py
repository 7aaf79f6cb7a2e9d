"""Retries of commands over HTTP, so that nothing happens twice.

`Client` and `AsyncClient` send a command with one idempotency key on every attempt, and end with a typed outcome.
"""

from semel._answer import Operation, Response
from semel._async import AsyncClient
from semel._call import AttemptEvent, AttemptHook
from semel._clock import Cancellation, Clock
from semel._file_journal import FileJournal
from semel._options import Options, Profile
from semel._sqlite_journal import SqliteJournal
from semel._sync import Client
from semel.errors import (
    AnswerError,
    BadKey,
    BodyNotReplayable,
    CertificateRefused,
    DuplicateBusinessReference,
    EntryExpired,
    IntentPending,
    JournalUnavailable,
    KeyReused,
    NoSuchEntry,
    NotExecuted,
    OtherCaller,
    RecordExpired,
    Redirected,
    RequestChanged,
    ResponseNotRetained,
    ResponseUnreadable,
    SemelError,
    UnknownHost,
    UnnamedOrigin,
)
from semel.journal import Journal, JournalEntry, MemoryJournal
from semel.outcome import Accepted, Final, LastAttempt, Outcome, Unknown, Unresolved

__all__ = [
    "Accepted",
    "AnswerError",
    "AsyncClient",
    "AttemptEvent",
    "AttemptHook",
    "BadKey",
    "BodyNotReplayable",
    "Cancellation",
    "CertificateRefused",
    "Client",
    "Clock",
    "DuplicateBusinessReference",
    "EntryExpired",
    "FileJournal",
    "Final",
    "IntentPending",
    "Journal",
    "JournalEntry",
    "JournalUnavailable",
    "KeyReused",
    "LastAttempt",
    "MemoryJournal",
    "NoSuchEntry",
    "NotExecuted",
    "Operation",
    "Options",
    "OtherCaller",
    "Outcome",
    "Profile",
    "RecordExpired",
    "Redirected",
    "RequestChanged",
    "Response",
    "ResponseNotRetained",
    "ResponseUnreadable",
    "SemelError",
    "SqliteJournal",
    "Unknown",
    "UnknownHost",
    "UnnamedOrigin",
    "Unresolved",
]
