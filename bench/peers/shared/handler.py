"""The handler that every Python peer stands in front of: one payment, one row, one answer.

What it does is told by the environment, the same for the peers in all languages: PORT, WORK (insert or none),
DATABASE_URL, and SLEEP_BEFORE_MS and SLEEP_AFTER_MS around the INSERT.
"""

import asyncio
import itertools
import os
import time
import uuid

import psycopg_pool
import uvicorn
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

CONNECTIONS = 16
INSERT = "INSERT INTO payments (id, amount, currency, idempotency_key) VALUES (%s, %s, %s, %s)"

WORK = os.environ["WORK"]
if WORK not in ("insert", "none"):
    raise SystemExit(f"WORK is {WORK!r}; it must be insert or none")
BEFORE = int(os.environ.get("SLEEP_BEFORE_MS", "0")) / 1000
AFTER = int(os.environ.get("SLEEP_AFTER_MS", "0")) / 1000


class Counter:
    """A number that threads may raise."""

    def __init__(self):
        self._next = itertools.count(1)
        self.value = 0

    def raise_by_one(self):
        self.value = max(self.value, next(self._next))


runs = Counter()
inserted = Counter()


def made(payment_id, payment):
    """Status, headers and body of the answer."""
    return 201, {"Location": f"/payments/{payment_id}"}, {"id": payment_id, "amount": payment["amount"]}


class AsyncPayments:
    """The handler for event loops."""

    def __init__(self):
        self.pool = None

    async def open(self):
        if WORK == "insert":
            self.pool = psycopg_pool.AsyncConnectionPool(
                os.environ["DATABASE_URL"], min_size=1, max_size=CONNECTIONS, open=False, kwargs={"autocommit": True}
            )
            await self.pool.open(wait=True)

    async def run(self, payment, key):
        runs.raise_by_one()
        if BEFORE:
            await asyncio.sleep(BEFORE)
        payment_id = str(uuid.uuid4())
        if self.pool:
            async with self.pool.connection() as connection:
                await connection.execute(INSERT, (payment_id, payment["amount"], payment["currency"], key))
        inserted.raise_by_one()
        if AFTER:
            await asyncio.sleep(AFTER)
        return made(payment_id, payment)


class Payments:
    """The handler for threads."""

    def __init__(self):
        self.pool = None
        if WORK == "insert":
            self.pool = psycopg_pool.ConnectionPool(
                os.environ["DATABASE_URL"], min_size=1, max_size=CONNECTIONS, open=True, kwargs={"autocommit": True}
            )

    def run(self, payment, key):
        def insert(payment_id):
            if self.pool:
                with self.pool.connection() as connection:
                    connection.execute(INSERT, (payment_id, payment["amount"], payment["currency"], key))

        return run_with(insert, payment)


def run_with(insert, payment):
    """One run of the handler, with the INSERT that is given."""
    runs.raise_by_one()
    if BEFORE:
        time.sleep(BEFORE)
    payment_id = str(uuid.uuid4())
    insert(payment_id)
    inserted.raise_by_one()
    if AFTER:
        time.sleep(AFTER)
    return made(payment_id, payment)


def answer(status, headers, body):
    return JSONResponse(body, status_code=status, headers=headers)


def problem(status, title, headers=None):
    """A refusal, where the peer leaves its form to the service."""
    body = {"type": "about:blank", "title": title, "status": status}
    return JSONResponse(body, status_code=status, headers=headers, media_type="application/problem+json")


def counters():
    """The routes beside the protected one."""

    async def count(_):
        return PlainTextResponse(str(runs.value))

    async def rows(_):
        return PlainTextResponse(str(inserted.value))

    return [Route("/count", count), Route("/inserted", rows)]


def serve(app):
    """Serves the application until the process ends."""
    uvicorn.run(
        app, host="127.0.0.1", port=int(os.environ["PORT"]), access_log=False, log_level="warning",
        loop="uvloop", http="httptools",
    )
