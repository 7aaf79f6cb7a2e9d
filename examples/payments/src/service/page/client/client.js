/** The client: `semel(fetch, options)` returns a `fetch` for commands. */
import { sendOnce } from "./attempt.js";
import { BUDGET_TOKENS, FINAL_REFUND, RETRY_COST, RetryBudget } from "./budget.js";
import { HOOKS, messageOf, run } from "./call.js";
import { systemClock } from "./clock.js";
import { SemelError } from "./errors.js";
import { unavailable } from "./journal.js";
import { keyFault, uuidv7 } from "./key.js";
import { digest, hasDigests, prepare } from "./request.js";
import { refusal } from "./resume.js";
/** Age from which a journal entry is not sent: below the 24 hours that a server keeps its records. */
export const MAX_AGE_MS = 23 * 60 * 60 * 1000;
/** Most bytes of an answer. */
export const MAX_RESPONSE_BYTES = 16 * 1024 * 1024;
/** The bounds of a call. */
export const LIMITS = {
    baseMs: 100,
    capMs: 5_000,
    deadlineMs: 30_000,
    attemptTimeoutMs: 10_000,
    maxAttempts: 8,
    retryAfterMaxMs: 30_000,
};
/** Methods that never are commands. */
const SAFE_METHODS = ["GET", "HEAD", "OPTIONS", "TRACE"];
/** Returns a client that sends through `fetch`. */
export function semel(fetch, options) {
    checkOptions(options);
    const origins = new Set(options.origins.map((origin) => new URL(origin).origin));
    const { profile, journal, caller = "" } = options;
    const { tokens = BUDGET_TOKENS, cost = RETRY_COST, refund = FINAL_REFUND } = options.budget ?? {};
    const clock = options.clock ?? systemClock;
    const maxAgeMs = options.maxAgeMs ?? MAX_AGE_MS;
    const host = {
        // `fetch` of a browser must not be called as a method of another object.
        fetch: (url, init) => fetch(url, init),
        clock,
        profile,
        maxResponseBytes: options.maxResponseBytes ?? MAX_RESPONSE_BYTES,
    };
    const limits = limitsOf(options);
    const shared = {
        host,
        terms: { profile, limits, onAccepted: options.onAccepted ?? "poll", retryCost: cost },
        budget: new RetryBudget(tokens, refund),
        random: options.random ?? Math.random,
        journal,
        onAttempt: options.onAttempt,
    };
    const isCommand = ({ url, method }) => origins.has(new URL(url).origin) && !SAFE_METHODS.includes(method);
    const send = async (input, init = {}) => {
        const startedAt = clock.monotonic();
        const { key: ownKey, intent, buffer = false, [HOOKS]: hooks, ...rest } = init;
        const signal = signalOf(input, init);
        const request = await prepare(input, rest, buffer);
        if (!isCommand(request)) {
            if (ownKey !== undefined || intent !== undefined)
                throw unnamedOrigin();
            return sendPlain(shared, request, signal);
        }
        const key = ownKey ?? uuidv7(clock.now());
        checkKey(request, key, profile);
        if (intent !== undefined) {
            const { origin } = new URL(request.url);
            await usable(journal, async (open) => {
                await open.begin({ intent, key, digest: await digest(request), origin, caller, at: clock.now() });
                if (hooks?.mayBegin() !== false)
                    return;
                await open.clear(intent, key);
                throw new SemelError("no_such_entry", "another tab has the outcome of this intent");
            });
        }
        return run(shared, { request, key, intent, isResumed: false, startedAt, signal, hooks });
    };
    const resume = async (intent, input, init = {}) => {
        const startedAt = clock.monotonic();
        const { buffer = false, [HOOKS]: hooks, ...rest } = init;
        const signal = signalOf(input, init);
        const request = await prepare(input, rest, buffer);
        if (!isCommand(request))
            throw unnamedOrigin();
        if (request.headers.has("idempotency-key"))
            throw ownField();
        const entries = await usable(journal, (open) => open.pending());
        const entry = entries.find((one) => one.intent === intent);
        const reason = refusal(entry, { caller, digest: await digest(request), now: clock.now(), maxAgeMs });
        if (reason !== undefined)
            throw reason;
        if (entry === undefined)
            throw new Error("an absent entry is refused");
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
const OPTIONS = {
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
const PROFILES = ["semel", "ietf", "stripe"];
/** Refuses options that the types would refuse too, and numbers that are none. */
function checkOptions(options) {
    const given = options;
    if (typeof given !== "object" || given === null)
        throw new TypeError("the options are no object");
    for (const [name, value] of Object.entries(given)) {
        if (!Object.hasOwn(OPTIONS, name))
            throw new TypeError(`there is no option ${name}`);
        const least = OPTIONS[name];
        if (least !== undefined)
            checkNumber(name, value, least);
    }
    const { origins, profile, budget, onAccepted, caller } = given;
    if (!Array.isArray(origins))
        throw new TypeError("origins is no array of addresses");
    for (const origin of origins) {
        if (typeof origin !== "string" || !URL.canParse(origin) || new URL(origin).origin === "null") {
            throw new TypeError(`origins has ${String(origin)}, which is no origin such as https://api.example.com`);
        }
    }
    if (!PROFILES.includes(profile))
        throw new TypeError("profile is neither semel, ietf nor stripe");
    if (onAccepted !== undefined && onAccepted !== "poll" && onAccepted !== "return") {
        throw new TypeError("onAccepted is neither poll nor return");
    }
    if (caller !== undefined && typeof caller !== "string")
        throw new TypeError("caller is no string");
    if (budget === undefined)
        return;
    if (typeof budget !== "object" || budget === null)
        throw new TypeError("budget is no object");
    for (const [name, value] of Object.entries(budget)) {
        if (!BUDGET_OPTIONS.includes(name))
            throw new TypeError(`there is no option budget.${name}`);
        checkNumber(`budget.${name}`, value, 0);
    }
}
function checkNumber(name, value, least) {
    if (value === undefined)
        return;
    if (typeof value !== "number")
        throw new TypeError(`${name} is no number`);
    if (!Number.isFinite(value) || value < least) {
        throw new RangeError(`${name} is no number of at least ${String(least)}`);
    }
}
function limitsOf(options) {
    const limits = { ...LIMITS };
    for (const name of Object.keys(LIMITS)) {
        const value = options[name];
        if (value !== undefined)
            limits[name] = value;
    }
    return limits;
}
function checkKey(request, key, profile) {
    if (request.headers.has("idempotency-key"))
        throw ownField();
    const fault = keyFault(key, profile);
    if (fault !== undefined)
        throw new SemelError("bad_key", fault);
}
function ownField() {
    return new SemelError("bad_key", "the request has an Idempotency-Key of its own: pass it as `key`");
}
function unnamedOrigin() {
    return new SemelError("unnamed_origin", "a key or an intent is for commands to a named origin: others would ignore it, and run the command twice");
}
function signalOf(input, init) {
    return init.signal ?? (input instanceof Request ? input.signal : undefined);
}
/** Runs with the journal; each error that is not about an intent means that it cannot be used. */
async function usable(journal, act) {
    if (journal === undefined)
        throw unavailable("the client has none");
    if (!hasDigests())
        throw unavailable("the page is not secure, and has no crypto.subtle");
    try {
        return await act(journal);
    }
    catch (error) {
        throw error instanceof SemelError ? error : unavailable("it failed", error);
    }
}
/** Makes the one attempt of a request that is no command, or whose server may ignore keys. */
async function sendPlain(shared, request, signal) {
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
    const last = { reason: failure };
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
