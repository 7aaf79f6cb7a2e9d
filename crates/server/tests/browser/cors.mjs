// A page that asks a gateway of another origin: node cors.mjs PAGE PICTURE GATEWAY FOREIGN
import assert from "node:assert/strict";
import { visit } from "../../../../proof/testkit/browser/browser.mjs";

const [address, picture, gateway, foreign] = process.argv.slice(2);

// What the page itself can read of an answer.
const ask = (page, path, init) =>
  page.evaluate(
    async ([address, init]) => {
      try {
        const answer = await fetch(address, init);
        return { status: answer.status, headers: Object.fromEntries(answer.headers), body: await answer.text() };
      } catch (error) {
        return { error: error.name };
      }
    },
    [`${gateway}${path}`, init],
  );

const pay = (body, headers) => ({
  method: "POST",
  headers: { "Content-Type": "application/json", ...headers },
  body: JSON.stringify(body),
});
const key = { "Idempotency-Key": "a-key-of-a-page-in-a-browser" };

await visit(address, picture, async (page, complaints) => {
  const first = await ask(page, "/payments", pay({ amount: 1 }, key));
  assert.equal(first.status, 201, JSON.stringify(first));

  const missing = await ask(page, "/payments", pay({ amount: 1 }, {}));
  assert.equal(missing.status, 400, JSON.stringify(missing));
  assert.equal(JSON.parse(missing.body).code, "MISSING_IDEMPOTENCY_KEY");
  assert.match(missing.headers.link, /describedby/, "a page may read what is exposed");
  const other = await ask(page, "/payments", pay({ amount: 2 }, key));
  assert.deepEqual([other.status, JSON.parse(other.body).code], [422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"]);
  const refused = await ask(page, "/a//b", { method: "GET" });
  assert.deepEqual([refused.status, JSON.parse(refused.body).code], [400, "MALFORMED_REQUEST"]);

  // One of the gateway's own routes, with a field that a browser asks about first.
  const id = first.headers["idempotency-operation-id"];
  const operation = await ask(page, `/.well-known/semel/operations/${id}`, { headers: { "X-Api-Key": "of-mine" } });
  assert.equal(operation.status, 200, JSON.stringify(operation));
  assert.equal(JSON.parse(operation.body).state, "succeeded");
  // A browser reports every answer from 400 on.
  complaints.length = 0;
});

await visit(foreign, picture, async (page, complaints) => {
  const missing = await ask(page, "/payments", { method: "POST", body: "not asked about first" });
  assert.deepEqual(missing, { error: "TypeError" }, "it is sent, and the page cannot read the answer");
  const own = await ask(page, "/.well-known/semel/operations/x", { headers: { "X-Api-Key": "of-mine" } });
  assert.deepEqual(own, { error: "TypeError" });
  complaints.length = 0;
});
