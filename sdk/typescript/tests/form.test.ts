import assert from "node:assert/strict";
import { it } from "node:test";

import {
  SemelError,
  storageJournal,
  type Client,
  type Fetch,
  type Journal,
  type StringStore,
} from "@semel/client";
import {
  MAX_SUBMISSIONS,
  once,
  submissionOf,
  type OnceForm,
  type OnceOptions,
  type Submission,
  type SubmissionState,
} from "@semel/client/form";
import { indexedDbJournal } from "@semel/client/indexeddb";
import { IDBFactory } from "fake-indexeddb";
import { Window } from "happy-dom";

import { clientOf, done, lost, ORIGIN, ScriptedFetch, signal } from "./support.js";

/** A page with one form, in a tab of its own. */
class Page {
  readonly form: HTMLFormElement;
  readonly changes: SubmissionState[] = [];
  repeats = 0;
  readonly once: OnceForm;
  readonly #window: Window;

  constructor(client: Client, options: Partial<OnceOptions> = {}, html = FORM) {
    this.#window = new Window({ url: `${ORIGIN}/orders/17` });
    this.#window.document.body.innerHTML = html;
    this.form = this.#window.document.querySelector("form") as unknown as HTMLFormElement;
    this.once = once(this.form, {
      client,
      onChange: (state) => this.changes.push(state),
      onRepeat: () => {
        this.repeats += 1;
      },
      ...options,
    });
  }

