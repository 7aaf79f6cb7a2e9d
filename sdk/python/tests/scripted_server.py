"""A server on loopback that gives the answers of a case, one request at a time, faults of the connection included."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ITEM_FIELD = "x-case-item"


@dataclass(frozen=True)
class Received:
    """Request that the server has read whole."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


class ScriptedServer:
    """Server whose requests name the item to answer with."""

    def __init__(self, profile: str, advance: Callable[[int], None], jump: Callable[[int], None]) -> None:
        self._profile = profile
        self._advance = advance
        self._jump = jump
        self._items: list[dict[str, Any]] = []
        self.received: dict[int, Received] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.authority = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.origin = f"http://{self.authority}"
        threading.Thread(target=self._accept, daemon=True).start()

    def add(self, item: dict[str, Any]) -> int:
        """Adds an item; returns the number by which a request asks for it."""
        self._items.append(item)
        return len(self._items) - 1

    def close(self) -> None:
        """Closes every connection."""
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            stream = connection.makefile("rb")
            while self._exchange(connection, stream):
                pass
        except OSError:
            pass
        finally:
            connection.close()

    def _exchange(self, connection: socket.socket, stream: Any) -> bool:
        """Answers one request; returns false if the connection is over."""
        line = stream.readline().decode("latin-1").split()
        if len(line) != 3:
            return False
        headers: list[tuple[str, str]] = []
        while header := stream.readline().decode("latin-1").rstrip("\r\n"):
            name, _, value = header.partition(":")
            headers.append((name.lower(), value.strip()))
        fields = dict(headers)
        body = stream.read(int(fields.get("content-length", "0")))
        number = int(fields.pop(ITEM_FIELD))
        self.received[number] = Received(line[0], line[1], headers, body)
        item = self._items[number]
        self._advance(item.get("elapse", 0))
        self._jump(item.get("jump", 0))
        fault = item.get("fault")
        if fault in ("reset", "cancel"):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.close()
            connection.close()
            return False
        if fault == "close":
            stream.close()
            connection.shutdown(socket.SHUT_RDWR)
            return False
        if fault == "garbage":
            connection.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            return False
        if fault == "cut":
            connection.sendall(self._head(item, [], 100) + b"x" * 10)
            stream.close()
            connection.shutdown(socket.SHUT_RDWR)
            return False
        content, own = self._content(item)
        connection.sendall(self._head(item, own, len(content)) + content)
        return True

    def _head(self, item: dict[str, Any], own: list[tuple[str, str]], length: int) -> bytes:
        fields: list[tuple[str, str]] = []
        for name, value in item.get("headers", {}).items():
            fields += [(name, one) for one in (value if isinstance(value, list) else [value])]
        given = {name.lower() for name, _ in fields}
        fields += [(name, value) for name, value in own if name.lower() not in given]
        fields.append(("Content-Length", str(length)))
        lines = [f"HTTP/1.1 {item['status']} Scripted"]
        lines += [f"{name}: {value.replace('$origin', self.origin)}" for name, value in fields]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _content(self, item: dict[str, Any]) -> tuple[bytes, list[tuple[str, str]]]:
        """Returns the body of an answer, and the header fields that belong to it."""
        if "problem" in item:
            return self._problem(item)
        if "bodySize" in item:
            return b"x" * item["bodySize"], []
        body = item.get("body", "")
        if isinstance(body, str):
            return body.encode(), []
        return json.dumps(body).encode(), [("Content-Type", "application/json")]

    def _problem(self, item: dict[str, Any]) -> tuple[bytes, list[tuple[str, str]]]:
        code: str = item["problem"]
        about: dict[str, str] = {}
        if "operation" in item:
            about["operationId"] = item["operation"]
            url = item.get("operationUrl", f"/.well-known/semel/operations/{item['operation']}")
            about["operationUrl"] = url.replace("$origin", self.origin)
        if self._profile == "stripe":
            envelope = {"type": "api_error", "code": code.lower(), "message": "as scripted", **about}
            return json.dumps({"error": envelope}).encode(), [("Content-Type", "application/json")]
        document = {
            "type": "urn:semel:problem:" + code.lower().replace("_", "-"),
            "title": "A problem",
            "status": item["status"],
            "detail": "as scripted",
            "code": code,
            **about,
        }
        return json.dumps(document).encode(), [("Content-Type", "application/problem+json")]
