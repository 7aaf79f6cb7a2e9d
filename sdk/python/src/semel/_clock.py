"""Time and chance of a client, which tests replace; and cancellation, which ends a wait early."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Cancellation:
    """Signal from any thread or task that a caller no longer waits for its calls."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_cancelled(self) -> bool:
        """True once `cancel` was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Cancels every call that has this object."""
        with self._lock:
            self._event.set()
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def wait(self, seconds: float) -> bool:
        """Waits for the signal; returns false if the time is over first."""
        return self._event.wait(seconds)

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls the listener once the signal is given; at once if it was."""
        with self._lock:
            if not self._event.is_set():
                self._listeners.append(listener)
                return
        listener()

    def forget(self, listener: Callable[[], None]) -> None:
        """Removes a listener."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)


class Clock(Protocol):
    """Source of time. Times are in milliseconds."""

    def wall(self) -> int:
        """Returns the time since 1970, which can jump."""

    def monotonic(self) -> int:
        """Returns a time that only passes."""

    def sleep(self, milliseconds: int, cancellation: Cancellation) -> None:
        """Waits, until the cancellation at most."""

    async def sleep_async(self, milliseconds: int, cancellation: Cancellation) -> None:
        """Waits without blocking the event loop, until the cancellation at most."""

    async def expire_async(self, milliseconds: int, cancellation: Cancellation) -> None:
        """Returns when the time of an attempt is over, or on the cancellation."""


class SystemClock:
    """Clock of the machine."""

    def wall(self) -> int:
        """Returns the time since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        """Returns the time since some moment."""
        return time.monotonic_ns() // 1_000_000

    def sleep(self, milliseconds: int, cancellation: Cancellation) -> None:
        """Blocks the thread."""
        cancellation.wait(milliseconds / 1000)

    async def sleep_async(self, milliseconds: int, cancellation: Cancellation) -> None:
        """Suspends the task."""
        async with CancelledSignal(cancellation) as signal:
            try:
                await asyncio.wait_for(signal.wait(), milliseconds / 1000)
            except asyncio.TimeoutError:
                return

    async def expire_async(self, milliseconds: int, cancellation: Cancellation) -> None:
        """Suspends the task."""
        await self.sleep_async(milliseconds, cancellation)


class CancelledSignal:
    """Cancellation as an event of the running event loop."""

    def __init__(self, cancellation: Cancellation) -> None:
        self._cancellation = cancellation
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def _set(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            # The loop has ended, and nobody waits.
            return

    async def __aenter__(self) -> asyncio.Event:
        self._cancellation.listen(self._set)
        return self._event

    async def __aexit__(self, *_: object) -> None:
        self._cancellation.forget(self._set)
