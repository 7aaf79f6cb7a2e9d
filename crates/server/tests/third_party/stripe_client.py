"""Creates a charge with stripe-python. `python3 stripe_client.py ADDRESS CALL` prints what the SDK returned or raised; CALL is JSON
with `parameters`, `key` (null: the SDK draws one) and `retries`."""
import json
import sys

import stripe

call = json.loads(sys.argv[2])
client = stripe.StripeClient(
    "sk_test_local", base_addresses={"api": f"http://{sys.argv[1]}"}, max_network_retries=call["retries"]
)
options = {"idempotency_key": call["key"]} if call["key"] else {}
try:
    charge = client.v1.charges.create(params=call["parameters"], options=options)
    answer = charge.last_response
    replayed = answer.headers.get("Idempotent-Replayed")
    print(json.dumps({"id": charge.id, "status": answer.code, "replayed": replayed}))
except stripe.StripeError as error:
    # Only some of its exceptions have the code; all have the error that was sent.
    told = error.error
    kind, code = (told.type, told.code) if told else (None, None)
    print(json.dumps({"raised": type(error).__name__, "type": kind, "code": code, "status": error.http_status}))
