/**
 * The submission of one intent of a page. Its lock is taken before anything is awaited: a second click, or a second
 * component with the same intent, finds it taken. `form.ts` and `react.ts` are made of it.
 */
import { HOOKS } from "./call.js";
import { doneMarks } from "./done.js";
import { SemelError } from "./errors.js";
import { unavailable } from "./journal.js";
/** Most submissions that a client remembers. The oldest one of which nothing was sent is forgotten. */
export const MAX_SUBMISSIONS = 1000;
/** The submissions of each client by their intents. */
const known = new WeakMap();
/** State of a submission before anything happened. */
export const IDLE = { status: "idle" };
/**
 * Returns the submission of an intent: the same one for all forms and components of the page. The options of the first
 * one count.
 */
export function submissionOf(client, intent, options = {}) {
    const all = known.get(client) ?? new Map();
    known.set(client, all);
    const found = all.get(intent);
    if (found !== undefined)
        return found;
    if (all.size >= MAX_SUBMISSIONS)
        forgetOne(all);
    const made = submission(client, intent, options);
    all.set(intent, made);
    return made;
}
function forgetOne(all) {
    for (const [intent, one] of all) {
        if (one.state().status !== "idle")
            continue;
        all.delete(intent);
        return;
    }
}
function submission(client, intent, { remember }) {
    const { journal } = client;
    if (journal === undefined) {
        throw unavailable("the client has none: give it `storageJournal(sessionStorage)` or `indexedDbJournal()`");
    }
    const marks = remember === undefined ? undefined : doneMarks(remember);
    const listeners = new Set();
    let state = marks?.has(intent) === true ? { status: "done" } : IDLE;
    const become = (next) => {
        state = next;
        for (const listener of [...listeners])
            listener();
        return next;
    };
    // The mark is there before the journal entry goes, and is looked for after the entry was: whoever finds neither is
    // the first.
    const hooks = {
        mayBegin: () => marks?.has(intent) !== true,
        settled(isSuccess) {
            if (isSuccess)
                marks?.add(intent);
        },
    };
    const isLocked = () => state.status === "sending" || state.status === "done";
    return {
        state: () => state,
        subscribe(listener) {
            listeners.add(listener);
            return () => {
                listeners.delete(listener);
            };
        },
        submit(input, init = {}) {
            if (isLocked())
                return undefined;
            if (marks?.has(intent) === true) {
                // Another tab has done it since.
                become({ status: "done" });
                return undefined;
            }
            become({ status: "sending" });
            const sent = alone(journal, intent, () => sendOrResume(client, intent, input, { ...init, [HOOKS]: hooks }));
            return sent.then(become, (error) => become(ofError(error)));
        },
        again() {
            if (state.status === "sending")
                return;
            marks?.remove(intent);
            become(IDLE);
        },
        async abandon() {
            if (state.status === "sending")
                throw new Error("the command is under way: abort its signal first");
            const entries = await journal.pending();
            const entry = entries.find((one) => one.intent === intent);
            if (entry !== undefined)
                await journal.clear(intent, entry.key);
            become(IDLE);
        },
    };
}
/** Runs while no other tab sends this intent. With a journal that tabs share, they send under one key instead. */
async function alone(journal, intent, act) {
    const { locks } = globalThis.navigator ?? {};
    if (journal.isShared === true || locks == null)
        return act();
    return locks.request(`semel:${intent}`, { ifAvailable: true }, async (lock) => lock === null ? { status: "elsewhere" } : act());
}
async function sendOrResume(client, intent, input, init) {
    const entries = await client.pending();
    const isPending = entries.some((entry) => entry.intent === intent);
    if (!isPending && !init[HOOKS].mayBegin())
        return { status: "elsewhere" };
    try {
        if (!isPending)
            return ofOutcome(await client(input, { ...init, intent }));
    }
    catch (error) {
        // Another tab has had its outcome while this one wrote its entry.
        if (kindOf(error) === "no_such_entry")
            return { status: "elsewhere" };
        // Another tab was first: this one goes on under its key.
        if (kindOf(error) !== "intent_pending")
            throw error;
    }
    try {
        return ofOutcome(await client.resume(intent, input, init));
    }
    catch (error) {
        // The other tab has had its outcome since: a new key would be a second command.
        if (kindOf(error) === "no_such_entry")
            return { status: "elsewhere" };
        throw error;
    }
}
function ofOutcome(outcome) {
    const isDone = outcome.kind === "final" && outcome.response.status < 400;
    return { status: isDone ? "done" : "open", outcome };
}
/** Without its response, a command that ran is done all the same. */
function ofError(error) {
    return { status: kindOf(error) === "response_not_retained" ? "done" : "open", error };
}
function kindOf(error) {
    return error instanceof SemelError ? error.kind : undefined;
}
