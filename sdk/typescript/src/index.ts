/**
 * Sends each command under one `Idempotency-Key` until its outcome is known, and never twice.
 *
 * `semel(fetch, { origins, profile })` returns a `fetch` for commands. Nothing here needs Node, Deno or a browser
 * more than another.
 */

export type { AnswerFacts, Operation, RetryAdvice } from "./answer.js";
export type { Fetch } from "./attempt.js";
export { RetryBudget } from "./budget.js";
export type { AttemptNotice } from "./call.js";
export { semel, LIMITS, MAX_AGE_MS, MAX_RESPONSE_BYTES } from "./client.js";
export type { Client, ClientOptions, CommandInit } from "./client.js";
export { systemClock, type Clock } from "./clock.js";
export { begin, decide, MAX_POLLS } from "./decide.js";
export type { CallDecision, CallEvent, CallState, Ending, Step, Surroundings } from "./decide.js";
export { SemelError, type ErrorKind } from "./errors.js";
export { classify, type Failure } from "./failure.js";
export { storageJournal, type Journal, type JournalEntry, type StringStore } from "./journal.js";
export { uuidv7 } from "./key.js";
export type {
  Accepted,
  Final,
  LastAttempt,
  Outcome,
  Reason,
  Stopped,
  Unknown,
  Unresolved,
} from "./outcome.js";
export type { Profile } from "./profile.js";
export type { AttemptResult, CallTerms, Limits } from "./terms.js";
