import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, it, mock } from "node:test";
import { fileURLToPath } from "node:url";

import { semel } from "@semel/client";
import { fileJournal } from "@semel/client/file";
import { IDBFactory } from "fake-indexeddb";
import { Window } from "happy-dom";
import { createElement } from "react";
import { renderToString } from "react-dom/server";

import { clientOf, done, lost, ORIGIN, ScriptedFetch } from "./support.js";

let printed: string[] = [];

beforeEach(() => {
  printed = [];
  mock.method(console, "log", (...words: unknown[]) => {
    printed.push(words.map((word) => (typeof word === "string" ? word : JSON.stringify(word))).join(" "));
  });
});
afterEach(() => {
  mock.restoreAll();
});

/** Runs an example, which finds the script in place of `fetch`. */
async function run(name: string, script: ScriptedFetch, query = ""): Promise<unknown> {
  mock.method(globalThis, "fetch", script.fetch);
  return import(`./readme/${name}.js?${query}`);
}

await it("every example of the README is run here", () => {
  const names = readdirSync(fileURLToPath(new URL("readme", import.meta.url)));
  const own = readFileSync(fileURLToPath(import.meta.url), "utf8");
  assert.ok(names.length >= 6);
  for (const name of names) assert.ok(own.includes(`"${name.replace(".js", "")}"`), name);
});

await it("quick start", async () => {
  await run("quick-start", new ScriptedFetch(done(`{"id":7}`, { "Idempotency-Replayed": "true" })));
  assert.deepEqual(printed, [`201 {"id":7} true`]);
});

await it("errors", async () => {
  const problem = { type: "urn:semel:problem:idempotency-held", code: "IDEMPOTENCY_HELD" };
  const held = Response.json(problem, { status: 503, headers: { "retry-after": "60" } });
  await run("errors", new ScriptedFetch(held));
  assert.deepEqual(printed, ["nothing was paid: deadline IDEMPOTENCY_HELD"]);
});

await it("cancel", async () => {
  await run("cancel", new ScriptedFetch(done()));
  assert.deepEqual(printed, ["attempt 1 after 0 ms: first", "final"]);
});

await it("worker", async () => {
  const before = process.cwd();
  process.chdir(mkdtempSync(join(tmpdir(), "semel-readme-")));
  try {
    const script = new ScriptedFetch(done(), lost(), done());
    await run("worker", script);
    assert.deepEqual(printed, ["sent 4711 final"]);
    assert.equal(readFileSync("payments.journal", "utf8").split("\n").length, 3);
    // An earlier process has left the invoice: it is gone on with, and not sent once more.
    const journal = fileJournal("payments.journal");
    const options = { origins: [ORIGIN], profile: "semel", journal, maxAttempts: 1 } as const;
    const body = JSON.stringify({ invoice: "4711" });
    await semel(script.fetch, options)(`${ORIGIN}/payments`, { method: "POST", body, intent: "4711" });
    printed = [];
    await run("worker", script, "again");
    assert.deepEqual(printed, ["resumed 4711 final"]);
    assert.equal(script.sent.length, 3);
    await journal.close();
  } finally {
    process.chdir(before);
  }
});

await it("form", async () => {
  const window = new Window({ url: `${ORIGIN}/orders/17` });
  window.document.body.innerHTML = `<form method="post"><input name="amount" value="5"><output></output></form>`;
  Object.assign(globalThis, {
    document: window.document,
    location: window.location,
    indexedDB: new IDBFactory(),
  });
  const script = new ScriptedFetch(done());
  await run("form", script);
  const form = window.document.querySelector("form");
  const submit = (): boolean | undefined =>
    form?.dispatchEvent(new window.SubmitEvent("submit", { bubbles: true, cancelable: true }));
  assert.equal(submit(), false);
  assert.equal(submit(), false);
  const output = window.document.querySelector("output");
  while (output?.textContent === "sending") await new Promise(setImmediate);
  assert.equal(output?.textContent, "done");
  assert.equal(script.sent.length, 1);
});

await it("pay", async () => {
  const { Pay } = (await run("pay", new ScriptedFetch())) as typeof import("./readme/pay.js");
  const journal = { begin: refuse, clear: refuse, pending: refuse };
  const client = clientOf(new ScriptedFetch().fetch, { journal });
  assert.equal(renderToString(createElement(Pay, { client, order: "17" })), "<button>Pay</button>");
});

function refuse(): Promise<never> {
  return Promise.reject(new Error("nothing is sent while rendering"));
}
