"""Spans of OpenTelemetry, where its API is installed. No attribute holds a key, a path or a body."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from semel._call import AttemptEvent, log


def _tracer() -> Any:
    try:
        return importlib.import_module("opentelemetry.trace").get_tracer("semel")
    except ImportError:
        return None


class CallSpan:
    """Span of one call, with an event for each attempt; nothing without OpenTelemetry.

    A tracer that fails must not lose the outcome of a command that may have run.
    """

    def __init__(self, method: str, origin: str) -> None:
        self._span: Any = None
        with _guarded():
            tracer = _tracer()
            attributes = {"http.request.method": method, "server.address": origin}
            self._span = tracer.start_span(f"semel {method}", attributes=attributes) if tracer else None

    def attempt(self, event: AttemptEvent) -> None:
        """Adds the event of an attempt."""
        if self._span is not None:
            attributes = {
                "http.request.resend_count": event.number - 1,
                "semel.wait": event.wait,
                "semel.reason": event.reason,
            }
            with _guarded():
                self._span.add_event("attempt", attributes)

    def end(self, ending: str, attempts: int) -> None:
        """Ends the span."""
        if self._span is not None:
            with _guarded():
                self._span.set_attribute("semel.outcome", ending)
                self._span.set_attribute("semel.attempts", attempts)
                self._span.end()


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001
        log.warning("the tracer failed", exc_info=True)
