/**
 * The decision what to do after each step of a call: one pure function. The loop in `call.ts` only acts. The
 * table of answers is in `judge.ts`.
 */
import { object } from "./answer.js";
import { judge } from "./judge.js";
/** Most polls of a call. */
export const MAX_POLLS = 100;
/** Returns the state of a call that has sent nothing. A resumed command may have run. */
export function begin(terms, isResumed) {
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
export function decide(state, event, around) {
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
function proceed(state, around) {
    if (around.cancelled)
        return stop(state, "cancelled");
    const isLate = state.terms.limits.deadlineMs - around.elapsedMs < 1;
    if (state.polling === undefined)
        return isLate ? stop(state, "deadline") : step(state, { do: "send" });
    const url = state.operation?.url;
    if (url === undefined || isLate)
        return giveUp(state, state.polling);
    return step(state, { do: "poll", url });
}
function afterAttempt(before, result, around) {
    const verdict = judge(before.terms, before.ambiguous, result);
    const state = {
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
function afterPoll(before, result, document, around) {
    const state = { ...learn(before, result), polls: before.polls + 1 };
    const polling = before.polling ?? "unknown";
    if (result.kind === "failure" || isPassing(result.facts))
        return pollAgain(state, polling, around);
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
function afterFetch(before, result, around) {
    // Without a whole answer, nothing is known that was not known before.
    if (result.kind === "failure")
        return pollAgain(learn(before, result), before.polling ?? "unknown", around);
    const verdict = judge(before.terms, true, result);
    const state = learn(before, result);
    const polling = before.polling ?? "unknown";
    if (verdict.then === "final")
        return end(state, { kind: "final" });
    if (verdict.then === "error" && verdict.error === "response_not_retained") {
        return end(state, { kind: "error", error: verdict.error });
    }
    if (verdict.then === "retry" || verdict.then === "poll")
        return pollAgain(state, polling, around);
    return giveUp(state, polling);
}
/** Waits for another attempt, if there may be one. */
function retry(state, around) {
    const { limits, retryCost } = state.terms;
    if (around.cancelled)
        return stop(state, "cancelled");
    if (state.attempts >= limits.maxAttempts)
        return stop(state, "attempts");
    const ms = waitMs(state, state.attempts - 1, around.draw);
    if (around.elapsedMs + ms >= limits.deadlineMs)
        return stop(state, "deadline");
    if (around.tokens < retryCost)
        return stop(state, "budget");
    return step(state, { do: "wait", ms, tokens: retryCost });
}
/** Waits for another poll, if there may be one. */
function pollAgain(state, polling, around) {
    const { limits } = state.terms;
    if (state.operation?.url === undefined || state.polls >= MAX_POLLS)
        return giveUp(state, polling);
    if (around.cancelled)
        return stop(state, "cancelled");
    const ms = waitMs(state, state.polls, around.draw);
    if (around.elapsedMs + ms >= limits.deadlineMs)
        return giveUp(state, polling);
    return step(state, { do: "wait", ms, tokens: 0 });
}
/** Returns the wait before the retry or poll number `n`, counted from 0. */
function waitMs(state, n, draw) {
    const { baseMs, capMs, retryAfterMaxMs } = state.terms.limits;
    const backoff = draw * Math.min(capMs, baseMs * 2 ** Math.max(0, n));
    return Math.floor(Math.min(state.retryAfterMs, retryAfterMaxMs) + backoff);
}
/** Keeps the operation and the `Retry-After` of an answer. */
function learn(state, result) {
    if (result.kind === "failure")
        return { ...state, retryAfterMs: 0 };
    const { operation, retryAfterMs } = result.facts;
    return { ...state, operation: operation ?? state.operation, retryAfterMs: retryAfterMs ?? 0 };
}
function lastAttempt(result) {
    if (result.kind === "failure")
        return { reason: result.failure };
    return { reason: "answer", status: result.facts.status, code: result.facts.code };
}
/** Returns true for an answer to a poll that says nothing about the operation, and may pass. */
function isPassing({ status }) {
    return status === 408 || status === 425 || status === 429 || status >= 500;
}
/** Returns the address of the stored response of the operation at `url`. */
function resultOf(url) {
    const result = new URL(url);
    result.pathname = `${result.pathname.replace(/\/$/, "")}/result`;
    return result.href;
}
/** Ends a call that has no outcome. */
function stop(state, stopped) {
    return state.ambiguous
        ? end(state, { kind: "unresolved", stopped })
        : end(state, { kind: "error", error: "not_executed", stopped });
}
function giveUp(state, polling) {
    return end(state, { kind: polling });
}
function end(state, ending) {
    return step(state, { do: "end", ending });
}
function step(state, next) {
    return { state, step: next };
}
