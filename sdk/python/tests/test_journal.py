"""The journals."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from semel import (
    Client,
    FileJournal,
    Final,
    IntentPending,
    Journal,
    JournalEntry,
    JournalUnavailable,
    MemoryJournal,
    SqliteJournal,
)

MakeJournal = Callable[[Path], Journal]
DURABLE = pytest.mark.parametrize("make", [FileJournal, SqliteJournal])
URL = "https://pay.example/payments"


def entry(intent: str) -> JournalEntry:
    return JournalEntry(intent, f"key of {intent} 0123456789", "d" * 64, "https://pay.example:443", "caller", 7)


@DURABLE
def test_entries_survive_the_process_in_their_order(make: MakeJournal, tmp_path: Path) -> None:
    first = make(tmp_path / "journal")
    for intent in ("b", "a", "ü\n", "c"):
        first.begin(entry(intent))
    first.clear("a")
    first.clear("never begun")
    first.close()
    second = make(tmp_path / "journal")
    assert second.pending() == [entry("b"), entry("ü\n"), entry("c")]
    second.close()


@pytest.mark.parametrize("make", [FileJournal, SqliteJournal, lambda _: MemoryJournal()])
def test_an_intent_is_begun_once(make: MakeJournal, tmp_path: Path) -> None:
    journal = make(tmp_path / "journal")
    journal.begin(entry("a"))
    with pytest.raises(IntentPending):
        journal.begin(entry("a"))
    journal.clear("a")
    journal.begin(entry("a"))
    assert journal.pending() == [entry("a")]
    journal.close()


ALL = pytest.mark.parametrize("make", [FileJournal, SqliteJournal, lambda _: MemoryJournal()])


@ALL
def test_an_entry_is_cleared_by_its_key_or_by_a_person(make: MakeJournal, tmp_path: Path) -> None:
    journal = make(tmp_path / "journal")
    journal.begin(entry("a"))
    journal.clear("a", "another key 0123456789")
    assert journal.pending() == [entry("a")]
    journal.clear("a", entry("a").key)
    assert journal.pending() == []
    journal.begin(entry("a"))
    journal.clear("a")
    assert journal.pending() == []
    journal.close()


@ALL
def test_a_slow_call_does_not_clear_a_newer_entry_of_its_intent(make: MakeJournal, tmp_path: Path) -> None:
    journal = make(tmp_path / "journal")

    def answer(_: httpx.Request) -> httpx.Response:
        # Meanwhile, another call has settled the command, and begun a new one.
        journal.clear("a")
        journal.begin(entry("a"))
        return httpx.Response(201, headers={"Idempotency-Operation-Id": "op_1"})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    outcome = Client(["https://pay.example"], http=http, journal=journal).send("POST", URL, json={}, intent="a")
    assert isinstance(outcome, Final)
    assert journal.pending() == [entry("a")]
    journal.close()


@DURABLE
def test_only_the_owner_may_read_the_keys(make: MakeJournal, tmp_path: Path) -> None:
    journal = make(tmp_path / "journal")
    journal.begin(entry("a"))
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o600
    journal.close()


@DURABLE
def test_a_file_that_is_no_journal_is_not_used(make: MakeJournal, tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"something else\n" * 100)
    journal = make(tmp_path / "journal")
    with pytest.raises(JournalUnavailable):
        journal.begin(entry("a"))
    with pytest.raises(JournalUnavailable):
        journal.pending()
    journal.close()
    assert (tmp_path / "journal").read_bytes() == b"something else\n" * 100


@DURABLE
def test_a_folder_that_is_absent_makes_the_journal_unavailable(make: MakeJournal, tmp_path: Path) -> None:
    journal = make(tmp_path / "absent" / "journal")
    with pytest.raises(JournalUnavailable):
        journal.begin(entry("a"))
    journal.close()


def test_an_entry_does_not_show_its_key() -> None:
    assert entry("a").key not in repr(entry("a"))


def test_a_second_process_cannot_use_the_file(tmp_path: Path) -> None:
    first, second = FileJournal(tmp_path / "journal"), FileJournal(tmp_path / "journal")
    first.begin(entry("a"))
    with pytest.raises(JournalUnavailable, match="another process"):
        second.begin(entry("b"))
    first.close()
    second.begin(entry("b"))
    assert second.pending() == [entry("a"), entry("b")]
    second.close()


def test_processes_share_the_database(tmp_path: Path) -> None:
    first, second = SqliteJournal(tmp_path / "journal"), SqliteJournal(tmp_path / "journal")
    first.begin(entry("a"))
    with pytest.raises(IntentPending):
        second.begin(entry("a"))
    second.begin(entry("b"))
    first.clear("a")
    assert second.pending() == [entry("b")]
    first.close()
    second.close()


# A process that tries to write while the test has a transaction.
WRITER = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], timeout=0).execute("BEGIN IMMEDIATE")
"""


