/**
 * The decision what to do after each step of a call: one pure function. The loop in `call.ts` only acts. The
 * table of answers is in `judge.ts`.
 */

import { object, type AnswerFacts, type Operation } from "./answer.js";
import type { ErrorKind } from "./errors.js";
import { judge } from "./judge.js";
import type { LastAttempt, Stopped } from "./outcome.js";
import type { AttemptResult, CallTerms } from "./terms.js";

/** Most polls of a call. */
export const MAX_POLLS = 100;

/** What a call knows. */
export interface CallState {
  readonly terms: CallTerms;
  /** Number of times that the command was sent. */
  readonly attempts: number;
  /** Number of polls. */
  readonly polls: number;
  /** True once the command may have run. */
  readonly ambiguous: boolean;
  /** What the call polls for, if it does. */
  readonly polling: "accepted" | "unknown" | undefined;
  /** The operation that an answer named last. */
  readonly operation: Operation | undefined;
  /** The last attempt. */
  readonly last: LastAttempt | undefined;
  /** `Retry-After` of the last answer. */
  readonly retryAfterMs: number;
}

/** What happened. */
export type CallEvent =
  | { readonly kind: "begun" }
  | { readonly kind: "waited" }
  | { readonly kind: "attempt"; readonly result: AttemptResult }
  | { readonly kind: "polled"; readonly result: AttemptResult; readonly document: unknown }
  | { readonly kind: "fetched"; readonly result: AttemptResult };

/** The facts from outside that a decision needs. */
export interface Surroundings {
  /** Time since the call began, in milliseconds. */
  readonly elapsedMs: number;
  /** True if the caller has cancelled the call. */
  readonly cancelled: boolean;
  /** Tokens in the retry budget. */
  readonly tokens: number;
  /** The next number of the random source, at least 0 and below 1. */
  readonly draw: number;
}

/** What the loop does next. A wait costs these tokens. */
export type Step =
  | { readonly do: "send" }
  | { readonly do: "wait"; readonly ms: number; readonly tokens: number }
  | { readonly do: "poll"; readonly url: string }
  | { readonly do: "fetch"; readonly url: string }
  | { readonly do: "end"; readonly ending: Ending };

/** How a call ends. */
export type Ending =
  | { readonly kind: "final" | "accepted" | "unknown" }
  | { readonly kind: "unresolved"; readonly stopped: Stopped }
  | { readonly kind: "error"; readonly error: ErrorKind; readonly stopped?: Stopped };

/** The new state, and the next step. */
export interface CallDecision {
  readonly state: CallState;
  readonly step: Step;
}

/** Returns the state of a call that has sent nothing. A resumed command may have run. */
export function begin(terms: CallTerms, isResumed: boolean): CallState {
  return {
    terms,
    attempts: 0,
    polls: 0,
    ambiguous: isResumed,
    polling: undefined,
    operation: undefined,
    last: undefined,
    retryAfterMs: 0,
  };
}

/** Decides what a call does after an event. Reads no clock, draws nothing, and sends nothing. */
export function decide(state: CallState, event: CallEvent, around: Surroundings): CallDecision {
  switch (event.kind) {
    case "begun":
    case "waited":
      return proceed(state, around);
    case "attempt":
      return afterAttempt(state, event.result, around);
    case "polled":
      return afterPoll(state, event.result, event.document, around);
    case "fetched":
      return afterFetch(state, event.result, around);
  }
}

/** Sends or polls, unless the call was cancelled or its time ran out meanwhile. */
function proceed(state: CallState, around: Surroundings): CallDecision {
  if (around.cancelled) return stop(state, "cancelled");
  const isLate = state.terms.limits.deadlineMs - around.elapsedMs < 1;
  if (state.polling === undefined) return isLate ? stop(state, "deadline") : step(state, { do: "send" });
  const url = state.operation?.url;
  if (url === undefined || isLate) return giveUp(state, state.polling);
  return step(state, { do: "poll", url });
}

function afterAttempt(before: CallState, result: AttemptResult, around: Surroundings): CallDecision {
  const verdict = judge(before.terms, before.ambiguous, result);
  const state: CallState = {
    ...learn(before, result),
    attempts: before.attempts + 1,
    ambiguous: before.ambiguous || verdict.ambiguous,
    last: lastAttempt(result),
  };
  switch (verdict.then) {
    case "final":
      return end(state, { kind: "final" });
    case "accepted":
      return end(state, { kind: "accepted" });
    case "error":
      return end(state, { kind: "error", error: verdict.error });
    case "stop":
      return end(state, { kind: "unresolved", stopped: verdict.stopped });
    case "retry":
      return retry(state, around);
    case "poll":
      return pollAgain({ ...state, polling: verdict.for }, verdict.for, around);
  }
}

