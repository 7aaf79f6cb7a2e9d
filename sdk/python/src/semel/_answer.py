"""Answers of the server: a whole response, the code of its problem, and the operation that it names."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from semel._options import Profile
from semel._origin import is_of_origin, resolve

OPERATIONS_PATH = "/.well-known/semel/operations/"
OPERATION_ID = "Idempotency-Operation-Id"
EXPIRES = "Idempotency-Expires"
ADVICE = "Idempotency-Retry"
BODY = "Idempotency-Body"
REPLAYED: dict[Profile, str] = {
    "semel": "Idempotency-Replayed",
    "ietf": "Idempotency-Replayed",
    "stripe": "Idempotent-Replayed",
}

NOT_RETAINED = "IDEMPOTENCY_RESPONSE_NOT_RETAINED"
PROBLEM_TYPE = "urn:semel:problem:"

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SECONDS = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Response:
    """Whole response of the server, with its body in memory, as it was sent: a `Content-Encoding` is not undone."""

    status: int
    headers: httpx.Headers
    content: bytes

    @property
    def text(self) -> str:
        """The body as UTF-8 text; bytes that are not UTF-8 are replaced."""
        return self.content.decode("utf-8", errors="replace")

    def json(self) -> Any:
        """Returns the body as parsed JSON."""
        return json.loads(self.content)


@dataclass(frozen=True)
class Operation:
    """Operation of a command at the server: its id, and the address to ask for it."""

    id: str
    url: str | None
    """The address; `None` if the server named one of another origin, which is not to be trusted."""

    @classmethod
    def at(cls, identifier: str, url: str, base: str) -> Operation:
        """Returns the operation that a response to the address `base` names."""
        return cls(identifier, url if is_of_origin(url, base) else None)


@dataclass(frozen=True)
class Problem:
    """Code of a problem document, and the operation that the document names."""

    code: str
    operation_id: str | None
    operation_url: str | None


def document_of(response: Response) -> dict[str, Any] | None:
    """Returns the JSON object of a response; `None` if its body is none."""
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        return None
    try:
        document = json.loads(response.content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def problem_of(response: Response, profile: Profile) -> Problem | None:
    """Returns the server's own problem; `None` if the document is the handler's, or no problem."""
    document = document_of(response)
    if document is None:
        return None
    if str(document.get("type", "")).startswith(PROBLEM_TYPE):
        members, code = document, document.get("code")
    elif profile == "stripe" and isinstance(document.get("error"), dict):
        members = document["error"]
        code = _code_of_envelope(members)
    else:
        return None
    if not isinstance(code, str):
        return None
    # A body with the mark of an operation is the handler's own, apart from this one.
    if OPERATION_ID in response.headers and code != NOT_RETAINED:
        return None
    return Problem(code, _text(members.get("operationId")), _text(members.get("operationUrl")))


def _code_of_envelope(error: dict[str, Any]) -> str | None:
    if error.get("type") == "idempotency_error":
        return "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"
    code = error.get("code")
    if not isinstance(code, str):
        return None
    return "IDEMPOTENCY_REQUEST_IN_PROGRESS" if code == "idempotency_key_in_use" else code.upper()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def operation_of(response: Response, problem: Problem | None, base: str) -> Operation | None:
    """Returns the operation that a response to the address `base` names."""
    named = problem.operation_id if problem else None
    identifier = named or response.headers.get(OPERATION_ID, "")
    if not _ID.fullmatch(identifier):
        return None
    reference = (problem.operation_url if problem else None) or OPERATIONS_PATH + identifier
    url = resolve(base, reference)
    return Operation.at(identifier, url, base) if url is not None else None


def retry_after_ms(response: Response, wall_ms: int) -> int | None:
    """Returns the delay that `Retry-After` asks for, in milliseconds; `None` if there is none that can be read."""
    value = response.headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(value):
        # More digits are a longer time than any call waits, and than Python reads.
        return int(value.lstrip("0")[:10] or "0") * 1000
    try:
        date = parsedate_to_datetime(value)
        # A date without a zone is not an HTTP date.
        if date.tzinfo is None:
            return None
        return max(0, round(date.timestamp() * 1000) - wall_ms)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
