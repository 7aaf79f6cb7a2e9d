"""Sends many commands, for a test with a fault proxy in front of a real server.

`python fault_driver.py ORIGIN PATH COUNT JOURNAL [sync|async]` sends commands with the bodies `{"n": 0}`, `{"n": 1}`
and so on, each with the intent `command N`, sixteen at a time. It prints a line of JSON for each: `n`, `outcome`
(`final`, `unknown`, `accepted`, `unresolved` or `error:KIND`), `status`, `replayed`, `attempts`, `stopped`, `body`.
The last line has `pending`: the intents that the journal still has.
"""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import semel

SIDE_BY_SIDE = 16
OPTIONS = semel.Options(base=0.01, deadline=60.0, attempts=30, budget_tokens=1_000_000)


def shown(number: int, ended: semel.Outcome | semel.SemelError) -> str:
    """Returns the line of a command."""
    line: dict[str, Any] = {"n": number}
    if isinstance(ended, semel.SemelError):
        line["outcome"] = f"error:{ended.kind}"
    else:
        line["outcome"] = type(ended).__name__.lower()
    for name in ("replayed", "attempts", "stopped"):
        line[name] = getattr(ended, name, None)
    response: semel.Response | None = getattr(ended, "response", None)
    line["status"] = response.status if response else None
    line["body"] = response.text if response else None
    return json.dumps(line)


def with_threads(origin: str, path: str, count: int, journal: semel.Journal) -> None:
    """Sends the commands from threads."""
    with semel.Client([origin], journal=journal, options=OPTIONS) as client:

        def send(number: int) -> str:
            try:
                return shown(number, client.send("POST", origin + path, json={"n": number}, intent=f"command {number}"))
            except semel.SemelError as error:
                return shown(number, error)

        with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
            for line in threads.map(send, range(count)):
                sys.stdout.write(line + "\n")


async def with_asyncio(origin: str, path: str, count: int, journal: semel.Journal) -> None:
    """Sends the commands from one event loop."""
    places = asyncio.Semaphore(SIDE_BY_SIDE)
    async with semel.AsyncClient([origin], journal=journal, options=OPTIONS) as client:

        async def send(number: int) -> str:
            async with places:
                try:
                    intent = f"command {number}"
                    return shown(number, await client.send("POST", origin + path, json={"n": number}, intent=intent))
                except semel.SemelError as error:
                    return shown(number, error)

        for line in await asyncio.gather(*(send(number) for number in range(count))):
            sys.stdout.write(line + "\n")


def main() -> None:
    """Sends the commands that the arguments ask for."""
    origin, path, count, place, *mode = sys.argv[1:]
    journal = semel.SqliteJournal(place)
    if mode == ["sync"]:
        with_threads(origin, path, int(count), journal)
    else:
        asyncio.run(with_asyncio(origin, path, int(count), journal))
    sys.stdout.write(json.dumps({"pending": [entry.intent for entry in journal.pending()]}) + "\n")
    journal.close()


if __name__ == "__main__":
    main()
