"""asgi-idempotency-header around the Python peers' handler, on the backend that STORE names."""

import contextlib
import os

from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import MemoryBackend, RedisBackend
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

import handler

payments = handler.AsyncPayments()


async def pay(request):
    return handler.answer(*await payments.run(await request.json(), request.headers.get("idempotency-key", "")))


@contextlib.asynccontextmanager
async def lifespan(_):
    await payments.open()
    yield


backend = MemoryBackend() if os.environ["STORE"] == "memory" else RedisBackend(Redis.from_url(os.environ["REDIS_URL"]))
app = Starlette(
    routes=[Route("/payments", pay, methods=["POST"]), *handler.counters()],
    middleware=[Middleware(IdempotencyHeaderMiddleware, backend=backend)],
    lifespan=lifespan,
)

if __name__ == "__main__":
    handler.serve(app)
