"""What both clients share: the settings, the preparation of a command, and the end of a call."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

from semel._budget import RetryBudget
from semel._call import AttemptEvent, AttemptHook, CallContext, CallEnd, CallStep, call, log
from semel._clock import Cancellation, Clock, SystemClock
from semel._command import Command
from semel._decide import Rules
from semel._draws import Draws
from semel._key import MIN_KEY_LENGTH, draw_key, fault_of_key
from semel._options import CLOCK_TOLERANCE_MS, Options, Profile, milliseconds
from semel._origin import origin_of
from semel._telemetry import CallSpan
from semel.errors import BadKey, JournalUnavailable, RequestChanged, UnnamedOrigin
from semel.journal import Journal, JournalEntry, entry_to_resume
from semel.outcome import Outcome


def _no_hook(_: AttemptEvent) -> None:
    return


@dataclass(frozen=True)
class Prepared:
    """Call that is ready to be made."""

    steps: CallStep
    span: CallSpan
    cancellation: Cancellation
    intent: str | None


class ClientCore:
    """Settings and shared state of a client."""

    def __init__(
        self,
        origins: Collection[str],
        profile: Profile,
        options: Options | None,
        journal: Journal | None,
        caller: str,
        on_attempt: AttemptHook | None,
        clock: Clock | None,
        random_source: Callable[[], float] | None,
    ) -> None:
        if isinstance(origins, str):
            raise ValueError("origins must be a collection of origins, not one text")
        if profile not in MIN_KEY_LENGTH:
            raise ValueError("the profile must be 'semel', 'ietf' or 'stripe'")
        self.profile = profile
        self.origins = frozenset(_origin(text) for text in origins)
        self.options = options or Options()
        self.caller = caller
        self.budget = RetryBudget(self.options.budget_tokens)
        self.clock = clock or SystemClock()
        self._journal = journal
        self._hook = on_attempt or _no_hook
        # Not for keys, which are drawn from the system's own source.
        self._draws = Draws(random_source or random.SystemRandom().random)

    @property
    def journal(self) -> Journal:
        """The journal; raises if the client has none."""
        if self._journal is None:
            raise JournalUnavailable("this client has no journal")
        return self._journal

    def prepare(
        self, command: Command, key: str | None, intent: str | None, cancellation: Cancellation | None
    ) -> Prepared:
        """Checks a new command, draws its key, and writes its journal entry."""
        if not self._is_named(command):
            if key is not None or intent is not None:
                raise UnnamedOrigin("this client sends keys to its origins only, and with commands only")
            return self._prepared(command, None, None, False, cancellation)
        command.refuse_own_key()
        if key is None:
            key = draw_key(self.clock.wall())
        fault = fault_of_key(key, self.profile)
        if fault is not None:
            raise BadKey(fault)
        if intent is not None:
            entry = JournalEntry(intent, key, command.digest(), command.origin, self.caller, self.clock.wall())
            self.journal.begin(entry)
        return self._prepared(command, key, intent, False, cancellation)

    def prepare_again(self, intent: str, command: Command, cancellation: Cancellation | None) -> Prepared:
        """Checks a command against its journal entry."""
        if not self._is_named(command):
            raise UnnamedOrigin("this client sends keys to its origins only, and with commands only")
        command.refuse_own_key()
        max_age = milliseconds(self.options.max_age)
        now = self.clock.wall()
        entry = entry_to_resume(self.journal, intent, self.caller, now, max_age, CLOCK_TOLERANCE_MS)
        if entry.digest != command.digest():
            raise RequestChanged(f"the request is not the one that the intent {intent!r} was begun with")
        return self._prepared(command, entry.key, intent, True, cancellation)

    def clear_settled(self, prepared: Prepared, end: CallEnd) -> None:
        """Clears the journal entry of a command that is settled.

        A failure loses nothing: the entry stays, and a resumed command is answered again.
        """
        if prepared.intent is None or not end.settles:
            return
        try:
            self.journal.clear(prepared.intent, end.key)
        except JournalUnavailable:
            log.warning("the journal entry of a settled command could not be cleared")

    def finish(self, prepared: Prepared, end: CallEnd) -> Outcome:
        """Returns the outcome of a call, or raises its error."""
        prepared.span.end(end.finish.ending, end.state.attempts)
        return end.outcome()

    def _is_named(self, command: Command) -> bool:
        return command.origin in self.origins and not command.is_safe

    def _prepared(
        self,
        command: Command,
        key: str | None,
        intent: str | None,
        resumed: bool,
        cancellation: Cancellation | None,
    ) -> Prepared:
        span = CallSpan(command.method, command.origin)

        def observe(event: AttemptEvent) -> None:
            span.attempt(event)
            self._hook(event)

        given = cancellation or Cancellation()
        context = CallContext(
            rules=Rules.of(self.options, self.profile, key is not None, command.url),
            attempt_timeout=milliseconds(self.options.attempt_timeout),
            budget=self.budget,
            budget_return=self.options.budget_return,
            clock=self.clock,
            draws=self._draws,
            cancellation=given,
            hook=observe,
        )
        return Prepared(call(context, command, key, resumed), span, given, intent)


def _origin(text: str) -> str:
    origin = origin_of(text)
    if origin is None:
        raise ValueError(f"{text!r} is no origin such as 'https://api.example.org'")
    return origin
