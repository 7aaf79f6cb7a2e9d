/** The client: `semel(fetch, options)` returns a `fetch` for commands. */

import { sendOnce, type Fetch, type Host } from "./attempt.js";
import { BUDGET_TOKENS, FINAL_REFUND, RETRY_COST, RetryBudget } from "./budget.js";
import { HOOKS, messageOf, run, type AttemptNotice, type Hooks, type Shared } from "./call.js";
import { systemClock, type Clock } from "./clock.js";
import { SemelError } from "./errors.js";
import { unavailable, type Journal, type JournalEntry } from "./journal.js";
import { keyFault, uuidv7 } from "./key.js";
import type { LastAttempt, Outcome } from "./outcome.js";
import type { Profile } from "./profile.js";
import { digest, hasDigests, prepare, type PreparedRequest } from "./request.js";
import { refusal } from "./resume.js";
import type { Limits } from "./terms.js";

/** Age from which a journal entry is not sent: below the 24 hours that a server keeps its records. */
export const MAX_AGE_MS = 23 * 60 * 60 * 1000;
/** Most bytes of an answer. */
export const MAX_RESPONSE_BYTES = 16 * 1024 * 1024;
/** The bounds of a call. */
export const LIMITS: Limits = {
  baseMs: 100,
  capMs: 5_000,
  deadlineMs: 30_000,
  attemptTimeoutMs: 10_000,
  maxAttempts: 8,
  retryAfterMaxMs: 30_000,
};

/** Methods that never are commands. */
const SAFE_METHODS = ["GET", "HEAD", "OPTIONS", "TRACE"];

/** Options of a client. */
export interface ClientOptions extends Partial<Limits> {
  /** The origins that heed keys, such as `https://api.example.com`. Requests to others get none, and one attempt. */
  readonly origins: readonly string[];
  /** What kind of server they are. */
  readonly profile: Profile;
  /** Where keys outlive the process or the page. */
  readonly journal?: Journal;
  /** The client's name for itself: an entry of another caller is never sent. */
  readonly caller?: string;
  /** What to do with a 202: poll until the command's own answer, or return `accepted`. */
  readonly onAccepted?: "poll" | "return";
  /** Age from which a journal entry is not sent, in milliseconds. */
  readonly maxAgeMs?: number;
  /** Most bytes of an answer. */
  readonly maxResponseBytes?: number;
  /** The retry budget. */
  readonly budget?: { readonly tokens?: number; readonly cost?: number; readonly refund?: number };
  /** Is told of each attempt, before it is made. */
  readonly onAttempt?: (notice: AttemptNotice) => void;
  /** Time. */
  readonly clock?: Clock;
  /** Returns a number of at least 0 and below 1, for the jitter. Keys are drawn elsewhere. */
  readonly random?: () => number;
}

/** What a command's `init` has beside that of `fetch`. */
export interface CommandInit extends RequestInit {
  /** The key; a UUIDv7 if absent. */
  key?: string;
  /** The caller's name for what it wants, for the journal. */
  intent?: string;
  /** Allows to buffer a body that is a stream. */
  buffer?: boolean;
}

/** What a submission passes. */
type HookedInit = CommandInit & { [HOOKS]?: Hooks };

/** A `fetch` for commands. */
export interface Client {
  /** Sends a command under one key, and returns its outcome. */
  (input: string | URL | Request, init?: CommandInit): Promise<Outcome>;
  /** Goes on with a command of the journal: the same request, under the same key. */
  resume(
    intent: string,
    input: string | URL | Request,
    init?: Omit<CommandInit, "key" | "intent">,
  ): Promise<Outcome>;
  /** Returns the commands of the journal, the oldest first. */
  pending(): Promise<readonly JournalEntry[]>;
  /** The journal. */
  readonly journal: Journal | undefined;
  /** The retry budget that all calls share. */
  readonly budget: RetryBudget;
}

