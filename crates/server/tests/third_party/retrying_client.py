"""Sends a payment with httpx until it is answered. `python3 retrying_client.py ADDRESS FORM` prints the answer's status, mark and body;
FORM is json, urlencoded or multipart. The key is drawn once for each payment, as applications do."""
import json
import sys
import uuid

import httpx

address, form = sys.argv[1:]
bodies = {
    "json": {"json": {"amount": 5}},
    "urlencoded": {"data": {"amount": "5"}},
    "multipart": {"files": {"amount": (None, "5")}},
}
key = uuid.uuid4().hex
for retries in range(4):
    try:
        answer = httpx.post(f"http://{address}/payments", headers={"Idempotency-Key": key}, **bodies[form])
        break
    except httpx.TransportError:
        continue
replayed = answer.headers.get("Idempotency-Replayed")
print(json.dumps({"status": answer.status_code, "replayed": replayed, "retries": retries, "body": answer.text}))
