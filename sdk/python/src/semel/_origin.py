"""Origins: scheme, host and port of an address."""

from __future__ import annotations

from urllib.parse import urljoin

import httpx

DEFAULT_PORTS = {"http": 80, "https": 443}


def origin_of(address: str) -> str | None:
    """Returns the origin of an absolute http or https address in its one form; `None` for anything else."""
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, ValueError):
        return None
    if url.scheme not in DEFAULT_PORTS or not url.host:
        return None
    port = url.port or DEFAULT_PORTS[url.scheme]
    host = url.raw_host.decode("ascii").lower()
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def is_of_origin(address: str, base: str) -> bool:
    """Returns true if an address is of the origin of another one, and brings no user or password of its own."""
    origin = origin_of(base)
    return origin is not None and origin_of(address) == origin and _user(address) in (b"", _user(base))


def _user(address: str) -> bytes:
    return httpx.URL(address).userinfo


def resolve(base: str, reference: str) -> str | None:
    """Returns the absolute address of a reference; `None` if it is none."""
    try:
        return urljoin(base, reference)
    except ValueError:
        return None


def path_of(address: str) -> str:
    """Returns the path of an absolute address, as it is sent."""
    try:
        return httpx.URL(address).raw_path.decode("ascii").partition("?")[0]
    except (httpx.InvalidURL, ValueError):
        return ""
