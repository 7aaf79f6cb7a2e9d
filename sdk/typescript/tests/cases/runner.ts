/** Runs one shared case, with one kind of journal. */

import assert from "node:assert/strict";

import {
  semel,
  SemelError,
  type AttemptNotice,
  type Client,
  type ClientOptions,
  type CommandInit,
  type Outcome,
} from "@semel/client";

import { ManualClock } from "./clock.js";
import type { Call, Case, CaseOptions, Expectation, SendCall } from "./format.js";
import { checkEveryRequest, checkRequests, same } from "./expect.js";
import type { CaseJournal } from "./journals.js";
import type { ScriptedServer } from "./server.js";
import { Transport } from "./transport.js";

/** Start of the wall clock: 2027-01-15 08:00:00 GMT. */
const NOW = 1_800_000_000_000;

/** What a call gave. */
type CallResult = { readonly outcome: Outcome } | { readonly error: SemelError };

/** One run of a case. */
export class CaseRun {
  readonly #case: Case;
  readonly #server: ScriptedServer;
  readonly #journal: CaseJournal | undefined;
  readonly #clock: ManualClock;
  readonly #transport: Transport;
  readonly #random: () => number;
  /** The values of `Idempotency-Key` of the case, in the order of the requests. */
  readonly #keys: string[] = [];
  #hook: AttemptNotice[] = [];
  #client: Client;

  constructor(one: Case, server: ScriptedServer, journal: CaseJournal | undefined) {
    this.#case = one;
    this.#server = server;
    this.#journal = journal;
    server.profile = one.profile ?? "semel";
    this.#clock = new ManualClock(one.now ?? NOW);
    this.#transport = new Transport(server, this.#clock);
    const draws = [...(one.random ?? [0.5])];
    this.#random = () => (draws.length > 1 ? draws.shift() : draws[0]) ?? 0.5;
    this.#client = this.#start({}, undefined);
  }

  /** Makes the calls of the case. */
  async run(): Promise<void> {
    for (const [index, call] of this.#case.calls.entries()) {
      try {
        await this.#call(call);
      } catch (error) {
        if (error instanceof assert.AssertionError)
          error.message = `call ${String(index + 1)}: ${error.message}`;
        throw error;
      }
    }
    await this.#journal?.drop();
  }

  #start(options: CaseOptions, origins: readonly string[] | undefined): Client {
    const named = origins ?? this.#case.origins ?? ["$server"];
    return semel(this.#transport.fetch, {
      ...clientOptions({ ...this.#case.options, ...options }),
      origins: named.map((origin) => (origin === "$server" ? this.#server.origin : origin)),
      profile: this.#case.profile ?? "semel",
      clock: this.#clock,
      random: this.#random,
      onAttempt: (notice) => this.#hook.push(notice),
      ...(this.#journal === undefined ? {} : { journal: this.#journal.open() }),
    });
  }

  async #call(call: Call): Promise<void> {
    switch (call.do) {
      case "send":
      case "resume":
        await this.#send(call);
        return;
      case "pending":
        await this.#checkJournal(call.expect ?? {});
        return;
      case "restart":
        await this.#journal?.drop();
        this.#client = this.#start(call.options ?? {}, call.origins);
        return;
      case "tear_journal":
        await this.#journal?.drop();
        this.#journal?.tear?.(call);
        return;
      case "jump_clock":
        this.#clock.jump(call.by);
        return;
      case "advance_clock":
        this.#clock.advance(call.by);
    }
  }

  async #send(call: SendCall): Promise<void> {
    const abort = new AbortController();
    if (call.cancelBefore === true) abort.abort();
    this.#hook = [];
    this.#clock.waits = [];
    this.#clock.onWait = (number) => {
      if (number === call.cancelInWait) abort.abort();
    };
    const transport = this.#transport;
    transport.requests = [];
    transport.script = [...(call.server ?? [])];
    transport.cancel = () => {
      abort.abort();
    };
    const result = await this.#result(call, abort.signal);
    await transport.settle();
    assert.equal(transport.mistake, undefined);
    assert.deepEqual(transport.script, [], "the server has answers left");
    await this.#check(call, result);
  }

