"""A journal in one file: a line of JSON for each change, synchronised to the disk before the next step."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path
from typing import Any

from semel.errors import JournalUnavailable
from semel.journal import JournalEntry, is_meant, refuse_pending

try:
    import fcntl
except ImportError:  # Windows has no advisory locks of this kind.
    fcntl = None  # type: ignore[assignment]

# Lines after which the file is written anew, if most of them are of entries that were cleared.
COMPACT_LINES = 1024


class FileJournal:
    """Journal in a file of one process.

    A last line without its newline was torn by a crash before it counted, and is cut off. Any other line that cannot be
    read means that the file is damaged, and nothing is sent. The file holds keys: only its owner may read it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._file: io.FileIO | None = None
        self._entries: dict[str, JournalEntry] = {}
        self._lines = 0

    def begin(self, entry: JournalEntry) -> None:
        """Keeps an entry durably."""
        with self._lock:
            self._open()
            refuse_pending(entry.intent, entry.intent in self._entries)
            self._append({"begin": entry.__dict__})
            self._entries[entry.intent] = entry

    def clear(self, intent: str, key: str | None = None) -> None:
        """Removes an entry durably, if it has the key."""
        with self._lock:
            self._open()
            if not is_meant(self._entries.get(intent), key):
                return
            self._append({"clear": intent})
            del self._entries[intent]
            if self._lines > COMPACT_LINES and self._lines > 4 * len(self._entries):
                self._compact()

    def pending(self) -> list[JournalEntry]:
        """Returns all entries, the oldest first."""
        with self._lock:
            self._open()
            return list(self._entries.values())

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._drop()

    def _open(self) -> io.FileIO:
        if self._file is not None:
            return self._file
        try:
            file = io.FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
        except OSError as error:
            raise JournalUnavailable(f"the journal cannot be opened: {error.strerror}") from error
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._refuse_replaced(file)
            _sync_folder(self._path)
            self._load(file)
        except BlockingIOError as error:
            file.close()
            raise JournalUnavailable("the journal is in use by another process") from error
        except OSError as error:
            file.close()
            raise JournalUnavailable(f"the journal cannot be read: {error.strerror}") from error
        except ValueError as error:
            file.close()
            raise JournalUnavailable("the journal is damaged") from error
        self._file = file
        return file

    def _refuse_replaced(self, file: io.FileIO) -> None:
        """Raises if the path has another file by now: a process that wrote the journal anew has replaced this one."""
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(self._path)):
            raise BlockingIOError

    def _load(self, file: io.FileIO) -> None:
        """Reads the file, and cuts a torn line off."""
        content = file.readall()
        whole, _, torn = content.rpartition(b"\n")
        if torn:
            file.truncate(len(content) - len(torn))
            os.fsync(file)
        file.seek(0, os.SEEK_END)
        self._entries, self._lines = {}, 0
        for line in whole.split(b"\n") if whole else []:
            self._read_line(json.loads(line))
            self._lines += 1

    def _read_line(self, change: Any) -> None:
        match change:
            case {"begin": dict(members)}:
                try:
                    entry = JournalEntry(**members)
                except TypeError as error:
                    raise ValueError("an entry has other members") from error
                texts = (entry.intent, entry.key, entry.digest, entry.origin, entry.caller)
                if not all(isinstance(text, str) for text in texts) or type(entry.at) is not int:
                    raise ValueError("a member has another type")
                if entry.intent in self._entries:
                    raise ValueError("a pending intent was begun again")
                self._entries[entry.intent] = entry
            case {"clear": str(intent)}:
                self._entries.pop(intent, None)
            case _:
                raise ValueError("a line is neither a begin nor a clear")

    def _append(self, change: dict[str, Any]) -> None:
        file = self._open()
        line = _line(change)
        try:
            # A partial write leaves a torn line, which does not count.
            if file.write(line) != len(line):
                raise OSError(0, "the disk took only a part of the line")
            os.fsync(file)
        except OSError as error:
            # What the file holds now is read again before the next step.
            self._drop()
            raise JournalUnavailable(f"the journal cannot be written: {error.strerror}") from error
        self._lines += 1

    def _compact(self) -> None:
        """Writes the file anew with the entries that are left. A failure leaves the old file as it is."""
        draft = self._path.with_name(self._path.name + ".draft")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with io.FileIO(descriptor, "w") as file:
                lines = b"".join(_line({"begin": entry.__dict__}) for entry in self._entries.values())
                if file.write(lines) != len(lines):
                    return
                os.fsync(file)
            os.replace(draft, self._path)
            _sync_folder(self._path)
        except OSError:
            return
        finally:
            # The file is opened again by the next step, whichever it is by then.
            self._drop()

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(change: dict[str, Any]) -> bytes:
    return json.dumps(change, separators=(",", ":")).encode("ascii") + b"\n"


def _sync_folder(path: Path) -> None:
    """Makes the name of a file durable. Folders cannot be opened on every system."""
    if os.name != "posix":
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
