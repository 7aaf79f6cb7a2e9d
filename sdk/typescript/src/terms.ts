/** The terms of a call, and the result of one attempt: what `decide.ts` and `judge.ts` read. */

import type { AnswerFacts } from "./answer.js";
import type { Failure } from "./failure.js";
import type { Profile } from "./profile.js";

/** The bounds of a call. */
export interface Limits {
  /** First backoff, in milliseconds. */
  readonly baseMs: number;
  /** Longest backoff. */
  readonly capMs: number;
  /** Total time of a call. */
  readonly deadlineMs: number;
  /** Longest time of one attempt. */
  readonly attemptTimeoutMs: number;
  /** Most attempts of a call. */
  readonly maxAttempts: number;
  /** Most that is waited for a `Retry-After`. */
  readonly retryAfterMaxMs: number;
}

/** What does not change in a call. */
export interface CallTerms {
  readonly profile: Profile;
  readonly limits: Limits;
  /** What to do with a 202: poll until the command's own answer, or return. */
  readonly onAccepted: "poll" | "return";
  /** Tokens that a retry costs. */
  readonly retryCost: number;
}

/** The result of one attempt. */
export type AttemptResult =
  | { readonly kind: "answer"; readonly facts: AnswerFacts }
  | { readonly kind: "failure"; readonly failure: Failure };