  /** Submits the form, and returns whether the browser would send it. */
  submit(selector?: string): boolean {
    const submitter = selector === undefined ? null : this.#window.document.querySelector(selector);
    const init = { bubbles: true, cancelable: true, submitter };
    const event = new this.#window.SubmitEvent(
      "submit",
      init as ConstructorParameters<typeof SubmitEvent>[1] as never,
    );
    return this.form.dispatchEvent(event as unknown as Event);
  }

  edit(value: string): void {
    const field = this.form.querySelector("input") as HTMLInputElement;
    field.value = value;
    field.dispatchEvent(new this.#window.Event("input", { bubbles: true }) as unknown as Event);
  }

  reset(): void {
    this.form.dispatchEvent(new this.#window.Event("reset", { bubbles: true }) as unknown as Event);
  }

  /** Waits until the form is not being sent. */
  async settled(): Promise<SubmissionState> {
    while (this.once.state().status === "sending") await new Promise(setImmediate);
    return this.once.state();
  }
}

const FORM = `<form id="pay" method="post" action="/payments"><input name="amount" value="5"></form>`;

function store(): StringStore {
  const items = new Map<string, string>();
  return {
    getItem: (name) => items.get(name) ?? null,
    setItem: (name, value) => void items.set(name, value),
  };
}

function bodies(script: ScriptedFetch): string[] {
  return script.sent.map(({ init }) => new TextDecoder().decode(init.body as Uint8Array));
}

function different(values: readonly unknown[]): number {
  return new Set(values).size;
}

await it("a double click sends one command", async () => {
  const script = new ScriptedFetch(done());
  const page = new Page(clientOf(script.fetch, { journal: storageJournal(store()) }));
  assert.equal(page.submit(), false, "the browser does not send the form itself");
  assert.equal(page.submit(), false);
  assert.equal(page.repeats, 1);
  assert.equal(page.form.getAttribute("aria-busy"), "true");
  const state = await page.settled();
  assert.equal(state.status, "done");
  assert.equal(page.form.getAttribute("aria-busy"), "false");
  assert.equal(script.sent.length, 1);
  assert.deepEqual(
    page.changes.map(({ status }) => status),
    ["sending", "done"],
  );
});

await it("a form that is done is not sent again before it is edited, reset or asked to", async () => {
  const script = new ScriptedFetch(done(), done(), done(), done());
  const page = new Page(clientOf(script.fetch, { journal: storageJournal(store()) }));
  const change = [
    () => undefined,
    () => {
      page.edit("6");
    },
    () => {
      page.reset();
    },
    () => {
      page.once.again();
    },
  ];
  for (const [index, act] of change.entries()) {
    act();
    page.submit();
    await page.settled();
    page.submit();
    assert.equal(script.sent.length, index + 1);
    assert.equal(page.repeats, index + 1);
  }
  assert.equal(different(script.fields("idempotency-key")), 4);
  assert.deepEqual(bodies(script), ["amount=5", "amount=6", "amount=6", "amount=6"]);
});

await it("a form whose outcome is open keeps its key, also after a reload or the back button", async () => {
  const script = new ScriptedFetch(lost(), lost(), done());
  const storage = store();
  const reload = (): Client => clientOf(script.fetch, { journal: storageJournal(storage), maxAttempts: 1 });
  const first = new Page(reload());
  first.submit();
  assert.equal((await first.settled()).outcome?.kind, "unresolved");
  first.submit();
  assert.equal((await first.settled()).outcome?.kind, "unresolved");

  const told = signal<string>();
  const second = new Page(reload(), {
    onPending: ({ intent }) => {
      told.give(intent);
    },
  });
  assert.equal(await told.promise, "/orders/17#pay");
  second.submit();
  assert.equal((await second.settled()).status, "done");
  assert.equal(script.sent.length, 3);
  assert.equal(different(script.fields("idempotency-key")), 1);
});

await it("a form that was edited while its outcome is open is refused, until a person abandons it", async () => {
  const script = new ScriptedFetch(lost(), done());
  const page = new Page(clientOf(script.fetch, { journal: storageJournal(store()), maxAttempts: 1 }));
  page.submit();
  await page.settled();
  page.edit("6");
  page.submit();
  const { error } = await page.settled();
  assert.ok(error instanceof SemelError && error.kind === "request_changed");
  assert.equal(script.sent.length, 1);
  await page.once.abandon();
  page.submit();
  assert.equal((await page.settled()).status, "done");
  assert.equal(different(script.fields("idempotency-key")), 2);
});

await it("a final refusal ends the key", async () => {
  const refused = new Response("{}", { status: 422, headers: { "Idempotency-Operation-Id": "op_1" } });
  const script = new ScriptedFetch(refused, done());
  const page = new Page(clientOf(script.fetch, { journal: storageJournal(store()) }));
  page.submit();
  assert.equal((await page.settled()).status, "open");
  page.submit();
  assert.equal((await page.settled()).status, "done");
  assert.equal(different(script.fields("idempotency-key")), 2);
});

await it("a command that redirects, or whose response is not retained, is done", async () => {
  const gone = {
    type: "urn:semel:problem:idempotency-response-not-retained",
    code: "IDEMPOTENCY_RESPONSE_NOT_RETAINED",
  };
  const script = new ScriptedFetch(
    new Response(null, {
      status: 303,
      headers: { "Idempotency-Operation-Id": "op_1", Location: "/payments/1" },
    }),
    Response.json(gone, { status: 201, headers: { "Idempotency-Body": "not-retained" } }),
  );
  const page = new Page(clientOf(script.fetch, { journal: storageJournal(store()) }));
  page.submit();
  assert.equal((await page.settled()).status, "done");
  page.once.again();
  page.submit();
  const { status, error } = await page.settled();
  assert.equal(status, "done");
  assert.ok(error instanceof SemelError && error.kind === "response_not_retained");
  page.submit();
  assert.equal(script.sent.length, 2);
});

await it("an intent that is remembered is not begun again by another page or tab, until it is asked to", async () => {
  const script = new ScriptedFetch(done(), done());
  const remember = store();
  const open = (): Page =>
    new Page(clientOf(script.fetch, { journal: storageJournal(store()) }), { intent: "order 17", remember });
  const [first, tab] = [open(), open()];
  first.submit();
  await first.settled();
  tab.edit("5");
  tab.submit();
  assert.equal(tab.once.state().status, "done");
  assert.equal(tab.repeats, 1);
  const reloaded = open();
  assert.equal(reloaded.once.state().status, "done");
  reloaded.edit("5");
  reloaded.reset();
  reloaded.submit();
  assert.equal(reloaded.repeats, 1);
  assert.equal(script.sent.length, 1);
  reloaded.once.again();
  reloaded.submit();
  assert.equal((await reloaded.settled()).status, "done");
  assert.equal(different(script.fields("idempotency-key")), 2);
});

await it("a storage that fails remembers nothing, and stops no command", async () => {
  const fail = (): never => {
    throw new DOMException("denied", "SecurityError");
  };
  const script = new ScriptedFetch(done());
  const client = clientOf(script.fetch, { journal: storageJournal(store()) });
  const page = new Page(client, { remember: { getItem: fail, setItem: fail } });
  page.submit();
  assert.equal((await page.settled()).status, "done");
});

await it("two forms of one intent on a page share its lock", async () => {
  const script = new ScriptedFetch(done());
  const client = clientOf(script.fetch, { journal: storageJournal(store()) });
  const [one, two] = [new Page(client, { intent: "order 17" }), new Page(client, { intent: "order 17" })];
  one.submit();
  two.submit();
  await one.settled();
  assert.equal(two.repeats, 1);
  assert.equal(two.once.state().status, "done");
  assert.equal(script.sent.length, 1);
});

await it("two tabs with a shared journal send under one key, and both get the outcome", async () => {
  const factory = new IDBFactory();
  const answer = signal<Response>();
  const script = new ScriptedFetch(
    () => answer.promise,
    () => done("{}", { "Idempotency-Replayed": "true" }),
  );
  const tab = (): Page => new Page(clientOf(script.fetch, { journal: indexedDbJournal("journal", factory) }));
  const [one, two] = [tab(), tab()];
  one.submit();
  two.submit();
  while (script.sent.length < 2) await new Promise(setImmediate);
  answer.give(done());
  assert.equal((await one.settled()).status, "done");
  assert.equal((await two.settled()).status, "done");
  assert.equal(different(script.fields("idempotency-key")), 1);
  assert.deepEqual(await indexedDbJournal("journal", factory).pending(), []);
});

await it("two tabs without a shared journal agree by a Web Lock", async () => {
  const held = new Set<string>();
  const locks = {
    async request<T>(name: string, _options: object, act: (lock: unknown) => Promise<T>): Promise<T> {
      await Promise.resolve();
      if (held.has(name)) return act(null);
      held.add(name);
      try {
        return await act({});
      } finally {
        held.delete(name);
      }
    },
  };
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
  try {
    const script = new ScriptedFetch(done(), done());
    const tab = (): Page => new Page(clientOf(script.fetch, { journal: storageJournal(store()) }));
    const [one, two] = [tab(), tab()];
    one.submit();
    two.submit();
    assert.equal((await one.settled()).status, "done");
    assert.equal((await two.settled()).status, "elsewhere");
    assert.equal(script.sent.length, 1);
    assert.equal(held.size, 0);
  } finally {
    if (before === undefined) Reflect.deleteProperty(globalThis, "navigator");
    else Object.defineProperty(globalThis, "navigator", before);
  }
});

await it("an outcome that another tab gets meanwhile makes no second command", async () => {
  const entry = { intent: "order 17", key: "k", digest: "00", origin: ORIGIN, caller: "", at: 1 };
  let looks = 0;
  const journal: Journal = {
    isShared: true,
    begin: () => Promise.reject(new Error("no new key is drawn")),
    clear: () => Promise.resolve(),
    pending: () => Promise.resolve((looks += 1) === 1 ? [entry] : []),
  };
  const script = new ScriptedFetch();
  const page = new Page(clientOf(script.fetch, { journal }), { intent: "order 17" });
  page.submit();
  assert.equal((await page.settled()).status, "elsewhere");
  assert.equal(script.sent.length, 0);
});

await it("a form is sent as the browser would send it", async () => {
  const script = new ScriptedFetch(done(), done());
  const client = clientOf(script.fetch, { journal: storageJournal(store()) });
  const html = `<form method="post" action="/wrong">
    <input name="action" value="a b"><input type="checkbox" name="off" value="1">
    <button id="plain">Pay</button>
    <button id="other" name="how" value="later" formaction="/later?x=1">Later</button></form>`;
  const page = new Page(client, {}, html);
  page.submit("#other");
  await page.settled();
  page.once.again();
  page.submit("#plain");
  await page.settled();
  assert.deepEqual(
    script.sent.map(({ url }) => url),
    [`${ORIGIN}/later?x=1`, `${ORIGIN}/wrong`],
  );
  assert.equal(bodies(script)[1], "action=a+b");
  assert.match(script.fields("content-type")[0] ?? "", /^application\/x-www-form-urlencoded/);
});

await it("a request of one's own is made in the event, before later edits", async () => {
  const script = new ScriptedFetch(done());
  const page = new Page(clientOf(script.fetch, { journal: storageJournal(store()) }), {
    request: (form) => ({
      input: `${ORIGIN}/payments`,
      init: { method: "POST", body: (form.querySelector("input") as HTMLInputElement).value },
    }),
  });
  page.submit();
  page.edit("6");
  await page.settled();
  assert.deepEqual(bodies(script), ["5"]);
});

await it("a form that is given back is the browser's again", () => {
  const script = new ScriptedFetch();
  const page = new Page(clientOf(script.fetch, { journal: storageJournal(store()) }));
  page.once.stop();
  assert.equal(page.submit(), true);
  assert.equal(script.sent.length, 0);
});

await it("a form that is no command, and a client without a journal, are refused at once", () => {
  const script = new ScriptedFetch();
  const client = clientOf(script.fetch, { journal: storageJournal(store()) });
  assert.throws(() => new Page(client, {}, `<form action="/search"></form>`), /method/);
  assert.throws(() => new Page(clientOf(script.fetch)), SemelError);
});

await it("a command that is under way cannot be abandoned", async () => {
  const answer = signal<Response>();
  const script = new ScriptedFetch(() => answer.promise);
  const client = clientOf(script.fetch, { journal: storageJournal(store()) });
  const submission = submissionOf(client, "order 17");
  const submitted = submission.submit(`${ORIGIN}/payments`, { method: "POST" });
  await assert.rejects(submission.abandon());
  submission.again();
  assert.equal(submission.state().status, "sending");
  assert.equal(submission.submit(`${ORIGIN}/payments`, { method: "POST" }), undefined);
  answer.give(done());
  assert.equal((await submitted)?.status, "done");
});

/** A tab whose steps are made one by one: each use of the journal and the network waits for its turn, before and after. */
class Tab {
  readonly submission: Submission;
  #turn: (() => void) | undefined;
  #state: "new" | "running" | "over" = "new";

  constructor(journal: Journal, remember: StringStore, serve: (key: string) => Response) {
    const stepped = async <T>(act: () => Promise<T>): Promise<T> => {
      await this.#pause();
      try {
        return await act();
      } finally {
        await this.#pause();
      }
    };
    const own: Journal = {
      isShared: true,
      begin: (entry) => stepped(() => journal.begin(entry)),
      clear: (intent, key) => stepped(() => journal.clear(intent, key)),
      pending: () => stepped(() => journal.pending()),
    };
    const fetch: Fetch = (_url, init) =>
      stepped(() => Promise.resolve(serve(new Headers(init.headers).get("idempotency-key") ?? "")));
    this.submission = submissionOf(clientOf(fetch, { journal: own }), "order 17", { remember });
  }

  get isOver(): boolean {
    return this.#state === "over";
  }

  get isWaiting(): boolean {
    return this.#turn !== undefined;
  }

  /** Clicks, or makes the next step, and waits until the tab waits for another one. */
  async step(): Promise<void> {
    if (this.#state === "new") {
      this.#state = "running";
      const submitted = this.submission.submit(`${ORIGIN}/payments`, { method: "POST", body: "5" });
      void Promise.resolve(submitted).then(() => {
        this.#state = "over";
      });
    }
    const turn = this.#turn;
    this.#turn = undefined;
    turn?.();
    while (!this.isWaiting && !this.isOver) await new Promise(setImmediate);
  }

  async steps(number: number): Promise<void> {
    for (let made = 0; made < number && !this.isOver; made += 1) await this.step();
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      this.#turn = resolve;
    });
  }
}

