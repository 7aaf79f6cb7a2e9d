"""Idempotency keys: drawn, checked, and spelled for a profile."""

from __future__ import annotations

import os
import uuid

from semel._options import Profile

MAX_KEY_LENGTH = 255
MIN_KEY_LENGTH: dict[Profile, int] = {"semel": 16, "ietf": 1, "stripe": 1}


def draw_key(wall_ms: int) -> str:
    """Returns a new key: a UUID of version 7 for this wall clock."""
    random = int.from_bytes(os.urandom(10), "big")
    number = (wall_ms & (2**48 - 1)) << 80 | random
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))


def fault_of_key(key: str, profile: Profile) -> str | None:
    """Returns why a key cannot be sent, without repeating it; `None` if it can."""
    least = MIN_KEY_LENGTH[profile]
    if len(key) < least:
        return f"the key must have at least {least} characters"
    if len(key) > MAX_KEY_LENGTH:
        return f"the key must have at most {MAX_KEY_LENGTH} characters"
    first = "!" if profile == "stripe" else " "
    if not all(first <= character <= "~" for character in key):
        return "the key must be printable ASCII"
    return None


def spell(key: str, profile: Profile) -> str:
    """Returns the value of the `Idempotency-Key` field: bare for Stripe, a quoted string of RFC 8941 otherwise."""
    if profile == "stripe":
        return key
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
