"""The retry budget: a token bucket that all calls of a client share."""

from __future__ import annotations

import threading


class RetryBudget:
    """Token bucket without time: retries take tokens, final outcomes put some back."""

    def __init__(self, tokens: int) -> None:
        self._full = tokens
        self._tokens = tokens
        self._lock = threading.Lock()

    @property
    def tokens(self) -> int:
        """The tokens that are left."""
        return self._tokens

    def take(self, cost: int) -> bool:
        """Takes the tokens of a retry; returns false, and takes none, if there are fewer."""
        with self._lock:
            if self._tokens < cost:
                return False
            self._tokens -= cost
            return True

    def put_back(self, tokens: int) -> None:
        """Puts tokens back, up to a full bucket."""
        with self._lock:
            self._tokens = min(self._full, self._tokens + tokens)