def test_a_second_journal_of_the_process_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first, second = SqliteJournal(path), SqliteJournal(path)
    assert first.pending() == []
    with first._database() as database:
        database.execute("BEGIN IMMEDIATE")
        with contextlib.suppress(JournalUnavailable):
            second.pending()
        writer = subprocess.run([sys.executable, "-c", WRITER, str(path)], check=False, capture_output=True)
        database.execute("ROLLBACK")
    assert b"database is locked" in writer.stderr
    first.close()
    second.close()


def test_a_file_that_was_replaced_before_its_lock_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    flock = fcntl.flock

    def replace_first(file: int, operation: int) -> None:
        (tmp_path / "draft").write_bytes(b"")
        (tmp_path / "draft").replace(path)
        flock(file, operation)

    journal = FileJournal(path)
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", replace_first)
        with pytest.raises(JournalUnavailable, match="in use"):
            journal.begin(entry("a"))
    journal.begin(entry("a"))
    assert b'"a"' in path.read_bytes()
    journal.close()


def begin_line(**members: object) -> bytes:
    return json.dumps({"begin": {**entry("a").__dict__, **members}}).encode()


@pytest.mark.parametrize(
    "line",
    [
        begin_line() + b"\n" + begin_line(key="another key 0123456789"),
        *(begin_line(**{name: 1}) for name in ("intent", "key", "digest", "origin", "caller")),
        begin_line(intent=["a"]),
        begin_line(at="7"),
        begin_line(at=7.5),
        begin_line(at=True),
    ],
)
def test_an_entry_that_no_client_wrote_makes_the_journal_unavailable(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(line + b"\n")
    journal = FileJournal(path)
    with pytest.raises(JournalUnavailable, match="damaged"):
        journal.pending()
    journal.close()


def test_the_database_is_on_the_disk_when_a_statement_returns(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal")
    journal.begin(entry("a"))
    with journal._database() as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (3,)
        assert not database.in_transaction
    journal.close()


def test_every_cut_of_the_last_line_is_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    whole = FileJournal(path)
    whole.begin(entry("a"))
    first = path.read_bytes()
    whole.begin(entry("b"))
    whole.close()
    both = path.read_bytes()
    for length in range(len(first), len(both)):
        path.write_bytes(both[:length])
        journal = FileJournal(path)
        assert journal.pending() == [entry("a")], length
        journal.begin(entry("c"))
        journal.close()
        again = FileJournal(path)
        assert again.pending() == [entry("a"), entry("c")], length
        again.close()


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", b'{"begin":{}}', b'{"clear":1}', b'{"begin":{"intent":"a"}}', b"\xff", b""]
)
def test_a_damaged_line_before_the_end_makes_the_journal_unavailable(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(line + b'\n{"clear":"a"}\n')
    journal = FileJournal(path)
    with pytest.raises(JournalUnavailable, match="damaged"):
        journal.pending()
    journal.close()


def test_a_long_file_is_written_anew_and_keeps_its_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel._file_journal.COMPACT_LINES", 10)
    path = tmp_path / "journal"
    journal = FileJournal(path)
    journal.begin(entry("kept"))
    for number in range(50):
        journal.begin(entry(str(number)))
        journal.clear(str(number))
    assert journal.pending() == [entry("kept")]
    journal.close()
    assert path.read_bytes().count(b"\n") < 20
    again = FileJournal(path)
    assert again.pending() == [entry("kept")]
    again.close()


def transport_that_must_not_be_used(request: httpx.Request) -> httpx.Response:
    raise AssertionError("a request was sent")


def test_nothing_is_sent_if_the_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = FileJournal(tmp_path / "journal")
    assert journal.pending() == []

    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    http = httpx.Client(transport=httpx.MockTransport(transport_that_must_not_be_used))
    client = Client(["https://pay.example"], http=http, journal=journal)
    with pytest.raises(JournalUnavailable, match="No space left"):
        client.send("POST", URL, json={}, intent="a")
    journal.close()


@DURABLE
def test_the_entry_is_durable_before_the_first_send(make: MakeJournal, tmp_path: Path) -> None:
    seen: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        # Another reader of the file finds the key while the request is under way.
        seen.append((tmp_path / "journal").read_bytes())
        key = request.headers["Idempotency-Key"].strip('"')
        assert key.encode() in seen[-1]
        return httpx.Response(201, headers={"Idempotency-Operation-Id": "op_1"})

    journal = make(tmp_path / "journal")
    http = httpx.Client(transport=httpx.MockTransport(answer))
    outcome = Client(["https://pay.example"], http=http, journal=journal).send("POST", URL, json={}, intent="a")
    assert isinstance(outcome, Final)
    assert len(seen) == 1
    assert journal.pending() == []
    journal.close()


def test_an_outcome_is_not_lost_with_the_journal(tmp_path: Path) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        with sqlite3.connect(tmp_path / "journal") as database:
            database.execute("DROP TABLE semel_journal")
        database.close()
        return httpx.Response(201, headers={"Idempotency-Operation-Id": "op_1"})

    journal = SqliteJournal(tmp_path / "journal")
    http = httpx.Client(transport=httpx.MockTransport(answer))
    outcome = Client(["https://pay.example"], http=http, journal=journal).send("POST", URL, json={}, intent="a")
    assert isinstance(outcome, Final)
    journal.close()


def test_an_intent_needs_a_journal() -> None:
    http = httpx.Client(transport=httpx.MockTransport(transport_that_must_not_be_used))
    with pytest.raises(JournalUnavailable, match="no journal"):
        Client(["https://pay.example"], http=http).send("POST", URL, json={}, intent="a")


# A process that is killed by the server while it waits for the answer.
VICTIM = """
import sys, semel
journal = getattr(semel, sys.argv[1])(sys.argv[2])
semel.Client([sys.argv[3]], journal=journal).send("POST", sys.argv[3] + "/payments", json={"n": 1}, intent="a")
"""


@DURABLE
def test_a_process_that_is_killed_after_the_send_is_resumed_with_the_same_key(
    make: type[FileJournal] | type[SqliteJournal], tmp_path: Path
) -> None:
    keys: list[str] = []
    victim: subprocess.Popen[bytes]
    started = threading.Event()

    class Killer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keys.append(self.headers["Idempotency-Key"])
            if len(keys) == 1:
                started.wait()
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                return
            self.send_response(201)
            self.send_header("Idempotency-Operation-Id", "op_1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    server = HTTPServer(("127.0.0.1", 0), Killer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_port}"
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, make.__name__, str(tmp_path / "journal"), origin])
    started.set()
    assert victim.wait() == -signal.SIGKILL
    journal = make(tmp_path / "journal")
    with Client([origin], journal=journal) as client:
        assert [entry.intent for entry in client.pending()] == ["a"]
        outcome = client.resume("a", "POST", f"{origin}/payments", json={"n": 1})
        assert isinstance(outcome, Final)
        assert client.pending() == []
    assert len(keys) == 2
    assert keys[0] == keys[1]
    journal.close()
    server.shutdown()
    server.server_close()