  async #result(call: SendCall, signal: AbortSignal): Promise<CallResult> {
    const { url, init, intent, key } = this.#request(call);
    try {
      if (call.do === "resume")
        return { outcome: await this.#client.resume(intent ?? "", url, { ...init, signal }) };
      const names: CommandInit = {
        ...(key === undefined ? {} : { key }),
        ...(intent === undefined ? {} : { intent }),
      };
      return { outcome: await this.#client(url, { ...init, ...names, signal }) };
    } catch (error) {
      if (error instanceof SemelError) return { error };
      throw error;
    }
  }

  #request(call: SendCall): { url: string; init: RequestInit; intent?: string; key?: string } {
    const { request = {} } = call;
    const { method = "POST", path = "/payments", headers = {}, intent, key } = request;
    const body = request.body === undefined ? { amount: 5 } : request.body;
    const fields = new Headers({ ...headers });
    let sent: Uint8Array<ArrayBuffer> | string | undefined;
    // Bytes, since `fetch` gives a string a content type.
    if (typeof body === "string") sent = new TextEncoder().encode(body);
    else if (body !== null) {
      sent = JSON.stringify(body);
      if (!fields.has("content-type")) fields.set("content-type", "application/json");
    }
    const init: RequestInit = { method, headers: fields, ...(sent === undefined ? {} : { body: sent }) };
    const url = request.url ?? this.#server.origin + path;
    return { url, init, ...(intent === undefined ? {} : { intent }), ...(key === undefined ? {} : { key }) };
  }

  async #check(call: SendCall, result: CallResult): Promise<void> {
    const expect = call.expect ?? {};
    const { requests } = this.#transport;
    const got = "outcome" in result ? result.outcome : result.error;
    const name = "outcome" in result ? result.outcome.kind : `error:${result.error.kind}`;
    const why = got instanceof SemelError ? got.message : JSON.stringify(got);
    if (expect.outcome !== undefined) assert.equal(name, expect.outcome, `outcome: ${why}`);
    await checkOutcome(expect, got);
    const drawn = call.request?.key === undefined && call.do === "send";
    checkEveryRequest(requests, this.#server.origin, this.#case.profile ?? "semel", drawn);
    checkRequests(expect, requests, this.#keys);
    if (expect.waits !== undefined) assert.deepEqual(this.#clock.waits, expect.waits, "waits");
    if (expect.tokens !== undefined) assert.equal(this.#client.budget.tokens, expect.tokens, "tokens");
    if (expect.hook !== undefined) {
      const told = this.#hook.map(({ number, waitMs, reason }) => ({ number, wait: waitMs, reason }));
      assert.equal(told.length, expect.hook.length, "calls of the hook");
      for (const [index, item] of expect.hook.entries()) same(told[index], item, `hook ${String(index + 1)}`);
    }
    await this.#checkJournal(expect);
  }

  async #checkJournal(expect: Expectation): Promise<void> {
    if (expect.outcome !== undefined && expect.journal === undefined) return;
    const entries = await this.#client.pending().then(
      (some) => some.map(({ intent }) => intent),
      (error: unknown) => (error instanceof SemelError ? error : Promise.reject(error as Error)),
    );
    if (entries instanceof SemelError) {
      // Only `pending` itself has an outcome here.
      if (expect.journal !== undefined) throw entries;
    } else if (expect.journal !== undefined) {
      assert.deepEqual(entries, expect.journal, "journal");
    }
  }
}

async function checkOutcome(expect: Expectation, got: Outcome | SemelError): Promise<void> {
  const facts = got as unknown as Partial<Record<string, unknown>>;
  const response = facts["response"] as Response | undefined;
  if (expect.status !== undefined) assert.equal(response?.status, expect.status, "status");
  if (expect.body !== undefined) {
    const text = await response?.clone().text();
    if (typeof expect.body === "string") assert.equal(text, expect.body, "body");
    else assert.deepEqual(JSON.parse(text ?? ""), expect.body, "body");
  }
  if (expect.replayed !== undefined) assert.equal(facts["replayed"], expect.replayed, "replayed");
  if (expect.expires !== undefined) {
    const expires = facts["expires"] as Date | undefined;
    assert.equal(expires?.getTime(), Date.parse(expect.expires), "expires");
  }
  if (expect.operation !== undefined) {
    const operation = facts["operation"] as { id: string } | undefined;
    assert.equal(operation?.id ?? null, expect.operation, "operation");
  }
  if (expect.attempts !== undefined) assert.equal(facts["attempts"], expect.attempts, "attempts");
  if (expect.stopped !== undefined) assert.equal(facts["stopped"], expect.stopped, "stopped");
  if (expect.last !== undefined) same(facts["last"], expect.last, "last");
}

/** Translates the options of a case. */
function clientOptions(options: CaseOptions): Partial<ClientOptions> {
  const { base, cap, deadline, attemptTimeout, attempts, retryAfterMax } = options;
  const { budgetTokens, budgetCost, budgetReturn, maxAge, responseBound, onAccepted, caller } = options;
  const all = {
    baseMs: base,
    capMs: cap,
    deadlineMs: deadline,
    attemptTimeoutMs: attemptTimeout,
    maxAttempts: attempts,
    retryAfterMaxMs: retryAfterMax,
    maxAgeMs: maxAge,
    maxResponseBytes: responseBound,
    onAccepted,
    caller,
    budget: present({ tokens: budgetTokens, cost: budgetCost, refund: budgetReturn }),
  };
  return present(all);
}

function present(members: object): object {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}
