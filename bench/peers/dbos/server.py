"""The Python peers' handler as a DBOS workflow of one step, whose workflow id is the caller and the key.

With STORE=transaction the INSERT and the record of the step commit together; with STORE=step it is an ordinary step,
as a call to another system would be.
"""

import hashlib
import os

import sqlalchemy
from dbos import DBOS, SetWorkflowID, SQLAlchemyDatasource
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

import handler

URL = os.environ["DATABASE_URL"].replace("postgres://", "postgresql+psycopg://", 1)
INSERT = sqlalchemy.text(
    "INSERT INTO payments (id, amount, currency, idempotency_key) VALUES (:id, :amount, :currency, :key)"
)

DBOS(config={
    "name": "peer",
    "system_database_url": URL,
    "sys_db_pool_size": handler.CONNECTIONS,
    # Fixed, so that a process that is started again takes up what it left.
    "application_version": "1",
    "executor_id": os.environ["INSTANCE"],
    "log_level": "WARNING",
})
datasource = SQLAlchemyDatasource.create(URL, engine_kwargs={"pool_size": handler.CONNECTIONS, "max_overflow": 0})
plain = handler.Payments() if os.environ["STORE"] == "step" else None


@datasource.transaction(isolation_level="READ COMMITTED")
def pay_in_transaction(payment, key):
    def insert(payment_id):
        if handler.WORK == "insert":
            row = {"id": payment_id, "amount": payment["amount"], "currency": payment["currency"], "key": key}
            datasource.sql_session().execute(INSERT, row)

    return handler.run_with(insert, payment)


@DBOS.step()
def pay_in_step(payment, key):
    return plain.run(payment, key)


@DBOS.workflow()
def pay_workflow(payment, key):
    return pay_in_step(payment, key) if plain else pay_in_transaction(payment, key)


def invoke(workflow_id, payment, key):
    with SetWorkflowID(workflow_id):
        return pay_workflow(payment, key)


async def pay(request):
    key, caller = request.headers.get("idempotency-key"), request.headers.get("authorization")
    if not key or not caller:
        return handler.problem(400, "a key and a caller are required")
    workflow_id = hashlib.sha256(f"{len(caller)}:{caller}{key}".encode()).hexdigest()
    status, headers, body = await run_in_threadpool(invoke, workflow_id, await request.json(), key)
    return handler.answer(status, headers, body)


app = Starlette(routes=[Route("/payments", pay, methods=["POST"]), *handler.counters()])

if __name__ == "__main__":
    DBOS.launch()
    handler.serve(app)
