import assert from "node:assert/strict";
import { it } from "node:test";

import { MAX_AGE_MS, semel, SemelError, type Journal } from "@semel/client";

import { ManualClock } from "./cases/clock.js";
import { clientOf, done, lost, NOW, ORIGIN, ScriptedFetch, signal } from "./support.js";

const PAYMENTS = `${ORIGIN}/payments`;

function kind(expected: string): (error: unknown) => boolean {
  return (error) => error instanceof SemelError && error.kind === expected;
}

await it("a client needs nothing but fetch, its origins and a profile", async () => {
  const script = new ScriptedFetch(done(`{"id":7}`));
  const pay = semel(script.fetch, { origins: [ORIGIN], profile: "semel" });
  const outcome = await pay(PAYMENTS, { method: "POST", body: "{}" });
  assert.ok(outcome.kind === "final");
  assert.deepEqual(await outcome.response.json(), { id: 7 });
  assert.equal(outcome.response.url, PAYMENTS);
});

await it("an answer over its bound is not read to its end, and leaves the command unresolved", async () => {
  let pulled = 0;
  const endless = new ReadableStream<Uint8Array>({
    pull(controller) {
      pulled += 1;
      controller.enqueue(new Uint8Array(1024));
    },
  });
  const script = new ScriptedFetch(
    new Response(endless, { status: 201, headers: { "Idempotency-Operation-Id": "op_1" } }),
  );
  const outcome = await clientOf(script.fetch, { maxResponseBytes: 4096 })(PAYMENTS, { method: "POST" });
  assert.ok(outcome.kind === "unresolved");
  assert.equal(outcome.stopped, "too_large");
  assert.deepEqual(outcome.last, { reason: "too_large" });
  assert.ok(pulled < 10);
});

await it("a redirect that a browser hides leaves the command unresolved", async () => {
  const hidden = Object.defineProperty(new Response(null), "status", { value: 0 });
  const outcome = await clientOf(new ScriptedFetch(hidden).fetch)(PAYMENTS, { method: "POST" });
  assert.ok(outcome.kind === "unresolved");
  assert.equal(outcome.stopped, "redirect");
});

await it("a fetch that does not heed its signal does not hold a cancelled call", async () => {
  const sent = signal();
  const script = new ScriptedFetch(() => {
    sent.give();
    return new Promise<Response>(() => undefined);
  });
  const abort = new AbortController();
  const call = clientOf(script.fetch)(PAYMENTS, { method: "POST", signal: abort.signal });
  await sent.promise;
  abort.abort();
  const outcome = await call;
  assert.ok(outcome.kind === "unresolved");
  assert.equal(outcome.stopped, "cancelled");
});

await it("an attempt that times out is aborted", async () => {
  const clock = new ManualClock(NOW);
  let aborted: AbortSignal | null | undefined;
  const script = new ScriptedFetch((_url, init) => {
    aborted = init.signal;
    clock.fireTimeout();
    return new Promise<Response>(() => undefined);
  }, done());
  const outcome = await clientOf(script.fetch, { clock })(PAYMENTS, { method: "POST" });
  assert.equal(outcome.kind, "final");
  assert.equal(aborted?.aborted, true);
});

await it("the signal of a Request cancels its call", async () => {
  const abort = new AbortController();
  abort.abort();
  const request = new Request(PAYMENTS, { method: "POST", signal: abort.signal });
  await assert.rejects(clientOf(new ScriptedFetch().fetch)(request), kind("not_executed"));
});

await it("a hook that fails does not stop a command", async () => {
  const script = new ScriptedFetch(lost(), done());
  const numbers: number[] = [];
  const client = clientOf(script.fetch, {
    onAttempt({ number }) {
      numbers.push(number);
      throw new Error("the hook is broken");
    },
  });
  assert.equal((await client(PAYMENTS, { method: "POST" })).kind, "final");
  assert.deepEqual(numbers, [1, 2]);
});

await it("neither the hook nor an error tells the key", async () => {
  const told: unknown[] = [];
  const script = new ScriptedFetch(lost(), new Response(null, { status: 503 }), lost());
  const client = clientOf(script.fetch, { maxAttempts: 1, onAttempt: (notice) => told.push(notice) });
  const key = "the-secret-key-of-order-17";
  await client(PAYMENTS, { method: "POST", key });
  const foreign = client("https://other.example/payments", { method: "POST", key });
  await foreign.catch((error: unknown) =>
    told.push(error, (error as Error).stack, Object.entries(error as object)),
  );
  assert.equal(told.length, 4);
  assert.ok(!JSON.stringify(told).includes(key));
});

await it("the key is durable before the command is sent", async () => {
  const steps: string[] = [];
  const written = signal();
  const journal: Journal = {
    async begin(entry) {
      steps.push(`begin ${entry.intent}`);
      await written.promise;
      steps.push("written");
    },
    clear(intent) {
      steps.push(`clear ${intent}`);
      return Promise.resolve();
    },
    pending: () => Promise.resolve([]),
  };
  const script = new ScriptedFetch(() => {
    steps.push("sent");
    return done();
  });
  const call = clientOf(script.fetch, { journal })(PAYMENTS, { method: "POST", intent: "invoice 4711" });
  while (steps.length === 0) await new Promise(setImmediate);
  for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  assert.deepEqual(steps, ["begin invoice 4711"], "nothing is sent before the journal is written");
  written.give();
  await call;
  assert.deepEqual(steps, ["begin invoice 4711", "written", "sent", "clear invoice 4711"]);
});

