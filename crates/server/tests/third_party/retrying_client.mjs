// Sends a payment with axios-retry, which repeats what had no answer. `node retrying_client.mjs ADDRESS FORM` prints the answer's status,
// mark and body; FORM is json, urlencoded or multipart. The key is drawn once for each payment, as applications do.
import axios from "axios";
import axiosRetry from "axios-retry";

const [address, form] = process.argv.slice(2);
const client = axios.create({ baseURL: `http://${address}`, headers: { "Idempotency-Key": crypto.randomUUID() } });
let retries = 0;
axiosRetry(client, { retries: 3, retryCondition: axiosRetry.isNetworkError, onRetry: () => { retries += 1; } });
const multipart = new FormData();
multipart.append("amount", "5");
const bodies = { json: { amount: 5 }, urlencoded: new URLSearchParams({ amount: "5" }), multipart };
const { status, headers, data } = await client.post("/payments", bodies[form], { responseType: "text" });
console.log(JSON.stringify({ status, replayed: headers["idempotency-replayed"] ?? null, retries, body: data }));
