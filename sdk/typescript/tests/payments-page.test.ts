/** The page of the payments example, where a journal or its entry cannot be used after a send. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { it, mock } from "node:test";

import { IDBFactory } from "fake-indexeddb";
import { Window } from "happy-dom";

import { ORIGIN } from "./support.js";

const BODY = JSON.stringify({ amount: 1200, currency: "EUR", card: "4242424242424242" });
const INTENT = "payment of order 17";
const SENT = { intent: INTENT, step: "sent", body: BODY, shown: { amount: "12.00" } };
let pages = 0;

/** In a page, addresses are relative to it. */
globalThis.Request = class extends Request {
  constructor(input: string | URL | Request, init?: RequestInit) {
    super(typeof input === "string" ? new URL(input, ORIGIN) : input, init);
  }
};

/** Opens the page of order 17 as an earlier one left it, and returns it with the bodies that it sends. */
async function open(factory: IDBFactory): Promise<{ window: Window; sent: unknown[] }> {
  const window = new Window({ url: `${ORIGIN}/?order=17` });
  const html = readFileSync(new URL("../page/index.html", import.meta.url), "utf8");
  window.document.body.innerHTML = /<body>(.*)<\/body>/s.exec(html)?.[1] ?? "";
  window.sessionStorage.setItem(INTENT, JSON.stringify(SENT));
  const { document, location, sessionStorage, localStorage } = window;
  Object.assign(globalThis, { document, location, sessionStorage, localStorage, indexedDB: factory });
  Object.assign(globalThis, { addEventListener: window.addEventListener.bind(window) });
  const sent: unknown[] = [];
  mock.method(globalThis, "fetch", (_input: unknown, init: RequestInit) => {
    if (init.method === "POST") sent.push(init.body);
    return Promise.resolve(Response.json([]));
  });
  pages += 1;
  await import(new URL(`../page/script.js?${String(pages)}`, import.meta.url).href);
  return { window, sent };
}

async function shows({ document }: Window, state: string): Promise<void> {
  const outcome = document.querySelector("#outcome");
  for (let turn = 0; turn < 500 && outcome?.getAttribute("data-state") !== state; turn += 1)
    await new Promise(setImmediate);
  assert.equal(outcome?.getAttribute("data-state"), state);
}

function submit({ document, SubmitEvent }: Window): void {
  document
    .querySelector("form")
    ?.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true }));
}

await it("a journal that cannot be read does not say that a payment is over", async () => {
  const factory = new IDBFactory();
  const works = factory.open.bind(factory);
  factory.open = () => {
    throw new Error("the disk is full");
  };
  const { window, sent } = await open(factory);
  await shows(window, "unsure");
  assert.match(window.document.querySelector("#detail")?.textContent ?? "", /^It may have been paid; look/);
  assert.equal((JSON.parse(window.sessionStorage.getItem(INTENT) ?? "") as typeof SENT).step, "sent");
  submit(window);
  await shows(window, "unsure");
  // Without an entry, the payment has its outcome, or was never sent: it is not begun anew.
  factory.open = works;
  submit(window);
  await shows(window, "elsewhere");
  assert.deepEqual(sent, []);
});

await it("a payment whose entry is too old or another's may have been paid", async () => {
  const { indexedDbJournal } = await import("@semel/client/indexeddb");
  for (const entry of [
    { caller: "alice", at: 1 },
    { caller: "bob", at: Date.now() },
  ]) {
    const factory = new IDBFactory();
    const journal = indexedDbJournal(undefined, factory);
    await journal.begin({ intent: INTENT, key: "k".repeat(20), digest: "00", origin: ORIGIN, ...entry });
    const { window, sent } = await open(factory);
    await shows(window, "unsure");
    assert.match(window.document.querySelector("#detail")?.textContent ?? "", /^It may have been paid; look/);
    assert.deepEqual(sent, []);
    assert.equal((await journal.pending()).length, 1);
  }
});