await it("a journal that fails in its own way is unavailable, and nothing is sent", async () => {
  const fail = (): Promise<never> => Promise.reject(new Error("no room"));
  const script = new ScriptedFetch();
  const client = clientOf(script.fetch, { journal: { begin: fail, clear: fail, pending: fail } });
  await assert.rejects(
    client(PAYMENTS, { method: "POST", intent: "invoice 4711" }),
    kind("journal_unavailable"),
  );
  await assert.rejects(
    client.resume("invoice 4711", PAYMENTS, { method: "POST" }),
    kind("journal_unavailable"),
  );
  await assert.rejects(client.pending(), kind("journal_unavailable"));
  const without = clientOf(script.fetch);
  await assert.rejects(
    without(PAYMENTS, { method: "POST", intent: "invoice 4711" }),
    kind("journal_unavailable"),
  );
  assert.equal(script.sent.length, 0);
});

await it("an outcome is returned even if its entry cannot be cleared", async () => {
  const journal: Journal = {
    begin: () => Promise.resolve(),
    clear: () => Promise.reject(new Error("no room")),
    pending: () => Promise.resolve([]),
  };
  const call = clientOf(new ScriptedFetch(done()).fetch, { journal });
  const outcome = await call(PAYMENTS, { method: "POST", intent: "invoice 4711" });
  assert.ok(outcome.kind === "final");
  assert.match(String(outcome.journalError), /no room/);
});

await it("an answer keeps its status, fields and body, whatever the status", async () => {
  const strange = Object.defineProperty(
    new Response("odd", { headers: { "Idempotency-Replayed": "true" } }),
    "status",
    {
      value: 799,
    },
  );
  const empty = new Response(null, {
    status: 204,
    headers: { "Idempotency-Operation-Id": "op_1", "X-A": "1" },
  });
  const client = clientOf(new ScriptedFetch(strange, empty).fetch);
  const first = await client(PAYMENTS, { method: "POST" });
  assert.ok(first.kind === "final");
  assert.deepEqual(
    [first.response.status, first.response.ok, await first.response.text()],
    [799, false, "odd"],
  );
  const second = await client(PAYMENTS, { method: "POST" });
  assert.ok(second.kind === "final");
  assert.deepEqual([second.response.status, second.response.headers.get("x-a")], [204, "1"]);
});

await it("bounds that are no numbers are refused at once", () => {
  const { fetch } = new ScriptedFetch();
  for (const bad of [{ deadlineMs: Number.NaN }, { maxAttempts: -1 }, { capMs: Number.POSITIVE_INFINITY }]) {
    assert.throws(() => clientOf(fetch, bad), RangeError);
  }
  assert.throws(() => clientOf(fetch, { origins: ["api.example.com"] }));
});

await it("options that are wrong are refused at once, by their names", () => {
  const { fetch } = new ScriptedFetch();
  const wrong: [object, RegExp][] = [
    [{ maxAgeMs: Number.NaN }, /maxAgeMs/],
    [{ maxAgeMs: "1" }, /maxAgeMs/],
    [{ maxResponseBytes: -1 }, /maxResponseBytes/],
    [{ maxAttempts: 0 }, /maxAttempts/],
    [{ deadlineMs: null }, /deadlineMs/],
    [{ budget: 5 }, /budget/],
    [{ budget: { cost: Number.NaN } }, /budget\.cost/],
    [{ budget: { token: 1 } }, /budget\.token/],
    [{ origins: ORIGIN }, /origins/],
    [{ origins: undefined }, /origins/],
    [{ origins: [new URL(ORIGIN)] }, /origins/],
    [{ origins: ["file:///payments"] }, /origins/],
    [{ profile: undefined }, /profile/],
    [{ profile: "toString" }, /profile/],
    [{ onAccepted: "wait" }, /onAccepted/],
    [{ caller: 7 }, /caller/],
    [{ maxAttempt: 3 }, /maxAttempt/],
  ];
  for (const [options, name] of wrong) {
    const isRefused = (error: unknown): boolean =>
      (error instanceof TypeError || error instanceof RangeError) && name.test(error.message);
    assert.throws(() => clientOf(fetch, options), isRefused, String(name));
  }
  assert.throws(() => semel(fetch, undefined as never), TypeError);
  assert.ok(clientOf(fetch, { maxAgeMs: 0, budget: { cost: 0 } }));
});

await it("an entry is sent for 23 hours: servers keep their records for 24", () => {
  assert.equal(MAX_AGE_MS, 82_800_000);
});

await it("parallel calls share the budget and have keys of their own", async () => {
  const script = new ScriptedFetch(...Array.from({ length: 20 }, lost));
  const client = clientOf(script.fetch, { budget: { tokens: 42 } });
  const calls = Array.from({ length: 3 }, () => client(PAYMENTS, { method: "POST" }));
  const outcomes = await Promise.all(calls);
  assert.deepEqual(
    outcomes.map((outcome) => (outcome.kind === "unresolved" ? outcome.stopped : outcome.kind)),
    ["budget", "budget", "budget"],
  );
  assert.equal(script.sent.length, 6, "three commands and three retries");
  assert.equal(new Set(script.fields("idempotency-key")).size, 3);
});
