"""A command: one request whose body is serialised once, so that every attempt sends the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass, field

import httpx

from semel._origin import origin_of
from semel.errors import BadKey, BodyNotReplayable

# What httpx sends of itself.
with httpx.Client(transport=httpx.BaseTransport(), trust_env=False) as _client:
    DEFAULT_ENCODINGS = _client.headers["Accept-Encoding"].encode("ascii")

# Methods that are never commands (RFC 9110, section 9.2.1).
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


@dataclass(frozen=True)
class Command:
    """Request with its whole body in memory."""

    method: str
    url: str
    origin: str
    headers: list[tuple[bytes, bytes]] = field(repr=False)
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, request: httpx.Request, body: bytes) -> Command:
        """Returns the command of a request whose body was read."""
        url = str(request.url.copy_with(fragment=None))
        origin = origin_of(url)
        if origin is None:
            raise ValueError("the address must be an absolute http or https address")
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"transfer-encoding"]
        if not any(name.lower() == b"content-length" for name, _ in headers) and body:
            headers.append((b"Content-Length", str(len(body)).encode("ascii")))
        # A compressed answer could be larger than any bound: none is asked for, unless the caller has asked for it.
        headers = [(n, v) for n, v in headers if n.lower() != b"accept-encoding" or v != DEFAULT_ENCODINGS]
        if not any(name.lower() == b"accept-encoding" for name, _ in headers):
            headers.append((b"Accept-Encoding", b"identity"))
        return cls(request.method.upper(), url, origin, headers, body)

    @property
    def is_safe(self) -> bool:
        """True if the method is never a command's."""
        return self.method in SAFE_METHODS

    def field_values(self, name: bytes) -> list[bytes]:
        """Returns the values of a header field, whose name is given in lower case."""
        return [value for other, value in self.headers if other.lower() == name]

    def refuse_own_key(self) -> None:
        """Raises if the header fields have a key of their own."""
        if self.field_values(b"idempotency-key"):
            raise BadKey("give the key as the argument `key`, not as a header field")

    def poll_headers(self) -> list[tuple[bytes, bytes]]:
        """Returns the header fields for questions about the operation: all but those of the body."""
        return [(name, value) for name, value in self.headers if not name.lower().startswith(b"content-")]

    def digest(self) -> str:
        """Returns the digest of method, address, content type and body, for the journal."""
        content_type = b", ".join(self.field_values(b"content-type"))
        fields = (self.method.encode("ascii"), self.url.encode("utf-8"), content_type, self.body)
        hashed = hashlib.sha256()
        for value in fields:
            hashed.update(len(value).to_bytes(8, "big"))
            hashed.update(value)
        return hashed.hexdigest()


def body_in_memory(request: httpx.Request, buffer: bool) -> bytes | None:
    """Returns the body if it is in memory; `None` if it is a stream that may be buffered."""
    try:
        return request.content
    except httpx.RequestNotRead:
        if buffer:
            return None
    raise BodyNotReplayable("the body is a stream: give it as bytes, or allow it to be buffered with `buffer=True`")


def read_stream(request: httpx.Request, bound: int) -> bytes:
    """Reads a stream into memory."""
    if not isinstance(request.stream, Iterable):
        raise BodyNotReplayable("the body is an asynchronous stream, which only AsyncClient can buffer")
    read = bytearray()
    for chunk in request.stream:
        read += chunk
        _check_bound(read, bound)
    return bytes(read)


async def read_stream_async(request: httpx.Request, bound: int) -> bytes:
    """Reads a stream into memory without blocking the event loop."""
    if not isinstance(request.stream, AsyncIterable):
        return read_stream(request, bound)
    read = bytearray()
    async for chunk in request.stream:
        read += chunk
        _check_bound(read, bound)
    return bytes(read)


def _check_bound(read: bytearray, bound: int) -> None:
    if len(read) > bound:
        raise BodyNotReplayable(f"the body is larger than the {bound} bytes that may be buffered")
