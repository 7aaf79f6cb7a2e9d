"""Keys: drawn, checked and spelled."""

from __future__ import annotations

import uuid

import pytest

from semel._key import draw_key, fault_of_key, spell


def test_a_drawn_key_is_a_uuid_of_version_7_with_its_time() -> None:
    key = uuid.UUID(draw_key(1_800_000_000_000))
    assert key.version == 7
    assert key.variant == uuid.RFC_4122
    assert key.int >> 80 == 1_800_000_000_000


def test_drawn_keys_differ() -> None:
    assert len({draw_key(0) for _ in range(1000)}) == 1000


@pytest.mark.parametrize("key", ["", "k" * 15, "k" * 256, "k" * 16 + "é", "k" * 16 + "\n", "k" * 16 + "\x7f"])
def test_a_key_that_cannot_be_sent_is_refused_without_repeating_it(key: str) -> None:
    fault = fault_of_key(key, "semel")
    assert fault is not None
    assert not key or key not in fault


@pytest.mark.parametrize("key", ["k" * 16, "k" * 255, 'a key with spaces and \\ " marks'])
def test_a_printable_key_of_16_to_255_characters_can_be_sent(key: str) -> None:
    assert fault_of_key(key, "semel") is None


def test_keys_of_other_profiles_may_be_short() -> None:
    assert fault_of_key("k", "stripe") is None
    assert fault_of_key("k", "ietf") is None
    assert fault_of_key("", "stripe") is not None
    assert fault_of_key("a b", "stripe") is not None


def test_a_key_is_quoted_except_for_stripe() -> None:
    assert spell('a"b\\c', "semel") == '"a\\"b\\\\c"'
    assert spell("abc", "ietf") == '"abc"'
    assert spell("abc", "stripe") == "abc"