/** Returns a client that sends through `fetch`. */
export function semel(fetch: Fetch, options: ClientOptions): Client {
  checkOptions(options);
  const origins = new Set(options.origins.map((origin) => new URL(origin).origin));
  const { profile, journal, caller = "" } = options;
  const { tokens = BUDGET_TOKENS, cost = RETRY_COST, refund = FINAL_REFUND } = options.budget ?? {};
  const clock = options.clock ?? systemClock;
  const maxAgeMs = options.maxAgeMs ?? MAX_AGE_MS;
  const host: Host = {
    // `fetch` of a browser must not be called as a method of another object.
    fetch: (url, init) => fetch(url, init),
    clock,
    profile,
    maxResponseBytes: options.maxResponseBytes ?? MAX_RESPONSE_BYTES,
  };
  const limits = limitsOf(options);
  const shared: Shared = {
    host,
    terms: { profile, limits, onAccepted: options.onAccepted ?? "poll", retryCost: cost },
    budget: new RetryBudget(tokens, refund),
    random: options.random ?? Math.random,
    journal,
    onAttempt: options.onAttempt,
  };

  const isCommand = ({ url, method }: PreparedRequest): boolean =>
    origins.has(new URL(url).origin) && !SAFE_METHODS.includes(method);

  const send = async (input: string | URL | Request, init: CommandInit = {}): Promise<Outcome> => {
    const startedAt = clock.monotonic();
    const { key: ownKey, intent, buffer = false, [HOOKS]: hooks, ...rest } = init as HookedInit;
    const signal = signalOf(input, init);
    const request = await prepare(input, rest, buffer);
    if (!isCommand(request)) {
      if (ownKey !== undefined || intent !== undefined) throw unnamedOrigin();
      return sendPlain(shared, request, signal);
    }
    const key = ownKey ?? uuidv7(clock.now());
    checkKey(request, key, profile);
    if (intent !== undefined) {
      const { origin } = new URL(request.url);
      await usable(journal, async (open) => {
        await open.begin({ intent, key, digest: await digest(request), origin, caller, at: clock.now() });
        if (hooks?.mayBegin() !== false) return;
        await open.clear(intent, key);
        throw new SemelError("no_such_entry", "another tab has the outcome of this intent");
      });
    }
    return run(shared, { request, key, intent, isResumed: false, startedAt, signal, hooks });
  };

  const resume: Client["resume"] = async (intent, input, init = {}) => {
    const startedAt = clock.monotonic();
    const { buffer = false, [HOOKS]: hooks, ...rest } = init as HookedInit;
    const signal = signalOf(input, init);
    const request = await prepare(input, rest, buffer);
    if (!isCommand(request)) throw unnamedOrigin();
    if (request.headers.has("idempotency-key")) throw ownField();
    const entries = await usable(journal, (open) => open.pending());
    const entry = entries.find((one) => one.intent === intent);
    const reason = refusal(entry, { caller, digest: await digest(request), now: clock.now(), maxAgeMs });
    if (reason !== undefined) throw reason;
    if (entry === undefined) throw new Error("an absent entry is refused");
    return run(shared, { request, key: entry.key, intent, isResumed: true, startedAt, signal, hooks });
  };

  return Object.assign(send, {
    resume,
    pending: () => usable(journal, (open) => open.pending()),
    journal,
    budget: shared.budget,
  });
}

/** The names of all options, with the least number of those that are one. */
const OPTIONS: Readonly<Record<keyof ClientOptions, number | undefined>> = {
  origins: undefined,
  profile: undefined,
  journal: undefined,
  caller: undefined,
  onAccepted: undefined,
  budget: undefined,
  onAttempt: undefined,
  clock: undefined,
  random: undefined,
  baseMs: 0,
  capMs: 0,
  deadlineMs: 0,
  attemptTimeoutMs: 0,
  maxAttempts: 1,
  retryAfterMaxMs: 0,
  maxAgeMs: 0,
  maxResponseBytes: 0,
};
const BUDGET_OPTIONS = ["tokens", "cost", "refund"];
const PROFILES: readonly unknown[] = ["semel", "ietf", "stripe"];