await it("two tabs of an order that is remembered pay it once, whichever is at which step", async () => {
  let runs = 0;
  for (let first = 0; first <= 9; first += 1)
    for (let second = 0; second <= 9; second += 1)
      for (let third = 0; third <= 9; third += 1) {
        const [journal, remember] = [storageJournal(store()), store()];
        const keys = new Set<string>();
        const serve = (key: string): Response => {
          const before = keys.has(key);
          keys.add(key);
          return done("{}", before ? { "Idempotency-Replayed": "true" } : {});
        };
        const [one, two] = [new Tab(journal, remember, serve), new Tab(journal, remember, serve)];
        await one.steps(first);
        await two.steps(second);
        await one.steps(third);
        await two.steps(99);
        await one.steps(99);
        const what = [first, second, third].join(" ");
        assert.equal(keys.size, 1, `${what}: commands`);
        for (const { submission } of [one, two])
          assert.ok(["done", "elsewhere"].includes(submission.state().status), what);
        assert.deepEqual(await journal.pending(), [], what);
        runs += 1;
      }
  assert.equal(runs, 1000);
});

await it("each intent that is done has a mark of its own, and the oldest of too many is forgotten", async () => {
  const items = new Map<string, string>();
  const remember = {
    getItem: (name: string) => items.get(name) ?? null,
    setItem: (name: string, value: string) => void items.set(name, value),
    removeItem: (name: string) => void items.delete(name),
    key: (index: number) => [...items.keys()][index] ?? null,
    get length() {
      return items.size;
    },
  };
  items.set("of the page", "1");
  const script = new ScriptedFetch(done(), done());
  const pay = async (intent: string): Promise<void> => {
    const client = clientOf(script.fetch, { journal: storageJournal(store()) });
    const submission = submissionOf(client, intent, { remember });
    await submission.submit(`${ORIGIN}/payments`, { method: "POST" });
  };
  await pay("order 17");
  const [, mark = ""] = [...items.keys()];
  assert.equal(items.size, 2);
  for (let number = 0; number < 999; number += 1) items.set(mark.replace("17", `a${String(number)}`), "2");
  items.set(mark, "1");
  await pay("order 18");
  assert.ok(items.has(mark.replace("17", "18")), "an item for each intent");
  assert.ok(!items.has(mark), "the oldest is gone");
  assert.equal(items.size, 1001);
  assert.ok(items.has("of the page"));
});

await it("a submission that is open or done is not forgotten for a new one", async () => {
  const script = new ScriptedFetch(done(), lost());
  const client = clientOf(script.fetch, { journal: storageJournal(store()), maxAttempts: 1 });
  const submissions = ["done", "open"].map((intent) => submissionOf(client, intent));
  for (const one of submissions) await one.submit(`${ORIGIN}/payments`, { method: "POST" });
  const idle = submissionOf(client, "idle");
  for (let number = 0; number < MAX_SUBMISSIONS; number += 1) submissionOf(client, String(number));
  assert.equal(submissionOf(client, "done"), submissions[0]);
  assert.equal(submissionOf(client, "open"), submissions[1]);
  assert.notEqual(submissionOf(client, "idle"), idle);
});
