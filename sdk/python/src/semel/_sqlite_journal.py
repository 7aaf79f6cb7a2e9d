"""A journal in an SQLite database, which processes can share."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator

from semel.errors import JournalUnavailable
from semel.journal import JournalEntry, refuse_pending

_creation = threading.Lock()

# Seconds that a change waits for another process.
BUSY_TIMEOUT = 5.0

CREATE = """
CREATE TABLE IF NOT EXISTS semel_journal (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    intent TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    origin TEXT NOT NULL,
    caller TEXT NOT NULL,
    at INTEGER NOT NULL
)
"""
INSERT = """
INSERT INTO semel_journal (intent, key, digest, origin, caller, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (intent) DO NOTHING
"""
DELETE = "DELETE FROM semel_journal WHERE intent = ? AND (? IS NULL OR key = ?)"
SELECT = "SELECT intent, key, digest, origin, caller, at FROM semel_journal ORDER BY sequence"


class SqliteJournal:
    """Journal in a table `semel_journal` of an SQLite database. The file holds keys: only its owner may read it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def begin(self, entry: JournalEntry) -> None:
        """Keeps an entry durably."""
        row = (entry.intent, entry.key, entry.digest, entry.origin, entry.caller, entry.at)
        with self._database() as database:
            inserted = database.execute(INSERT, row).rowcount
        refuse_pending(entry.intent, inserted == 0)

    def clear(self, intent: str, key: str | None = None) -> None:
        """Removes an entry durably, if it has the key."""
        with self._database() as database:
            database.execute(DELETE, (intent, key, key))

    def pending(self) -> list[JournalEntry]:
        """Returns all entries, the oldest first."""
        with self._database() as database:
            return [JournalEntry(*row) for row in database.execute(SELECT)]

    def close(self) -> None:
        """Closes the database."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Lends the connection, whose statements are transactions of their own."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                yield self._connection
            except sqlite3.Error as error:
                raise JournalUnavailable(f"the journal cannot be used: {error}") from error
            except OSError as error:
                raise JournalUnavailable(f"the journal cannot be opened: {error.strerror}") from error

    def _open(self) -> sqlite3.Connection:
        # SQLite gives its own files the mode of the database. A file that is there is not opened: closing it would take
        # the locks away that other connections of this process have on it.
        with _creation, contextlib.suppress(FileExistsError):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        try:
            # EXTRA: the end of a transaction is on the disk, the folder included, before the statement returns.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute(CREATE)
        except sqlite3.Error:
            connection.close()
            raise
        return connection
