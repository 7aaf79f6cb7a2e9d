import assert from "node:assert/strict";
import { it } from "node:test";

import type { Outcome, Profile } from "@semel/client";

import { clientOf, done, lost, ORIGIN, ScriptedFetch, type Scripted } from "./support.js";

const URN = "urn:semel:problem:";
const OPERATIONS = "/.well-known/semel/operations";

async function call(profile: Profile, ...script: Scripted[]): Promise<{ outcome: Outcome; urls: string[] }> {
  const fetch = new ScriptedFetch(...script);
  const outcome = await clientOf(fetch.fetch, { profile })(`${ORIGIN}/payments`, { method: "POST" });
  return { outcome, urls: fetch.sent.map(({ url }) => url.slice(ORIGIN.length)) };
}

await it("the case of advice does not matter", async () => {
  const headers = { "Idempotency-Retry": " Same-Key " };
  const { outcome, urls } = await call("semel", new Response(null, { status: 418, headers }), done());
  assert.equal(outcome.kind, "final");
  assert.equal(urls.length, 2);
  const gone = done("{}", { "Idempotency-Body": " Not-Retained " });
  await assert.rejects(call("semel", gone), { kind: "response_not_retained" });
});

await it("a conflict with any Retry-After waits in profile ietf", async () => {
  const busy = new Response(null, { status: 409, headers: { "Retry-After": "soon" } });
  const { urls } = await call("ietf", busy, done());
  assert.equal(urls.length, 2);
  const plain = await call("ietf", new Response(null, { status: 409 }));
  assert.equal(plain.outcome.kind, "final");
});

await it("a problem of Semel is read before an error of Stripe's form", async () => {
  const problem = { type: `${URN}key`, code: "INVALID_IDEMPOTENCY_KEY", error: { code: "card_declined" } };
  await assert.rejects(call("stripe", Response.json(problem, { status: 400 })), { kind: "bad_key" });
});

await it("an empty operation id names nothing", async () => {
  const problem = { type: `${URN}forbidden`, code: "FORBIDDEN", operationId: "" };
  const { outcome } = await call("semel", Response.json(problem, { status: 403 }));
  assert.equal(outcome.kind, "final");
});

await it("a stored answer that does not arrive is asked for again", async () => {
  const unknown = { type: `${URN}unknown`, code: "IDEMPOTENCY_OUTCOME_UNKNOWN", operationId: "op_1" };
  const state = (): Response => Response.json({ state: "succeeded" });
  const large = new Response("x".repeat(5000), { headers: { "Idempotency-Operation-Id": "op_1" } });
  const fetch = new ScriptedFetch(
    Response.json(unknown, { status: 500 }),
    state(),
    large,
    state(),
    lost(),
    state(),
    done(),
  );
  const client = clientOf(fetch.fetch, { maxResponseBytes: 4096 });
  const outcome = await client(`${ORIGIN}/payments`, { method: "POST" });
  assert.equal(outcome.kind, "final");
  assert.equal(fetch.sent.length, 7);
});

await it("an operation is not asked for at another origin, or with user info", async () => {
  const { host } = new URL(ORIGIN);
  for (const base of ["https://other.example.com", `https://user:secret@${host}`, `https://user@${host}`]) {
    const operationUrl = `${base}${OPERATIONS}/op_1`;
    const unknown = { type: `${URN}unknown`, code: "IDEMPOTENCY_OUTCOME_UNKNOWN", operationId: "op_1" };
    const problem = Response.json({ ...unknown, operationUrl }, { status: 500 });
    const headers = { "Idempotency-Operation-Id": "op_1", Location: operationUrl };
    for (const answer of [problem, new Response(null, { status: 202, headers })]) {
      const { outcome, urls } = await call("semel", answer);
      assert.deepEqual(outcome.operation, { id: "op_1", url: undefined }, base);
      assert.equal(urls.length, 1);
    }
  }
});
