"""Journals: they keep the key of a command across a restart of the process.

An entry is durable before its command is sent for the first time. It is cleared by the command's own outcome only.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from semel.errors import EntryExpired, IntentPending, NoSuchEntry, OtherCaller


@dataclass(frozen=True)
class JournalEntry:
    """Command whose outcome is not known yet."""

    intent: str
    """The caller's name for what the command is to do, such as `invoice 4711`."""
    key: str = field(repr=False)
    """The idempotency key of every attempt."""
    digest: str
    """Digest of the request."""
    origin: str
    """Origin that the command is for."""
    caller: str
    """The client's name for itself."""
    at: int
    """Time of the first send, in milliseconds since 1970."""


class Journal(Protocol):
    """Place that keeps entries. Its methods may be called by any thread; they raise `JournalUnavailable`."""

    def begin(self, entry: JournalEntry) -> None:
        """Keeps an entry durably. Raises `IntentPending` if there is one for the intent."""

    def clear(self, intent: str, key: str | None = None) -> None:
        """Removes the entry of an intent; does nothing if there is none, or if it has another key than the given one.

        A call clears the entry of its own key, since another call may have cleared it and begun the intent again. A
        person, who has looked at the entry, gives no key.
        """

    def pending(self) -> list[JournalEntry]:
        """Returns all entries, the oldest first."""

    def close(self) -> None:
        """Closes the journal. The entries stay."""


class MemoryJournal:
    """Journal that is lost with the process: for tests."""

    def __init__(self) -> None:
        self._entries: dict[str, JournalEntry] = {}
        self._lock = threading.Lock()

    def begin(self, entry: JournalEntry) -> None:
        """Keeps an entry."""
        with self._lock:
            refuse_pending(entry.intent, entry.intent in self._entries)
            self._entries[entry.intent] = entry

    def clear(self, intent: str, key: str | None = None) -> None:
        """Removes an entry, if it has the key."""
        with self._lock:
            if is_meant(self._entries.get(intent), key):
                del self._entries[intent]

    def pending(self) -> list[JournalEntry]:
        """Returns all entries, the oldest first."""
        with self._lock:
            return list(self._entries.values())

    def close(self) -> None:
        """Does nothing."""


def refuse_pending(intent: str, is_pending: bool) -> None:
    """Raises if the intent has an entry."""
    if is_pending:
        raise IntentPending(f"the journal has an entry for the intent {intent!r}: resume it")


def is_meant(entry: JournalEntry | None, key: str | None) -> bool:
    """Returns true if there is an entry, and it has the key, if one is given."""
    return entry is not None and key in (None, entry.key)


def entry_to_resume(journal: Journal, intent: str, caller: str, now: int, max_age: int, tolerance: int) -> JournalEntry:
    """Returns the entry of an intent if this caller may send it now. Times are in milliseconds."""
    entry = next((entry for entry in journal.pending() if entry.intent == intent), None)
    if entry is None:
        raise NoSuchEntry(f"the journal has no entry for the intent {intent!r}")
    if entry.caller != caller:
        raise OtherCaller(f"the entry for the intent {intent!r} is another caller's: a person has to look at it")
    if not -tolerance <= now - entry.at < max_age:
        raise EntryExpired(
            f"the entry for the intent {intent!r} is older than a server keeps keys, or from the future: "
            "a person has to look at it"
        )
    return entry
