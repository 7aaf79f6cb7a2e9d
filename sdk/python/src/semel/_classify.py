"""Meaning of one whole answer: the table of the contract, as a pure function."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from semel._answer import (
    ADVICE,
    BODY,
    NOT_RETAINED,
    OPERATION_ID,
    OPERATIONS_PATH,
    REPLAYED,
    Operation,
    Problem,
    Response,
    operation_of,
    problem_of,
)
from semel._options import Profile
from semel._origin import path_of, resolve
from semel.outcome import Stopped

# Problems after which the same request may be sent again, and that ran nothing themselves.
NOTHING_RAN = frozenset(
    {
        "IDEMPOTENCY_KEY_QUOTA_EXCEEDED",
        "LOOKUP_QUOTA_EXCEEDED",
        "REQUEST_INCOMPLETE",
        "AUTHORIZATION_UNAVAILABLE",
        "IDEMPOTENCY_STORE_UNAVAILABLE",
        "SHUTTING_DOWN",
        "IDEMPOTENCY_HELD",
        "OVERLOADED",
        "UPSTREAM_UNREACHABLE",
        "COMMAND_ROLLED_BACK",
        "REQUEST_HEAD_TIMEOUT",
        "DEADLINE_EXCEEDED",
    }
)
# Problems after which the same request may be sent again, about a command that runs or ran.
ALREADY_BEGUN = frozenset({"IDEMPOTENCY_REQUEST_IN_PROGRESS", "IDEMPOTENCY_RESULT_UNAVAILABLE"})

SAME_KEY = NOTHING_RAN | ALREADY_BEGUN

REFUSALS = {
    "DUPLICATE_BUSINESS_REFERENCE": "duplicate_business_reference",
    "IDEMPOTENCY_RECORD_EXPIRED": "record_expired",
    "IDEMPOTENCY_RESPONSE_UNREADABLE": "response_unreadable",
    "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST": "key_reused",
    "INVALID_IDEMPOTENCY_KEY": "bad_key",
    "MISSING_IDEMPOTENCY_KEY": "bad_key",
}


class Meaning(enum.Enum):
    """What an answer says about the command."""

    OUTCOME = enum.auto()
    """The command's own outcome, whatever happened before."""
    REPLAYED = enum.auto()
    """The command's own outcome, given again."""
    NOT_RETAINED = enum.auto()
    """The command's own outcome, without the body of its response."""
    FINAL_IF_CLEAR = enum.auto()
    """Final, unless the command may have run before."""
    REFUSED = enum.auto()
    """A typed refusal, unless the command may have run before."""
    STOP = enum.auto()
    """Neither an outcome nor a reason to try again."""
    RETRY = enum.auto()
    """Send the same request again."""
    POLL = enum.auto()
    """Ask for the operation."""
    ACCEPTED = enum.auto()
    """The command is accepted: ask for the operation, or return it."""


@dataclass(frozen=True)
class Verdict:
    """Meaning of an answer, and the facts that the decision needs."""

    meaning: Meaning
    ambiguous: bool = False
    """True if the command may have run, as far as this answer tells."""
    refusal: str = ""
    """Kind of the error of a refusal."""
    stopped: Stopped = "answer"
    """Why the call ends, if the refusal or the stop leaves it unresolved."""
    operation: Operation | None = None
    code: str | None = None


def classify(profile: Profile, url: str, response: Response) -> Verdict:
    """Returns the meaning of an answer to a command that was sent to `url`."""
    problem = problem_of(response, profile)
    operation = operation_of(response, problem, url)
    code = problem.code if problem else None

    def verdict(meaning: Meaning, ambiguous: bool = False, refusal: str = "", stopped: Stopped = "answer") -> Verdict:
        return Verdict(meaning, ambiguous, refusal, stopped, operation, code)

    headers, status = response.headers, response.status
    if headers.get(BODY, "").strip().lower() == "not-retained" or code == NOT_RETAINED:
        return verdict(Meaning.NOT_RETAINED)
    if headers.get(REPLAYED[profile], "").strip().lower() == "true":
        return verdict(Meaning.REPLAYED)
    if code in REFUSALS:
        return verdict(Meaning.REFUSED, refusal=REFUSALS[code])
    if code in ("UNAUTHENTICATED", "FORBIDDEN") and problem and problem.operation_id:
        return verdict(Meaning.STOP, ambiguous=True)

    advice = headers.get(ADVICE, "").strip().lower()
    named = OPERATION_ID in headers
    if advice == "poll" or code == "IDEMPOTENCY_OUTCOME_UNKNOWN":
        return verdict(Meaning.POLL, ambiguous=True)
    if advice == "same-key" or (advice != "never" and code in SAME_KEY):
        return verdict(Meaning.RETRY, ambiguous=not _ran_nothing(status, named, problem))
    if advice == "never":
        return verdict(Meaning.OUTCOME if named else Meaning.FINAL_IF_CLEAR)

    if status == 202 and profile == "semel" and operation and named:
        address = resolve(url, headers.get("Location", "")) or ""
        if path_of(address) == OPERATIONS_PATH + operation.id:
            operation = Operation.at(operation.id, address, url)
            return verdict(Meaning.ACCEPTED, ambiguous=True)
    if status < 500 and named:
        return verdict(Meaning.OUTCOME)
    return _by_status(profile, response, verdict(Meaning.FINAL_IF_CLEAR))


def _ran_nothing(status: int, named: bool, problem: Problem | None) -> bool:
    """Returns true if an answer that asks for a retry proves that this attempt ran nothing."""
    code = problem.code if problem else None
    # A handler's answer that has released its key is one of 400 or more; below, a part of the command is done.
    return code in NOTHING_RAN or status in (425, 429) or (named and status >= 400)


def _by_status(profile: Profile, response: Response, final: Verdict) -> Verdict:
    """Returns the meaning of an answer by its status.

    It has neither advice nor a known code, and the mark of an operation only if it is a server error.
    """
    status, headers = response.status, response.headers
    retry = Verdict(Meaning.RETRY, ambiguous=True, operation=final.operation, code=final.code)
    if 300 <= status < 400:
        return Verdict(Meaning.REFUSED, refusal="redirect", stopped="redirect", operation=final.operation)
    if status in (425, 429):
        return Verdict(Meaning.RETRY, operation=final.operation, code=final.code)
    if profile == "stripe":
        should_retry = headers.get("Stripe-Should-Retry", "").strip().lower()
        if should_retry == "true":
            return retry
        if should_retry == "false" and status >= 500:
            return Verdict(Meaning.STOP, ambiguous=True, operation=final.operation, code=final.code)
    if profile == "ietf" and status == 409 and "Retry-After" in headers:
        return retry
    if status == 408 or status >= 500:
        return retry
    if status < 300 and profile != "semel":
        # Servers of these profiles do not mark the outcome of a command.
        return Verdict(Meaning.OUTCOME, operation=final.operation, code=final.code)
    return final
