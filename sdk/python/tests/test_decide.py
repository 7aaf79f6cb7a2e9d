"""The decision after an attempt, over many states and results."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import get_args

import httpx
import pytest

from semel import Operation, Options, Response
from semel._answer import retry_after_ms
from semel._decide import AttemptResult, CallState, Fault, FaultReason, Finish, Phase, Poll, Retry, Rules, decide
from semel._options import Profile

URL = "https://pay.example/payments"
PROFILES: tuple[Profile, ...] = ("semel", "ietf", "stripe")
STATUSES = (
    200,
    201,
    202,
    207,
    303,
    400,
    401,
    403,
    404,
    408,
    409,
    410,
    413,
    422,
    425,
    429,
    500,
    501,
    502,
    503,
    504,
    599,
)
FAULTS: tuple[FaultReason, ...] = get_args(FaultReason)
FIELDS: tuple[dict[str, str], ...] = (
    {},
    {"Idempotency-Operation-Id": "op_1"},
    {"Idempotency-Operation-Id": "op_1", "Idempotency-Replayed": "true", "Idempotent-Replayed": "true"},
    {"Idempotency-Retry": "same-key"},
    {"Idempotency-Retry": "poll"},
    {"Idempotency-Retry": "never"},
    {"Retry-After": "1"},
)
RESPONSES = [Response(status, httpx.Headers(fields), b"") for status in STATUSES for fields in FIELDS]
RESULTS: list[AttemptResult] = [*RESPONSES, *(Fault(reason) for reason in FAULTS)]
STATE = CallState(ambiguous=False, attempts=1, tokens=500, operation=Operation("op_1", URL + "/.well-known/x"))


def rules(profile: Profile = "semel", named: bool = True) -> Rules:
    return Rules.of(Options(), profile, named, URL)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_call_that_may_have_run_never_ends_as_if_it_had_not(profile: Profile) -> None:
    harmless = {"final", "unresolved", "unknown", "accepted", "response_not_retained"}
    for result, phase, cancelled in itertools.product(
        RESULTS,
        Phase,
        (False, True),
    ):
        state = replace(STATE, ambiguous=True, phase=phase, cancelled=cancelled)
        after, decision = decide(rules(profile), state, result, 0.5)
        assert after.ambiguous
        if isinstance(decision, Finish):
            assert decision.ending in harmless, (profile, result, phase)


def test_after_a_lost_answer_only_the_mark_of_the_operation_is_final() -> None:
    state = replace(STATE, ambiguous=True)
    for response in RESPONSES:
        _, decision = decide(rules(), state, response, 0.5)
        if isinstance(decision, Finish) and decision.ending == "final":
            named = "Idempotency-Operation-Id" in response.headers
            assert named or "Idempotency-Replayed" in response.headers, response


@pytest.mark.parametrize("profile", PROFILES)
def test_a_retry_has_an_attempt_a_token_and_time_left(profile: Profile) -> None:
    spent = (
        replace(STATE, attempts=8),
        replace(STATE, tokens=13),
        replace(STATE, elapsed=30_000),
        replace(STATE, cancelled=True),
    )
    for state, result in itertools.product(spent, RESULTS):
        _, decision = decide(rules(profile), state, result, 0.5)
        assert not isinstance(decision, Retry), (state, result)


def test_a_fault_after_the_send_makes_a_call_ambiguous_and_one_before_does_not() -> None:
    for fault in FAULTS:
        after, _ = decide(rules(), STATE, Fault(fault), 0.5)
        assert after.ambiguous == (fault in ("lost", "timeout", "too_large"))


def test_the_same_facts_give_the_same_decision() -> None:
    for response in RESPONSES:
        assert decide(rules(), STATE, response, 0.25) == decide(rules(), STATE, response, 0.25)


def test_an_origin_without_a_name_gets_no_second_attempt() -> None:
    for result in RESULTS:
        _, decision = decide(rules(named=False), STATE, result, 0.5)
        assert isinstance(decision, Finish)


def test_polls_end_after_their_bound() -> None:
    state = replace(STATE, phase=Phase.OPERATION, ambiguous=True, polls=100)
    _, decision = decide(rules(), state, Fault("lost"), 0.0)
    assert decision == Finish("unknown")


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        ("0", 0),
        ("7", 7000),
        (" 7 ", 7000),
        ("Fri, 15 Jan 2027 08:00:07 GMT", 7000),
        ("Fri, 15 Jan 2027 07:59:59 GMT", 0),
        ("Friday, 15-Jan-27 08:00:07 GMT", 7000),
        ("7.5", None),
        ("-7", None),
        ("1e3", None),
        ("9999999999", 9_999_999_999_000),
        ("0000000000007", 7000),
        ("0000000000000", 0),
        ("\u0667", None),
        ("", None),
        ("7, 8", None),
        ("Fri, 32 Jan 2027 08:00:07 GMT", None),
        ("Fri, 15 Jan 99999999999999999999 08:00:07 GMT", None),
        ("Fri, 15 Jan 2027 08:00:07 +99999999999999999999", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str, delay: int | None) -> None:
    headers = httpx.Headers([(b"Retry-After", value.encode())])
    assert retry_after_ms(Response(503, headers, b""), 1_800_000_000_000) == delay


@pytest.mark.parametrize("digits", [10, 20, 10_000])
def test_a_retry_after_of_many_digits_is_a_long_time(digits: int) -> None:
    response = Response(503, httpx.Headers({"Retry-After": "9" * digits}), b"")
    _, decision = decide(replace(rules(), deadline=100_000), STATE, response, 0.0)
    assert decision == Retry(30_000)


def problem(code: str, fields: dict[str, str], **members: str) -> Response:
    document = {"type": "urn:semel:problem:x", "code": code, **members}
    headers = httpx.Headers({"Content-Type": "application/problem+json", **fields})
    return Response(409, headers, json.dumps(document).encode())


@pytest.mark.parametrize("advice", ["never", "same-key", "poll", "other", ""])
def test_an_unknown_outcome_is_polled_whatever_the_advice(advice: str) -> None:
    answer = problem("IDEMPOTENCY_OUTCOME_UNKNOWN", {"Idempotency-Retry": advice}, operationId="op_1")
    after, decision = decide(rules(), STATE, answer, 0.0)
    assert after.ambiguous
    assert decision == Poll(0)


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "FORBIDDEN"])
def test_an_empty_operation_id_names_no_operation(code: str) -> None:
    assert decide(rules(), STATE, problem(code, {}, operationId=""), 0.0)[1].__class__ is Finish
    assert not decide(rules(), STATE, problem(code, {}, operationId=""), 0.0)[0].ambiguous
    assert decide(rules(), STATE, problem(code, {}, operationId="op_1"), 0.0)[0].ambiguous


@pytest.mark.parametrize(
    ("command", "address", "shown"),
    [
        (URL, "/operations/op_1", "https://pay.example/operations/op_1"),
        (URL, "https://PAY.example:443/op_1", "https://PAY.example:443/op_1"),
        (URL, "https://evil.example/op_1", None),
        (URL, "//evil.example/op_1", None),
        (URL, "http://pay.example/op_1", None),
        (URL, "https://u:p@pay.example/op_1", None),
        (URL, "https://pay.example@evil.example/op_1", None),
        ("https://u:p@pay.example/payments", "/op_1", "https://u:p@pay.example/op_1"),
        ("https://u:p@pay.example/payments", "https://pay.example/op_1", "https://pay.example/op_1"),
        ("https://u:p@pay.example/payments", "https://x:y@pay.example/op_1", None),
    ],
)
def test_an_address_of_another_origin_is_neither_asked_for_nor_shown(
    command: str, address: str, shown: str | None
) -> None:
    answer = problem("IDEMPOTENCY_OUTCOME_UNKNOWN", {}, operationId="op_1", operationUrl=address)
    after, decision = decide(replace(rules(), url=command), STATE, answer, 0.0)
    assert after.operation == Operation("op_1", shown)
    assert decision == (Finish("unknown") if shown is None else Poll(0))


@pytest.mark.parametrize("authority", ["https://evil.example", "https://u:p@pay.example"])
def test_a_location_of_another_origin_is_neither_asked_for_nor_shown(authority: str) -> None:
    location = f"{authority}/.well-known/semel/operations/op_1"
    headers = httpx.Headers({"Idempotency-Operation-Id": "op_1", "Location": location})
    after, decision = decide(rules(), STATE, Response(202, headers, b""), 0.0)
    assert after.operation == Operation("op_1", None)
    assert decision == Finish("accepted")


def test_a_backoff_that_has_reached_its_cap_stays_there() -> None:
    state = replace(STATE, attempts=10_000, tokens=500)
    patient = replace(rules(), attempts=20_000, deadline=100_000)
    _, decision = decide(patient, state, Fault("connect"), 0.5)
    assert decision == Retry(2500)