function afterPoll(
  before: CallState,
  result: AttemptResult,
  document: unknown,
  around: Surroundings,
): CallDecision {
  const state = { ...learn(before, result), polls: before.polls + 1 };
  const polling = before.polling ?? "unknown";
  if (result.kind === "failure" || isPassing(result.facts)) return pollAgain(state, polling, around);
  const members = object(document);
  const url = state.operation?.url;
  if (result.facts.status !== 200 || members === undefined || url === undefined)
    return giveUp(state, polling);
  switch (members["state"]) {
    case "succeeded":
    case "failed_final":
      return step(state, { do: "fetch", url: resultOf(url) });
    case "failed_retryable":
      return retry({ ...state, polling: undefined }, around);
    case "expired":
      return end(state, { kind: "unresolved", stopped: "expired" });
    default:
      return pollAgain(state, polling, around);
  }
}

/** Decides after the stored response was asked for: only the command's own outcome ends the call. */
function afterFetch(before: CallState, result: AttemptResult, around: Surroundings): CallDecision {
  // Without a whole answer, nothing is known that was not known before.
  if (result.kind === "failure") return pollAgain(learn(before, result), before.polling ?? "unknown", around);
  const verdict = judge(before.terms, true, result);
  const state = learn(before, result);
  const polling = before.polling ?? "unknown";
  if (verdict.then === "final") return end(state, { kind: "final" });
  if (verdict.then === "error" && verdict.error === "response_not_retained") {
    return end(state, { kind: "error", error: verdict.error });
  }
  if (verdict.then === "retry" || verdict.then === "poll") return pollAgain(state, polling, around);
  return giveUp(state, polling);
}

/** Waits for another attempt, if there may be one. */
function retry(state: CallState, around: Surroundings): CallDecision {
  const { limits, retryCost } = state.terms;
  if (around.cancelled) return stop(state, "cancelled");
  if (state.attempts >= limits.maxAttempts) return stop(state, "attempts");
  const ms = waitMs(state, state.attempts - 1, around.draw);
  if (around.elapsedMs + ms >= limits.deadlineMs) return stop(state, "deadline");
  if (around.tokens < retryCost) return stop(state, "budget");
  return step(state, { do: "wait", ms, tokens: retryCost });
}

/** Waits for another poll, if there may be one. */
function pollAgain(state: CallState, polling: "accepted" | "unknown", around: Surroundings): CallDecision {
  const { limits } = state.terms;
  if (state.operation?.url === undefined || state.polls >= MAX_POLLS) return giveUp(state, polling);
  if (around.cancelled) return stop(state, "cancelled");
  const ms = waitMs(state, state.polls, around.draw);
  if (around.elapsedMs + ms >= limits.deadlineMs) return giveUp(state, polling);
  return step(state, { do: "wait", ms, tokens: 0 });
}

/** Returns the wait before the retry or poll number `n`, counted from 0. */
function waitMs(state: CallState, n: number, draw: number): number {
  const { baseMs, capMs, retryAfterMaxMs } = state.terms.limits;
  const backoff = draw * Math.min(capMs, baseMs * 2 ** Math.max(0, n));
  return Math.floor(Math.min(state.retryAfterMs, retryAfterMaxMs) + backoff);
}

/** Keeps the operation and the `Retry-After` of an answer. */
function learn(state: CallState, result: AttemptResult): CallState {
  if (result.kind === "failure") return { ...state, retryAfterMs: 0 };
  const { operation, retryAfterMs } = result.facts;
  return { ...state, operation: operation ?? state.operation, retryAfterMs: retryAfterMs ?? 0 };
}

function lastAttempt(result: AttemptResult): LastAttempt {
  if (result.kind === "failure") return { reason: result.failure };
  return { reason: "answer", status: result.facts.status, code: result.facts.code };
}

/** Returns true for an answer to a poll that says nothing about the operation, and may pass. */
function isPassing({ status }: AnswerFacts): boolean {
  return status === 408 || status === 425 || status === 429 || status >= 500;
}

/** Returns the address of the stored response of the operation at `url`. */
function resultOf(url: string): string {
  const result = new URL(url);
  result.pathname = `${result.pathname.replace(/\/$/, "")}/result`;
  return result.href;
}

/** Ends a call that has no outcome. */
function stop(state: CallState, stopped: Stopped): CallDecision {
  return state.ambiguous
    ? end(state, { kind: "unresolved", stopped })
    : end(state, { kind: "error", error: "not_executed", stopped });
}

function giveUp(state: CallState, polling: "accepted" | "unknown"): CallDecision {
  return end(state, { kind: polling });
}

function end(state: CallState, ending: Ending): CallDecision {
  return step(state, { do: "end", ending });
}

function step(state: CallState, next: Step): CallDecision {
  return { state, step: next };
}
