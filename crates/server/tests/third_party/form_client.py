"""Sends a form. `python3 form_client.py CLIENT ADDRESS KEY NOTE` prints the answer's status, mark and problem code. CLIENT is one of
requests-multipart, requests-urlencoded, httpx-multipart, httpx-urlencoded."""
import json
import sys

import httpx
import requests

client, address, key, note = sys.argv[1:]
library, form = client.split("-")
post = {"requests": requests.post, "httpx": httpx.post}[library]
files = {"file": ("ledger.csv", b"a,b\r\n1,2\r\n", "text/csv")}
content = {
    "multipart": {"data": {"note": note}, "files": files},
    "urlencoded": {"data": {"note": note, "amount": "5"}},
}[form]
answer = post(f"http://{address}/payments", headers={"Idempotency-Key": key}, **content)
code = answer.json()["code"] if answer.status_code >= 400 else None
replayed = answer.headers.get("Idempotency-Replayed")
print(json.dumps({"status": answer.status_code, "replayed": replayed, "code": code}))
