"""FastAPI, with the routes that the test protects. Prints its port. Each answer names the route that was reached; `GET /seen` lists
the cases that came here at all."""

import json
import socket
import sys

import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()
seen = []


@app.middleware("http")
async def note(request: Request, call_next):
    if "x-case" in request.headers:
        seen.append(request.headers["x-case"])
    return await call_next(request)


def reached(name):
    async def handler():
        return Response(headers={"x-route": name})

    return handler


for name, path in json.loads(sys.argv[1]):
    app.put(path)(reached(name))


@app.get("/seen")
async def list_seen():
    return seen


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(app, log_level="critical", access_log=False)
uvicorn.Server(config).run(sockets=[listener])
