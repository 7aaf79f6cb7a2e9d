/** What a whole answer says about its command, read from its header fields and its problem document. */

import type { Profile } from "./profile.js";

/** Advice about a retry, from `Idempotency-Retry`. */
export type RetryAdvice = "same-key" | "poll" | "never";

/** An operation of the server: a command, as the server knows it. */
export interface Operation {
  /** The operation's id. */
  readonly id: string;
  /** The absolute address of the operation's state; undefined if the server named one of another origin, or with user info. */
  readonly url: string | undefined;
}

/** The facts about an answer that a decision needs. */
export interface AnswerFacts {
  /** The status; 0 for a redirect that a browser hides. */
  readonly status: number;
  /** The problem's code, such as `IDEMPOTENCY_OUTCOME_UNKNOWN`; undefined for any answer that is no problem. */
  readonly code: string | undefined;
  /** True if the problem document names an operation. */
  readonly namesOperation: boolean;
  /** The server's advice about a retry. */
  readonly advice: RetryAdvice | undefined;
  /** `Stripe-Should-Retry`, in profile `stripe`. */
  readonly shouldRetry: boolean | undefined;
  /** True if the answer has `Retry-After`, whatever it says. */
  readonly hasRetryAfter: boolean;
  /** `Retry-After` in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** True if the answer is marked as a replay. */
  readonly replayed: boolean;
  /** True if the answer is marked as one without the stored body. */
  readonly notRetained: boolean;
  /** True if the answer has `Idempotency-Operation-Id`. */
  readonly marked: boolean;
  /** True if `Location` is the address of the operation that `Idempotency-Operation-Id` names. */
  readonly located: boolean;
  /** The operation that the answer names. */
  readonly operation: Operation | undefined;
}

/** The path below which Semel's operations are. */
export const OPERATIONS_PATH = "/.well-known/semel/operations/";
/** The form of an operation's id. */
const OPERATION_ID = /^[A-Za-z0-9_-]{1,128}$/;
/** The prefix of `type` in Semel's problem documents. */
const PROBLEM_URN = "urn:semel:problem:";
/** The code that an answer with `Idempotency-Operation-Id` can have; others there are the handler's own. */
const NOT_RETAINED = "IDEMPOTENCY_RESPONSE_NOT_RETAINED";

/** Reads the facts of an answer to a command that was sent to `url`; `now` is the wall clock. */
export function readFacts(
  profile: Profile,
  url: string,
  status: number,
  headers: Headers,
  body: Uint8Array,
  now: number,
): AnswerFacts {
  const id = headers.get("idempotency-operation-id") ?? undefined;
  const found = readProblem(profile, headers, body);
  const problem = id === undefined || found?.code === NOT_RETAINED ? found : undefined;
  const location = headers.get("location");
  const located = id !== undefined && isAt(location, url, OPERATIONS_PATH + id);
  const replayed = profile === "stripe" ? "idempotent-replayed" : "idempotency-replayed";
  return {
    status,
    code: problem?.code,
    namesOperation: problem?.operationId !== undefined,
    advice: adviceOf(headers),
    shouldRetry: profile === "stripe" ? flag(headers.get("stripe-should-retry")) : undefined,
    hasRetryAfter: headers.has("retry-after"),
    retryAfterMs: retryAfter(headers.get("retry-after"), now),
    replayed: flag(headers.get(replayed)) === true,
    notRetained: word(headers.get("idempotency-body")) === "not-retained",
    marked: id !== undefined,
    located,
    operation: operationOf(
      url,
      problem?.operationId ?? id,
      problem?.operationUrl ?? (located ? location : undefined),
    ),
  };
}

/** Reads `Retry-After` (seconds, or an HTTP-date) as milliseconds from `now`. Anything else counts as absent. */
export function retryAfter(field: string | null, now: number): number | undefined {
  if (field === null) return undefined;
  const value = field.trim();
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  const date = httpDate(value);
  return date === undefined ? undefined : Math.max(0, date - now);
}

/** Reads an HTTP-date as milliseconds since 1970. */
export function httpDate(value: string): number | undefined {
  const date = /^[A-Z][a-z]+, .* GMT$/.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(date) ? undefined : date;
}

/** The members of a problem document that decide. */
interface ProblemFacts {
  readonly code: string | undefined;
  readonly operationId: string | undefined;
  readonly operationUrl: string | undefined;
}

/** Reads a problem document of Semel, or else in profile `stripe` the object in the member `error`. */
function readProblem(profile: Profile, headers: Headers, body: Uint8Array): ProblemFacts | undefined {
  if (!isJson(headers)) return undefined;
  const document = object(parse(body));
  if (document !== undefined && text(document["type"])?.startsWith(PROBLEM_URN) === true) {
    return problemFacts(document, text(document["code"]));
  }
  const error = profile === "stripe" ? object(document?.["error"]) : undefined;
  return error === undefined ? undefined : problemFacts(error, stripeCode(error));
}

function problemFacts(members: Members, code: string | undefined): ProblemFacts {
  const named = (name: string): string | undefined => {
    const value = text(members[name]);
    // An empty text names nothing.
    return value === "" ? undefined : value;
  };
  return { code, operationId: named("operationId"), operationUrl: named("operationUrl") };
}

/** Returns Semel's code for an error in Stripe's envelope. */
function stripeCode(error: Members): string | undefined {
  if (text(error["type"]) === "idempotency_error") return "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST";
  const code = text(error["code"])?.toUpperCase();
  return code === "IDEMPOTENCY_KEY_IN_USE" ? "IDEMPOTENCY_REQUEST_IN_PROGRESS" : code;
}

function adviceOf(headers: Headers): RetryAdvice | undefined {
  const field = word(headers.get("idempotency-retry"));
  return field === "same-key" || field === "poll" || field === "never" ? field : undefined;
}

/** Finds the address of an operation: the one that is named, or the usual one, of the command's origin only. */
function operationOf(
  base: string,
  id: string | undefined,
  named: string | null | undefined,
): Operation | undefined {
  if (id === undefined || !OPERATION_ID.test(id)) return undefined;
  const reference = named ?? OPERATIONS_PATH + id;
  if (!URL.canParse(reference, base)) return { id, url: undefined };
  const url = new URL(reference, base);
  const isPlain = url.username === "" && url.password === "";
  return { id, url: isPlain && url.origin === new URL(base).origin ? url.href : undefined };
}

/** Returns true if `reference` leads from `base` to this path. */
function isAt(reference: string | null, base: string, path: string): boolean {
  return reference !== null && URL.canParse(reference, base) && new URL(reference, base).pathname === path;
}

/** Returns true for `application/json` and media types that end in `+json`. */
export function isJson(headers: Headers): boolean {
  const type = (headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  return type === "application/json" || type.endsWith("+json");
}

/** Parses JSON, or returns undefined. */
export function parse(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)) as unknown;
  } catch {
    return undefined;
  }
}

/** The members of a JSON object. */
type Members = Readonly<Record<string, unknown>>;

/** Returns `value` if it is an object with members. */
export function object(value: unknown): Members | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Members)
    : undefined;
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** Returns the value of a field whose case does not matter. */
function word(field: string | null): string | undefined {
  return field?.trim().toLowerCase();
}

function flag(field: string | null): boolean | undefined {
  const value = word(field);
  return value === "true" ? true : value === "false" ? false : undefined;
}
