/**
 * Sends each command under one `Idempotency-Key` until its outcome is known, and never twice.
 *
 * `semel(fetch, { origins, profile })` returns a `fetch` for commands. Nothing here needs Node, Deno or a browser
 * more than another.
 */
export { RetryBudget } from "./budget.js";
export { semel, LIMITS, MAX_AGE_MS, MAX_RESPONSE_BYTES } from "./client.js";
export { systemClock } from "./clock.js";
export { begin, decide, MAX_POLLS } from "./decide.js";
export { SemelError } from "./errors.js";
export { classify } from "./failure.js";
export { storageJournal } from "./journal.js";
export { uuidv7 } from "./key.js";