/** Refuses options that the types would refuse too, and numbers that are none. */
function checkOptions(options: ClientOptions): void {
  const given: unknown = options;
  if (typeof given !== "object" || given === null) throw new TypeError("the options are no object");
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(OPTIONS, name)) throw new TypeError(`there is no option ${name}`);
    const least = OPTIONS[name as keyof ClientOptions];
    if (least !== undefined) checkNumber(name, value, least);
  }
  const { origins, profile, budget, onAccepted, caller }: Partial<Record<keyof ClientOptions, unknown>> =
    given;
  if (!Array.isArray(origins)) throw new TypeError("origins is no array of addresses");
  for (const origin of origins as unknown[]) {
    if (typeof origin !== "string" || !URL.canParse(origin) || new URL(origin).origin === "null") {
      throw new TypeError(
        `origins has ${String(origin)}, which is no origin such as https://api.example.com`,
      );
    }
  }
  if (!PROFILES.includes(profile)) throw new TypeError("profile is neither semel, ietf nor stripe");
  if (onAccepted !== undefined && onAccepted !== "poll" && onAccepted !== "return") {
    throw new TypeError("onAccepted is neither poll nor return");
  }
  if (caller !== undefined && typeof caller !== "string") throw new TypeError("caller is no string");
  if (budget === undefined) return;
  if (typeof budget !== "object" || budget === null) throw new TypeError("budget is no object");
  for (const [name, value] of Object.entries(budget)) {
    if (!BUDGET_OPTIONS.includes(name)) throw new TypeError(`there is no option budget.${name}`);
    checkNumber(`budget.${name}`, value, 0);
  }
}

function checkNumber(name: string, value: unknown, least: number): void {
  if (value === undefined) return;
  if (typeof value !== "number") throw new TypeError(`${name} is no number`);
  if (!Number.isFinite(value) || value < least) {
    throw new RangeError(`${name} is no number of at least ${String(least)}`);
  }
}

function limitsOf(options: ClientOptions): Limits {
  const limits: { -readonly [Name in keyof Limits]: number } = { ...LIMITS };
  for (const name of Object.keys(LIMITS) as (keyof Limits)[]) {
    const value = options[name];
    if (value !== undefined) limits[name] = value;
  }
  return limits;
}

function checkKey(request: PreparedRequest, key: string, profile: Profile): void {
  if (request.headers.has("idempotency-key")) throw ownField();
  const fault = keyFault(key, profile);
  if (fault !== undefined) throw new SemelError("bad_key", fault);
}

function ownField(): SemelError {
  return new SemelError("bad_key", "the request has an Idempotency-Key of its own: pass it as `key`");
}

function unnamedOrigin(): SemelError {
  return new SemelError(
    "unnamed_origin",
    "a key or an intent is for commands to a named origin: others would ignore it, and run the command twice",
  );
}

function signalOf(input: string | URL | Request, init: RequestInit): AbortSignal | undefined {
  return init.signal ?? (input instanceof Request ? input.signal : undefined);
}

/** Runs with the journal; each error that is not about an intent means that it cannot be used. */
async function usable<T>(journal: Journal | undefined, act: (open: Journal) => Promise<T>): Promise<T> {
  if (journal === undefined) throw unavailable("the client has none");
  if (!hasDigests()) throw unavailable("the page is not secure, and has no crypto.subtle");
  try {
    return await act(journal);
  } catch (error) {
    throw error instanceof SemelError ? error : unavailable("it failed", error);
  }
}

/** Makes the one attempt of a request that is no command, or whose server may ignore keys. */
async function sendPlain(
  shared: Shared,
  request: PreparedRequest,
  signal: AbortSignal | undefined,
): Promise<Outcome> {
  if (signal?.aborted === true) {
    throw new SemelError("not_executed", messageOf("not_executed", undefined), { stopped: "cancelled" });
  }
  const { limits } = shared.terms;
  const { options, method, headers, body } = request;
  const init = body === undefined ? { ...options, method, headers } : { ...options, method, headers, body };
  const timeoutMs = Math.min(limits.attemptTimeoutMs, limits.deadlineMs);
  const { result, response, cause } = await sendOnce(shared.host, request.url, init, timeoutMs, signal);
  const common = { operation: undefined, attempts: 1 };
  if (result.kind === "answer" && response !== undefined) {
    const { replayed } = result.facts;
    return { kind: "final", response, replayed, expires: undefined, ...common };
  }
  const failure = result.kind === "failure" ? result.failure : "lost";
  const last: LastAttempt = { reason: failure };
  if (failure === "certificate" || failure === "unknown_host") {
    throw new SemelError(failure, messageOf(failure, undefined), { attempts: 1, last, cause });
  }
  const stopped = "unnamed_origin";
  if (failure === "connect" || failure === "name") {
    throw new SemelError("not_executed", messageOf("not_executed", last), {
      attempts: 1,
      stopped,
      last,
      cause,
    });
  }
  return { kind: "unresolved", key: undefined, stopped, last, ...common };
}
