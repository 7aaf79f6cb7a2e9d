/** The transport of a case: the real `fetch`, which records requests, and the faults that no socket makes. */

import type { Fetch } from "@semel/client";

import type { ManualClock } from "./clock.js";
import type { ServerItem } from "./format.js";
import type { ScriptedServer } from "./server.js";

/** A request as the client sent it. */
export interface Recorded {
  readonly url: string;
  readonly method: string;
  readonly headers: Headers;
  readonly body: Uint8Array;
}

/** The errors of Node's `fetch` for connections that are not made. */
const ERRORS: Readonly<Record<string, { code: string; syscall?: string }>> = {
  refuse: { code: "ECONNREFUSED", syscall: "connect" },
  connect_timeout: { code: "UND_ERR_CONNECT_TIMEOUT" },
  temporary_name: { code: "EAI_AGAIN", syscall: "getaddrinfo" },
  unknown_host: { code: "ENOTFOUND", syscall: "getaddrinfo" },
  certificate: { code: "DEPTH_ZERO_SELF_SIGNED_CERT" },
};

/** The transport of one case. */
export class Transport {
  /** The requests of the present call. */
  requests: Recorded[] = [];
  /** The items of the present call that are left. */
  script: ServerItem[] = [];
  /** Cancels the present call. */
  cancel: () => void = () => undefined;
  /** A mistake of the client that no expectation could see. */
  mistake: string | undefined;
  #left: Promise<unknown> = Promise.resolve();
  readonly #server: ScriptedServer;
  readonly #clock: ManualClock;

  constructor(server: ScriptedServer, clock: ManualClock) {
    this.#server = server;
    this.#clock = clock;
  }

  readonly fetch: Fetch = async (url, init) => {
    const body = init.body as Uint8Array | undefined;
    const headers = new Headers(init.headers);
    this.requests.push({ url, method: init.method ?? "GET", headers, body: body ?? new Uint8Array() });
    const item = this.script.shift();
    if (item === undefined) return this.#refuse("a request beyond the script");
    if (init.redirect !== "manual") return this.#refuse("a request that follows redirects");
    if (item.elapse !== undefined) this.#clock.advance(item.elapse);
    if (item.jump !== undefined) this.#clock.jump(item.jump);
    if (item.fault === "hang") {
      this.#clock.fireTimeout();
      init.signal?.throwIfAborted();
      return this.#refuse("an attempt without a timeout");
    }
    const error = ERRORS[item.fault ?? ""];
    if (error !== undefined) {
      if (item.fault === "connect_timeout") this.#clock.passTimeout();
      throw new TypeError("fetch failed", { cause: Object.assign(new Error(error.code), error) });
    }
    if (new URL(url).origin !== this.#server.origin) return this.#refuse(`a request to ${url}`);
    this.#server.next = item;
    if (item.fault !== "cancel") return fetch(url, init);
    this.cancel();
    const reset = fetch(url, { ...init, signal: null });
    this.#left = reset.catch(() => undefined);
    return reset;
  };

  /** Waits for a request that the client no longer waits for. */
  async settle(): Promise<void> {
    await this.#left;
  }

  #refuse(mistake: string): never {
    this.mistake = mistake;
    throw new Error(mistake);
  }
}
