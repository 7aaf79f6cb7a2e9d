/** The loop of a call. It does what `decide` says: sends, waits, polls, and ends. */
import { httpDate } from "./answer.js";
import { sendOnce } from "./attempt.js";
import { begin, decide } from "./decide.js";
import { MESSAGES, SemelError } from "./errors.js";
import { keyField } from "./key.js";
import { pollHeaders } from "./request.js";
import { traceAttempt } from "./telemetry.js";
/** Name of the hooks in the `init` of a command that a submission sends. Not a part of the package's interface. */
export const HOOKS = Symbol("semel.hooks");
/** Sends a command until its outcome is known, or the call's bounds end it. */
export async function run(shared, command) {
    const { host, terms, budget, random } = shared;
    const { signal } = command;
    let state = begin(terms, command.isResumed);
    let event = { kind: "begun" };
    let waitMs = 0;
    let latest;
    for (;;) {
        const elapsedMs = host.clock.monotonic() - command.startedAt;
        const around = {
            elapsedMs,
            cancelled: signal?.aborted === true,
            tokens: budget.tokens,
            // Drawn only if the decision reads it, which is once at most.
            get draw() {
                return random();
            },
        };
        const { state: next, step } = decide(state, event, around);
        state = next;
        const restMs = terms.limits.deadlineMs - elapsedMs;
        const timeoutMs = Math.min(terms.limits.attemptTimeoutMs, restMs);
        switch (step.do) {
            case "wait":
                budget.take(step.tokens);
                waitMs = step.ms;
                await host.clock.wait(waitMs, signal);
                event = { kind: "waited" };
                break;
            case "send":
                latest = await attempt(shared, command, state, waitMs, restMs);
                event = { kind: "attempt", result: latest.result };
                break;
            case "poll":
                latest = await sendOnce(host, step.url, pollInit(command.request), timeoutMs, signal);
                event = { kind: "polled", result: latest.result, document: latest.document };
                break;
            case "fetch":
                latest = await sendOnce(host, step.url, pollInit(command.request), timeoutMs, signal);
                event = { kind: "fetched", result: latest.result };
                break;
            case "end":
                return finish(shared, command, state, step.ending, latest);
        }
    }
}
/** Sends the command once, and tells the hook and the tracer. */
async function attempt(shared, command, state, waitMs, restMs) {
    const { host, terms } = shared;
    const { url, method } = command.request;
    const notice = { number: state.attempts + 1, waitMs, reason: state.last?.reason ?? "first" };
    notify(shared, notice);
    const ended = traceAttempt({ ...notice, url, method });
    const timeoutMs = Math.min(terms.limits.attemptTimeoutMs, restMs);
    const made = await sendOnce(host, url, sendInit(terms, command, restMs), timeoutMs, command.signal);
    ended(made.result);
    return made;
}
/** Returns what an attempt passes to `fetch`. */
function sendInit(terms, { request, key }, restMs) {
    const headers = new Headers(request.headers);
    headers.set("idempotency-key", keyField(key, terms.profile));
    if (terms.profile === "semel")
        headers.set("semel-deadline", String(Math.floor(restMs)));
    const { options, method, body } = request;
    return body === undefined ? { ...options, method, headers } : { ...options, method, headers, body };
}
/** Returns what a poll passes to `fetch`: the command's credentials, but neither its body nor its key. */
function pollInit({ options, headers }) {
    return { ...options, cache: "no-store", method: "GET", headers: pollHeaders(headers) };
}
/** Tells the hook of an attempt. A hook that fails does not stop a command that may have run. */
function notify(shared, notice) {
    try {
        shared.onAttempt?.(notice);
    }
    catch {
        // The hook is for watching only.
    }
}
async function finish(shared, command, state, ending, latest) {
    const { attempts, operation, last } = state;
    const { key } = command;
    switch (ending.kind) {
        case "final":
            shared.budget.refund();
            command.hooks?.settled(latest?.response !== undefined && latest.response.status < 400);
            return final(state, latest, await settle(shared, command));
        case "unknown":
            return { kind: "unknown", key, operation, attempts };
        case "accepted":
            return { kind: "accepted", key, operation, attempts };
        case "unresolved":
            return { kind: "unresolved", key, operation, attempts, stopped: ending.stopped, last };
        case "error": {
            const isSettled = ending.error === "response_not_retained" || ending.error === "duplicate_business_reference";
            if (isSettled)
                command.hooks?.settled(ending.error === "response_not_retained");
            // The error is what the caller must see; an entry that stays is resumed to the same error.
            if (isSettled)
                await settle(shared, command);
            throw new SemelError(ending.error, messageOf(ending.error, last), {
                response: latest?.response,
                operation,
                attempts,
                stopped: ending.stopped,
                last,
                cause: latest?.cause,
            });
        }
    }
}
/** Returns the command's own answer. */
function final(state, latest, journalError) {
    if (latest?.response === undefined || latest.result.kind !== "answer") {
        throw new Error("a final decision follows an answer");
    }
    const { response, result } = latest;
    const { facts } = result;
    const expires = httpDate(response.headers.get("idempotency-expires") ?? "");
    return {
        kind: "final",
        response,
        replayed: facts.replayed,
        operation: facts.operation ?? (state.polls > 0 ? state.operation : undefined),
        expires: expires === undefined ? undefined : new Date(expires),
        attempts: state.attempts,
        ...(journalError === undefined ? {} : { journalError }),
    };
}
/** Clears the journal entry, and returns the error if it cannot be cleared. */
async function settle({ journal }, { intent, key }) {
    if (intent === undefined)
        return undefined;
    try {
        await journal?.clear(intent, key);
        return undefined;
    }
    catch (error) {
        return error ?? new Error("the journal failed");
    }
}
/** Returns the text of an error. */
export function messageOf(kind, last) {
    const text = MESSAGES[kind] ?? kind;
    const code = last?.code ?? (last?.status === undefined ? last?.reason : `status ${String(last.status)}`);
    return code === undefined ? text : `${text} (${code})`;
}
