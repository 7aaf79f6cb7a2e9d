"""The examples of the README, run against a server on loopback."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from semel import Client, JournalEntry, SqliteJournal

README = Path(__file__).parents[1] / "README.md"


class Payments(BaseHTTPRequestHandler):
    """Service that takes payments, and counts them by key."""

    keys: list[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.keys.append(self.headers["Idempotency-Key"])
        content = json.dumps({"id": len(self.keys), **body}).encode()
        self.send_response(201)
        self.send_header("Idempotency-Operation-Id", f"op_{len(self.keys)}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


def pending(names: dict[str, object]) -> list[JournalEntry]:
    journal = names["journal"]
    assert isinstance(journal, SqliteJournal)
    return journal.pending()


def close(names: dict[str, object]) -> None:
    for name in ("client", "journal"):
        closing = names[name]
        assert isinstance(closing, (Client, SqliteJournal))
        closing.close()


def test_the_examples_run_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Payments.keys = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Payments)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_port}"
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block.replace("https://pay.example", origin), str(README), "exec"), names)
    close(names)
    sent = len(Payments.keys)
    # A process that ends before the entry is cleared, and the next one.
    with monkeypatch.context() as patched:
        patched.setattr(SqliteJournal, "clear", lambda *_: None)
        exec(compile(blocks[1].replace("https://pay.example", origin), str(README), "exec"), names)
        assert [entry.intent for entry in pending(names)] == ["invoice 4711"]
        close(names)
    exec(compile(blocks[1].replace("https://pay.example", origin), str(README), "exec"), names)
    assert pending(names) == []
    close(names)
    assert Payments.keys[sent:] == ['"invoice-4711-payment"'] * 2
    del Payments.keys[sent:]
    server.shutdown()
    server.server_close()
    assert len(blocks) == 4
    assert len(Payments.keys) == len(set(Payments.keys)) == 4
    assert Payments.keys[1] == '"invoice-4711-payment"'
    assert Payments.keys[-1] == '"order-4711-0000001"'
    assert (tmp_path / "commands.db").exists()
    assert "201 {'id': 1, 'amount': 500}" in capsys.readouterr().out
