"""Powertools' idempotency around the Python peers' handler, with Redis as its cache.

It is made for Lambda, where one process runs one function at a time and its context says how long that may go on.
Here each request is such an invocation: a thread runs the function, and a context gives it LEASE_MS (30 s).
"""

import json
import os
import time

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyValidationError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.redis import RedisCachePersistenceLayer
from redis import Redis
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

import handler

LEASE = int(os.environ.get("LEASE_MS", "30000"))
payments = handler.Payments()
persistence = RedisCachePersistenceLayer(client=Redis.from_url(os.environ["REDIS_URL"], decode_responses=True))


class Context:
    """As much of a Lambda's context as Powertools asks for: what is left of the invocation's time."""

    def __init__(self):
        self.ends = time.monotonic() + LEASE / 1000

    def get_remaining_time_in_millis(self):
        return max(0, int((self.ends - time.monotonic()) * 1000))


def invoke(event):
    # A configuration of its own for each invocation, since it carries the context.
    config = IdempotencyConfig(
        # The caller is part of the key.
        event_key_jmespath="[caller, key]",
        raise_on_no_idempotency_key=True,
        expires_after_seconds=24 * 60 * 60,
        lambda_context=Context(),
    )

    @idempotent_function(data_keyword_argument="event", persistence_store=persistence, config=config)
    def pay(event):
        status, headers, body = payments.run(event["payment"], event["key"])
        # The body is text, as in the answer of a Lambda: what is kept is given back byte by byte.
        return {"statusCode": status, "headers": headers, "body": json.dumps(body, separators=(",", ":"))}

    return pay(event=event)


async def pay(request):
    event = {
        "caller": request.headers.get("authorization"),
        "key": request.headers.get("idempotency-key"),
        "payment": await request.json(),
    }
    # JMESPath finds a key if either is there.
    if not event["caller"] or not event["key"]:
        return handler.problem(400, "a key and a caller are required")
    try:
        result = await run_in_threadpool(invoke, event)
    except IdempotencyAlreadyInProgressError:
        return handler.problem(409, "in progress", {"Retry-After": "1"})
    except IdempotencyValidationError:
        return handler.problem(422, "the key was used for another payload")
    headers = {**result["headers"], "Content-Type": "application/json"}
    return Response(result["body"], status_code=result["statusCode"], headers=headers)


app = Starlette(routes=[Route("/payments", pay, methods=["POST"]), *handler.counters()])

if __name__ == "__main__":
    handler.serve(app)
