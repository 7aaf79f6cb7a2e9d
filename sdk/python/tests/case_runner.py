"""Runs one case of the shared table, with the client for threads or the one for asyncio."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from pathlib import Path
from typing import Any

import httpx
from harness import AsyncScriptedTransport, ManualClock, Script, ScriptedTransport, Sent
from scripted_server import ScriptedServer

from semel import (
    Accepted,
    AnswerError,
    AsyncClient,
    AttemptEvent,
    Client,
    FileJournal,
    Final,
    NotExecuted,
    Options,
    Outcome,
    SemelError,
    SqliteJournal,
    Unknown,
    Unresolved,
)

DEFAULT_NOW = 1_800_000_000_000
CASE_MEMBERS = {"name", "profile", "origins", "options", "random", "now", "journal", "calls"}
CALL_MEMBERS = {
    "do", "request", "server", "cancelInWait", "cancelBefore", "options", "origins", "cut", "append", "by", "expect",
}  # fmt: skip
REQUEST_MEMBERS = {"method", "path", "url", "body", "headers", "key", "intent"}
ITEM_MEMBERS = {
    "status",
    "headers",
    "body",
    "problem",
    "operation",
    "operationUrl",
    "bodySize",
    "fault",
    "elapse",
    "jump",
}
EXPECT_MEMBERS = {
    "outcome", "status", "body", "replayed", "operation", "expires", "attempts", "stopped", "last", "requests",
    "waits", "journal", "hook", "tokens",
}  # fmt: skip
SENT_MEMBERS = {"method", "path", "key", "headers", "body"}
SECONDS = {
    "base": "base",
    "cap": "cap",
    "deadline": "deadline",
    "attemptTimeout": "attempt_timeout",
    "retryAfterMax": "retry_after_max",
    "maxAge": "max_age",
}
COUNTS = {
    "attempts": "attempts",
    "budgetTokens": "budget_tokens",
    "budgetCost": "budget_cost",
    "budgetReturn": "budget_return",
    "responseBound": "response_bound",
    "onAccepted": "on_accepted",
}


def check_members(found: dict[str, Any], known: set[str]) -> None:
    """Fails for a member that no runner would look at."""
    assert set(found) <= known, f"unknown members: {set(found) - known}"


class CaseRun:
    """One case with one kind of client and of journal."""

    def __init__(self, case: dict[str, Any], is_async: bool, journal: str | None, folder: Path) -> None:
        check_members(case, CASE_MEMBERS)
        self._case = case
        self._is_async = is_async
        self._journal_kind = journal
        missing = "absent/journal" if case.get("journal") == "unwritable" else "journal"
        self._journal_path = folder / missing
        self._profile = case.get("profile", "semel")
        self._clock = ManualClock(case.get("now", DEFAULT_NOW))
        self._server = ScriptedServer(self._profile, self._clock.advance, self._clock.jump)
        self._script = Script(self._server, self._clock)
        self._draws = list(case.get("random", [0.5]))
        self._events: list[AttemptEvent] = []
        self._keys: list[str] = []
        self._loop = asyncio.new_event_loop() if is_async else None
        self._options: dict[str, Any] = dict(case.get("options", {}))
        self._origins: list[str] = case.get("origins", ["$server"])
        self._journal: FileJournal | SqliteJournal | None = None
        self._client: Client | AsyncClient | None = None

    def run(self) -> None:
        """Makes every call of the case, and checks what it did."""
        try:
            self._start()
            for number, call in enumerate(self._case["calls"], 1):
                check_members(call, CALL_MEMBERS)
                try:
                    self._call(call)
                except AssertionError as error:
                    raise AssertionError(f"call {number}: {error}") from error
        finally:
            self._stop()
            self._server.close()
            if self._loop is not None:
                # httpx leaves generators behind where an answer is not read to its end.
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
                self._loop.close()

    def _start(self) -> None:
        seconds = {SECONDS[name]: value / 1000 for name, value in self._options.items() if name in SECONDS}
        counts = {COUNTS[name]: value for name, value in self._options.items() if name in COUNTS}
        check_members(self._options, {*SECONDS, *COUNTS, "caller"})
        if self._journal_kind is not None:
            is_file = self._journal_kind == "file"
            self._journal = FileJournal(self._journal_path) if is_file else SqliteJournal(self._journal_path)
        arguments: dict[str, Any] = {
            "origins": [origin.replace("$server", self._server.origin) for origin in self._origins],
            "profile": self._profile,
            "options": Options(**seconds, **counts),
            "journal": self._journal,
            "caller": self._options.get("caller", ""),
            "on_attempt": self._events.append,
            "clock": self._clock,
            "random": self._draw,
        }
        if self._is_async:
            http = httpx.AsyncClient(transport=AsyncScriptedTransport(lambda: self._script), trust_env=False)
            self._client = AsyncClient(http=http, **arguments)
            self._http: Any = http
        else:
            self._http = httpx.Client(transport=ScriptedTransport(lambda: self._script), trust_env=False)
            self._client = Client(http=self._http, **arguments)

    def _stop(self) -> None:
        if self._journal is not None:
            self._journal.close()
        if self._client is not None:
            self._wait_for(self._http.aclose()) if self._is_async else self._http.close()
        self._client = None

    def _wait_for(self, awaitable: Any) -> Any:
        assert self._loop is not None
        return self._loop.run_until_complete(awaitable)

    def _draw(self) -> float:
        return float(self._draws.pop(0) if len(self._draws) > 1 else self._draws[0])

    def _call(self, call: dict[str, Any]) -> None:
        match call["do"]:
            case "send" | "resume":
                self._send(call)
            case "pending":
                self._check_journal(call["expect"]["journal"])
            case "restart":
                self._stop()
                self._options |= call.get("options", {})
                self._origins = call.get("origins", self._origins)
                self._start()
            case "tear_journal":
                self._stop()
                self._tear(call)
            case "jump_clock":
                self._clock.jump(call["by"])
            case "advance_clock":
                self._clock.advance(call["by"])
            case other:
                raise AssertionError(f"unknown call {other}")

    def _tear(self, call: dict[str, Any]) -> None:
        content = self._journal_path.read_bytes()
        if call.get("cut"):
            start = content[:-1].rfind(b"\n") + 1
            content = content[: start + (len(content) - start) // 2]
        content += call.get("append", "").encode()
        self._journal_path.write_bytes(content)

    def _send(self, call: dict[str, Any]) -> None:
        for item in call.get("server", []):
            check_members(item, ITEM_MEMBERS)
        self._script = Script(self._server, self._clock, [dict(item) for item in call.get("server", [])])
        self._clock.waits.clear()
        self._events.clear()
        self._clock.cancel_in_wait = call.get("cancelInWait")
        if call.get("cancelBefore"):
            self._script.cancellation.cancel()
        request = call.get("request", {})
        check_members(request, REQUEST_MEMBERS)
        ended = self._outcome(call["do"], request)
        assert self._script.surplus == 0, f"a request beyond the script: {self._script.sent}"
        assert not self._script.items, f"items that were not asked for: {self._script.items}"
        for sent in self._script.sent:
            received = self._server.received.get(sent.item)
            assert received is None or received.body == sent.body, "the server read another body"
        self._check_always(request)
        expect = call["expect"]
        check_members(expect, EXPECT_MEMBERS)
        self._check_outcome(expect, ended)
        self._check_requests(expect)
        self._check_rest(expect)
        self._keys += [self._key(sent) for sent in self._script.sent if self._key(sent)]

    def _outcome(self, do: str, request: dict[str, Any]) -> Outcome | SemelError:
        body = request.get("body", {"amount": 5})
        arguments: dict[str, Any] = {
            "headers": request.get("headers", {}),
            "cancellation": self._script.cancellation,
        }
        if body is not None:
            arguments["content" if isinstance(body, str) else "json"] = body
        method = request.get("method", "POST")
        url = request.get("url", self._server.origin + request.get("path", "/payments"))
        client: Any = self._client
        try:
            if do == "send":
                sent = client.send(method, url, key=request.get("key"), intent=request.get("intent"), **arguments)
            else:
                sent = client.resume(request["intent"], method, url, **arguments)
            outcome: Outcome = self._wait_for(sent) if self._is_async else sent
        except SemelError as error:
            return error
        return outcome

    @staticmethod
    def _key(sent: Sent) -> str:
        return str(sent.headers.get("Idempotency-Key", ""))

    def _check_always(self, request: dict[str, Any]) -> None:
        commands = [sent for sent in self._script.sent if sent.method == request.get("method", "POST")]
        sames = {(sent.target, self._key(sent), sent.body) for sent in commands}
        assert len(sames) <= 1, f"the attempts differ: {sames}"
        for sent in self._script.sent:
            if "url" not in request:
                assert sent.authority == self._server.authority, "a request to another address"
            if sent.method == "GET":
                assert not self._key(sent), "a GET with a key"
                assert not sent.body, "a GET with a body"
            deadline = sent.headers.get("Semel-Deadline")
            if self._key(sent) and self._profile == "semel":
                assert deadline is not None, "no Semel-Deadline"
                assert deadline.isdecimal(), deadline
                assert int(deadline) > 0, deadline
            else:
                assert deadline is None, "Semel-Deadline where none belongs"
            drawn = "key" not in request and "intent" not in request
            if drawn and self._key(sent) and not self._keys:
                text = self._key(sent)
                bare = text if self._profile == "stripe" else text[1:-1]
                assert uuid.UUID(bare).version == 7, "the key is no UUID of version 7"
                assert str(uuid.UUID(bare)) == bare, "the key is spelled in another way"

    def _check_outcome(self, expect: dict[str, Any], ended: Outcome | SemelError) -> None:
        words = {Final: "final", Unknown: "unknown", Accepted: "accepted", Unresolved: "unresolved"}
        word = f"error:{ended.kind}" if isinstance(ended, SemelError) else words[type(ended)]
        assert word == expect.get("outcome", word), f"{word}: {ended!r}"
        key = {self._key(sent) for sent in self._script.sent} - {""}
        assert not any(text.strip('"') in repr(ended) + str(ended) for text in key), "a key is shown"
        found: dict[str, Any] = {}
        if isinstance(ended, (Final, AnswerError)) and ended.response is not None:
            found["status"] = ended.response.status
            found["body"] = ended.response.text
        if isinstance(ended, Final):
            found |= {"replayed": ended.replayed, "operation": ended.operation_id, "expires": ended.expires}
        elif isinstance(ended, (Unknown, Accepted, Unresolved, AnswerError)):
            found["operation"] = ended.operation.id if ended.operation else None
        if isinstance(ended, (Final, Unknown, Accepted, Unresolved, NotExecuted)):
            found["attempts"] = ended.attempts
        if isinstance(ended, (Unresolved, NotExecuted)):
            found["stopped"] = ended.stopped
            last = ended.last
            found["last"] = {"reason": last.reason, "status": last.status, "code": last.code} if last else None
        for name in ("status", "replayed", "operation", "expires", "attempts", "stopped"):
            if name in expect:
                assert found.get(name) == expect[name], f"{name} is {found.get(name)!r}"
        if "body" in expect:
            self._check_body(found.get("body"), expect["body"])
        for name, value in (expect.get("last") or {}).items():
            assert found["last"] is not None, "there is no last attempt"
            assert found["last"][name] == value, f"last: {found['last']}"

    @staticmethod
    def _check_body(found: str | None, wanted: Any) -> None:
        same = found if isinstance(wanted, str) or found is None else json.loads(found)
        assert same == wanted, f"body is {found!r}"

    def _check_requests(self, expect: dict[str, Any]) -> None:
        wanted: list[dict[str, Any]] | None = expect.get("requests")
        if wanted is None:
            return
        sent = self._script.sent
        assert len(sent) == len(wanted), f"{len(sent)} requests: {sent}"
        earlier = list(self._keys)
        for one, item in zip(sent, wanted, strict=True):
            check_members(item, SENT_MEMBERS)
            assert one.method == item.get("method", one.method), one.method
            assert one.target == item.get("path", one.target), one.target
            self._check_key(self._key(one), item.get("key"), earlier)
            for name, value in item.get("headers", {}).items():
                assert one.headers.get(name) == value, f"{name} is {one.headers.get(name)!r}"
            if "body" in item:
                self._check_body(one.body.decode(), item["body"])
            earlier += [self._key(one)] if self._key(one) else []

    @staticmethod
    def _check_key(key: str, wanted: Any, earlier: list[str]) -> None:
        match wanted:
            case None:
                return
            case "absent":
                assert not key, "there is a key"
            case "same":
                assert key == earlier[0], "another key than the first"
            case "new":
                assert key, "no key"
                assert key not in earlier, "the key was used before"
            case {"is": text}:
                assert key == text, f"the key is {key}"
            case _:
                raise AssertionError(f"unknown expectation {wanted}")

    def _check_rest(self, expect: dict[str, Any]) -> None:
        if "waits" in expect:
            assert self._clock.waits == expect["waits"], f"waits are {self._clock.waits}"
        if "tokens" in expect:
            assert self._client is not None
            assert self._client.tokens == expect["tokens"], f"{self._client.tokens} tokens"
        if "journal" in expect:
            self._check_journal(expect["journal"])
        if "hook" in expect:
            assert len(self._events) == len(expect["hook"]), self._events
            for event, wanted in zip(self._events, expect["hook"], strict=True):
                found = {"number": event.number, "wait": round(event.wait * 1000), "reason": event.reason}
                assert {**found, **wanted} == found, f"hook: {found}"

    def _check_journal(self, wanted: list[str]) -> None:
        client: Any = self._client
        pending = self._wait_for(client.pending()) if self._is_async else client.pending()
        assert [entry.intent for entry in pending] == wanted, pending


def load_cases() -> list[dict[str, Any]]:
    """Returns the cases of the shared table."""
    folder = Path(os.environ.get("SEMEL_CASES", Path(__file__).parents[2] / "cases"))
    cases = [case for path in sorted(folder.glob("*.json")) for case in json.loads(path.read_text())["cases"]]
    names = [case["name"] for case in cases]
    assert len(names) == len(set(names)), "two cases have one name"
    return cases


def journals_for(case: dict[str, Any]) -> list[str | None]:
    """Returns the journals that a case is run with."""
    if not case.get("journal"):
        return [None]
    torn = any(call["do"] == "tear_journal" for call in case["calls"])
    return ["file"] if torn else ["file", "sqlite"]
