/** What several tests use: a `fetch` with a script, and clients of it. */

import { semel, type Client, type ClientOptions, type Fetch } from "@semel/client";

import { ManualClock } from "./cases/clock.js";

/** The origin of tests without a server. */
export const ORIGIN = "https://api.example.com";
/** Start of the wall clock of tests. */
export const NOW = 1_800_000_000_000;

/** An answer of a script, or the error in its place. */
export type Scripted = Response | Error | ((url: string, init: RequestInit) => Promise<Response> | Response);

/** A `fetch` that answers in order, and keeps what it was asked. */
export class ScriptedFetch {
  readonly sent: { url: string; init: RequestInit }[] = [];
  readonly #script: Scripted[];

  constructor(...script: Scripted[]) {
    this.#script = script;
  }

  readonly fetch: Fetch = async (url, init) => {
    this.sent.push({ url, init });
    const next = this.#script.shift();
    if (next === undefined) throw new Error("nothing is left of the script");
    if (next instanceof Error) throw next;
    return typeof next === "function" ? next(url, init) : next;
  };

  /** Returns the values of a header field of all requests. */
  fields(name: string): (string | null)[] {
    return this.sent.map(({ init }) => new Headers(init.headers).get(name));
  }
}

/** Returns the answer of a command that is done. */
export function done(body = "{}", headers: Record<string, string> = {}): Response {
  return new Response(body, { status: 201, headers: { "Idempotency-Operation-Id": "op_1", ...headers } });
}

/** Returns the error of a connection that was lost. */
export function lost(): Error {
  return new TypeError("fetch failed", { cause: Object.assign(new Error("reset"), { code: "ECONNRESET" }) });
}

/** Returns a client with a clock that never waits. */
export function clientOf(fetch: Fetch, options: Partial<ClientOptions> = {}): Client {
  const defaults = {
    origins: [ORIGIN],
    profile: "semel",
    clock: new ManualClock(NOW),
    random: () => 0.5,
  } as const;
  return semel(fetch, { ...defaults, ...options });
}

/** Returns a promise, and the function that fulfils it. */
export function signal<T = void>(): { promise: Promise<T>; give: (value: T) => void } {
  let give: (value: T) => void = () => undefined;
  const promise = new Promise<T>((resolve) => {
    give = resolve;
  });
  return { promise, give };
}
