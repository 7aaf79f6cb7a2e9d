import assert from "node:assert/strict";
import { it } from "node:test";

import { SemelError, uuidv7, type Profile } from "@semel/client";

import { clientOf, done, NOW, ORIGIN, ScriptedFetch } from "./support.js";

async function fieldOf(key: string, profile: Profile): Promise<string | null | undefined> {
  const script = new ScriptedFetch(done());
  const client = clientOf(script.fetch, { profile });
  try {
    await client(`${ORIGIN}/payments`, { method: "POST", key });
  } catch (error) {
    assert.ok(error instanceof SemelError && error.kind === "bad_key", String(error));
    assert.equal(script.sent.length, 0, "nothing is sent under a bad key");
    assert.ok(!error.message.includes(key) || key === "", "the message does not tell the key");
    return undefined;
  }
  return script.fields("idempotency-key")[0];
}

await it("a key that is too short, too long or not ASCII is refused before anything is sent", async () => {
  for (const key of [
    "",
    "short",
    "x".repeat(15),
    "x".repeat(256),
    "ключ-к-заказу-17",
    "a-key-with-a\ttab-in-it",
    "zażółć-gęślą-jaźń",
  ]) {
    assert.equal(await fieldOf(key, "semel"), undefined, key);
  }
  assert.equal(await fieldOf("", "ietf"), undefined);
  assert.equal(await fieldOf("order 17", "stripe"), undefined, "a bare key has no blank");
});

await it("a key is a quoted string, and bare for Stripe", async () => {
  assert.equal(await fieldOf("x".repeat(16), "semel"), `"${"x".repeat(16)}"`);
  assert.equal(await fieldOf("x".repeat(255), "semel"), `"${"x".repeat(255)}"`);
  assert.equal(await fieldOf(`order "17" of \\ 2026`, "semel"), `"order \\"17\\" of \\\\ 2026"`);
  assert.equal(await fieldOf("k", "ietf"), `"k"`);
  assert.equal(await fieldOf(`k"\\`, "stripe"), `k"\\`);
});

await it("keys that are drawn are UUIDs of version 7, with their time, and all different", () => {
  const keys = Array.from({ length: 1000 }, (_, index) => uuidv7(NOW + index));
  assert.equal(new Set(keys).size, keys.length);
  assert.deepEqual([...keys].sort(), keys);
  for (const key of keys)
    assert.match(key, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(Number.parseInt((keys[7] ?? "").replace("-", "").slice(0, 12), 16), NOW + 7);
});
