"""Prints the OpenAPI document that FastAPI makes of a service: one operation that says nothing of keys, one that does, one with
its key in the body, and a search."""

import json
from typing import Annotated

from fastapi import FastAPI, Header
from pydantic import BaseModel

app = FastAPI()


class Order(BaseModel):
    amount: int


class Refund(BaseModel):
    amount: int
    idempotency_key: str


KEY_ANSWERS = {
    400: {"description": "The key is missing or malformed"},
    409: {"description": "The first request still runs"},
    422: {"description": "The key was used with another request"},
}


@app.post("/orders")
async def create_order(order: Order):
    return order


@app.post("/payments", responses=KEY_ANSWERS)
async def create_payment(order: Order, idempotency_key: Annotated[str, Header(description="Kept for 24 hours.")]):
    return order


@app.post("/refunds")
async def create_refund(refund: Refund):
    return refund


@app.post("/orders/search")
async def search(order: Order):
    return []


print(json.dumps(app.openapi()))
