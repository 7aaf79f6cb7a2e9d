/** One attempt: a request, and its whole answer or the failure in its place. */

import { parse, readFacts } from "./answer.js";
import type { Clock } from "./clock.js";
import { classify, type Failure } from "./failure.js";
import type { Profile } from "./profile.js";
import { readBounded } from "./request.js";
import type { AttemptResult } from "./terms.js";

/** The part of `fetch` that a client uses. */
export type Fetch = (input: string, init: RequestInit) => Promise<Response>;

/** What attempts need of their surroundings. */
export interface Host {
  readonly fetch: Fetch;
  readonly clock: Clock;
  readonly profile: Profile;
  readonly maxResponseBytes: number;
}

/** The result of an attempt, with the answer itself. */
export interface Attempt {
  readonly result: AttemptResult;
  /** The answer, which can be read again. */
  readonly response: Response | undefined;
  /** The answer's body as JSON, where it is some. */
  readonly document: unknown;
  /** The error of a failure. */
  readonly cause: unknown;
}

/** Statuses whose answers have no body. */
const WITHOUT_BODY = [101, 204, 205, 304];

/** Sends a request once. Never rejects. A cancelled or late request counts as sent. */
export async function sendOnce(
  host: Host,
  url: string,
  init: RequestInit,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<Attempt> {
  const controller = new AbortController();
  const state = { isLate: false };
  let leave: () => void = () => undefined;
  // A `fetch` that does not heed its signal is left alone.
  const left = new Promise<never>((_, reject) => {
    leave = () => {
      const reason = new DOMException("the attempt has ended", "AbortError");
      controller.abort(reason);
      reject(reason);
    };
  });
  const stopTimer = host.clock.timer(timeoutMs, () => {
    state.isLate = true;
    leave();
  });
  signal?.addEventListener("abort", leave);
  if (signal?.aborted === true) leave();
  try {
    const exchange = receive(host, url, { ...init, redirect: "manual", signal: controller.signal });
    exchange.catch(() => undefined);
    return await Promise.race([exchange, left]);
  } catch (error) {
    const failure = state.isLate ? "timeout" : signal?.aborted === true ? "lost" : failureOf(error);
    return failed(failure, error);
  } finally {
    stopTimer();
    signal?.removeEventListener("abort", leave);
    controller.abort();
  }
}

/** Marks an error that came after the head of an answer. */
class CutError extends Error {}

function failureOf(error: unknown): Failure {
  return error instanceof CutError ? "lost" : classify(error);
}

async function receive(host: Host, url: string, init: RequestInit): Promise<Attempt> {
  const response = await host.fetch(url, init);
  const { body } = response;
  let bytes: Uint8Array<ArrayBuffer> | undefined = new Uint8Array();
  try {
    if (body !== null) bytes = await readBounded(body, host.maxResponseBytes);
  } catch (error) {
    throw new CutError("the answer did not arrive whole", { cause: error });
  }
  if (bytes === undefined) {
    return failed("too_large", new Error(`the answer has more than ${String(host.maxResponseBytes)} bytes`));
  }
  const { status, headers } = response;
  const facts = readFacts(host.profile, url, status, headers, bytes, host.clock.now());
  const whole = rebuild(response, url, bytes);
  return { result: { kind: "answer", facts }, response: whole, document: parse(bytes), cause: undefined };
}

function failed(failure: Failure, cause: unknown): Attempt {
  return { result: { kind: "failure", failure }, response: undefined, document: undefined, cause };
}

/** Makes an answer that can be read from the one that was. */
function rebuild(response: Response, url: string, bytes: Uint8Array<ArrayBuffer>): Response {
  const { status, headers } = response;
  const isUsual = status >= 200 && status <= 599;
  const statusText = /^[\t\x20-\x7e]*$/.test(response.statusText) ? response.statusText : "";
  const body = bytes.length === 0 || WITHOUT_BODY.includes(status) ? null : bytes;
  const whole = new Response(body, { status: isUsual ? status : 500, statusText, headers });
  // The constructor takes no address, and only the usual statuses.
  Object.defineProperty(whole, "url", { value: response.url === "" ? url : response.url });
  if (!isUsual) Object.defineProperty(whole, "status", { value: status });
  return whole;
}
