"""The Python peers' handler with nothing around it: their floor. With MODE=threads, on threads instead of the loop."""

import contextlib
import os

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

import handler

MODE = os.environ.get("MODE", "loop")
payments = handler.AsyncPayments() if MODE == "loop" else handler.Payments()


async def pay(request):
    payment, key = await request.json(), request.headers.get("idempotency-key", "")
    if MODE == "loop":
        return handler.answer(*await payments.run(payment, key))
    return handler.answer(*await run_in_threadpool(payments.run, payment, key))


@contextlib.asynccontextmanager
async def lifespan(_):
    if MODE == "loop":
        await payments.open()
    yield


app = Starlette(routes=[Route("/payments", pay, methods=["POST"]), *handler.counters()], lifespan=lifespan)

if __name__ == "__main__":
    handler.serve(app)
