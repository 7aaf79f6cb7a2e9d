"""Random numbers of a client, which are taken one by one only when a wait needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Draws:
    """Random source that can be looked at before it is used up, so that the decision stays a pure function."""

    def __init__(self, source: Callable[[], float]) -> None:
        self._source = source
        self._next: float | None = None
        self._lock = threading.Lock()

    def peek(self) -> float:
        """Returns the next number, at least 0 and below 1."""
        with self._lock:
            if self._next is None:
                self._next = self._source()
            return self._next

    def take(self) -> None:
        """Uses the number up."""
        with self._lock:
            self._next = None
