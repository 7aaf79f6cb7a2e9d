import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { it } from "node:test";

import { SemelError, storageJournal } from "@semel/client";

import { clientOf, done, lost, ORIGIN, ScriptedFetch } from "./support.js";

const URL_OF_PAYMENTS = `${ORIGIN}/payments`;

function bodies(script: ScriptedFetch): string[] {
  return script.sent.map(({ init }) => new TextDecoder().decode(init.body as Uint8Array));
}

function stream(text: string): ReadableStream<Uint8Array> {
  return new Blob([text]).stream();
}

function kind(expected: string): (error: unknown) => boolean {
  return (error) => error instanceof SemelError && error.kind === expected;
}

await it("a stream is refused before anything is sent, unless it may be buffered", async () => {
  const script = new ScriptedFetch(lost(), done());
  const client = clientOf(script.fetch);
  const refused = client(URL_OF_PAYMENTS, {
    method: "POST",
    body: stream("one"),
    duplex: "half",
  } as RequestInit);
  await assert.rejects(refused, kind("body_not_replayable"));
  const request = new Request(URL_OF_PAYMENTS, { method: "POST", body: "two" });
  await assert.rejects(client(request), kind("body_not_replayable"));
  const iterable = Readable.from(["four"]) as unknown as BodyInit;
  await assert.rejects(
    client(URL_OF_PAYMENTS, { method: "POST", body: iterable }),
    kind("body_not_replayable"),
  );
  assert.equal(script.sent.length, 0);
  const outcome = await client(URL_OF_PAYMENTS, { method: "POST", body: stream("three"), buffer: true });
  assert.equal(outcome.kind, "final");
  assert.deepEqual(bodies(script), ["three", "three"]);
});

await it("a stream of more than is buffered is refused before anything is sent", async () => {
  const script = new ScriptedFetch();
  let pulled = 0;
  const endless = new ReadableStream<Uint8Array>({
    pull(controller) {
      pulled += 1;
      controller.enqueue(new Uint8Array(1024 * 1024));
    },
  });
  const refused = clientOf(script.fetch)(URL_OF_PAYMENTS, { method: "POST", body: endless, buffer: true });
  await assert.rejects(refused, kind("body_not_replayable"));
  assert.equal(script.sent.length, 0);
  assert.ok(pulled < 32, `${String(pulled)} MiB were read`);
});

await it("a Request keeps its method, fields and body, and can be used again", async () => {
  const script = new ScriptedFetch(lost(), done());
  const request = new Request(URL_OF_PAYMENTS, {
    method: "PATCH",
    body: "one",
    headers: { authorization: "Bearer token", "content-type": "text/plain" },
    credentials: "include",
  });
  await clientOf(script.fetch)(request, { buffer: true });
  assert.deepEqual(bodies(script), ["one", "one"]);
  assert.deepEqual(script.fields("authorization"), ["Bearer token", "Bearer token"]);
  assert.deepEqual(
    script.sent.map(({ init }) => [init.method, init.credentials, init.redirect]),
    Array(2).fill(["PATCH", "include", "manual"]),
  );
  assert.equal(await request.text(), "one");
});

await it("a change of the caller's object after the call changes no later attempt", async () => {
  const body = new URLSearchParams({ amount: "5" });
  const headers = new Headers({ "x-trace": "1" });
  const script = new ScriptedFetch(() => {
    body.set("amount", "6");
    headers.set("x-trace", "2");
    throw lost();
  }, done());
  await clientOf(script.fetch)(URL_OF_PAYMENTS, { method: "post", body, headers });
  assert.deepEqual(bodies(script), ["amount=5", "amount=5"]);
  assert.deepEqual(script.fields("x-trace"), ["1", "1"]);
});

await it("a form has the same bytes each time it is serialised", async () => {
  const form = (): FormData => {
    const data = new FormData();
    data.set("amount", "5");
    data.set("invoice", new Blob([new Uint8Array([0, 0x2d, 0x2d, 0xff, 0x80])]), "invoice.bin");
    return data;
  };
  const script = new ScriptedFetch(done(), done());
  const client = clientOf(script.fetch);
  await client(URL_OF_PAYMENTS, { method: "POST", body: form() });
  await client(URL_OF_PAYMENTS, { method: "POST", body: form() });
  const [first, second] = script.sent.map(({ init }) =>
    Buffer.from(init.body as Uint8Array).toString("latin1"),
  );
  assert.equal(first, second);
  const types = script.fields("content-type");
  assert.equal(types[0], types[1]);
  const sent = new Response(script.sent[0]?.init.body ?? null, {
    headers: { "content-type": types[0] ?? "" },
  });
  const parsed = await sent.formData();
  assert.equal(parsed.get("amount"), "5");
  const file = parsed.get("invoice") as File;
  assert.deepEqual(new Uint8Array(await file.arrayBuffer()), new Uint8Array([0, 0x2d, 0x2d, 0xff, 0x80]));
});

await it("the digest in the journal is the one that all clients agree on", async () => {
  const items = new Map<string, string>();
  const journal = storageJournal({
    getItem: (name) => items.get(name) ?? null,
    setItem: (name, value) => void items.set(name, value),
  });
  const script = new ScriptedFetch(() => new Promise<Response>(() => undefined));
  const abort = new AbortController();
  const call = clientOf(script.fetch, { journal })(`${URL_OF_PAYMENTS}?a=1#top`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: `{"amount":5}`,
    intent: "invoice 4711",
    signal: abort.signal,
  });
  while (script.sent.length === 0) await new Promise(setImmediate);
  const [entry] = await journal.pending();
  abort.abort();
  assert.equal((await call).kind, "unresolved");
  const hash = createHash("sha256");
  for (const field of ["POST", `${URL_OF_PAYMENTS}?a=1`, "application/json", `{"amount":5}`]) {
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(Buffer.byteLength(field)));
    hash.update(length).update(field);
  }
  assert.equal(entry?.digest, hash.digest("hex"));
});

await it("a poll has the caller's credentials, but neither body nor key", async () => {
  const script = new ScriptedFetch(
    new Response("{}", {
      status: 202,
      headers: { "Idempotency-Operation-Id": "op_1", Location: "/.well-known/semel/operations/op_1" },
    }),
    Response.json({ state: "succeeded" }),
    done(),
  );
  const headers = { authorization: "Bearer token", "content-type": "text/plain", "content-digest": "x" };
  await clientOf(script.fetch)(URL_OF_PAYMENTS, { method: "POST", body: "x", headers });
  assert.deepEqual(script.fields("authorization"), Array(3).fill("Bearer token"));
  for (const { init } of script.sent.slice(1)) {
    const fields = new Headers(init.headers);
    const names = ["idempotency-key", "semel-deadline", "content-type", "content-digest"];
    assert.deepEqual(
      [init.body, ...names.map((name) => fields.get(name))],
      [undefined, null, null, null, null],
    );
  }
});

await it("a multipart body with a boundary of its own stays as it is", async () => {
  const script = new ScriptedFetch(done());
  const body = '--x\r\nContent-Disposition: form-data; name="x"\r\n\r\nxx\r\n--x--\r\n';
  const headers = { "content-type": "multipart/form-data; boundary=x" };
  await clientOf(script.fetch)(URL_OF_PAYMENTS, { method: "POST", body, headers });
  assert.deepEqual(bodies(script), [body]);
  assert.deepEqual(script.fields("content-type"), [headers["content-type"]]);
});
