/** What a whole answer says about its command, read from its header fields and its problem document. */
/** The path below which Semel's operations are. */
export const OPERATIONS_PATH = "/.well-known/semel/operations/";
/** The form of an operation's id. */
const OPERATION_ID = /^[A-Za-z0-9_-]{1,128}$/;
/** The prefix of `type` in Semel's problem documents. */
const PROBLEM_URN = "urn:semel:problem:";
/** The code that an answer with `Idempotency-Operation-Id` can have; others there are the handler's own. */
const NOT_RETAINED = "IDEMPOTENCY_RESPONSE_NOT_RETAINED";
/** Reads the facts of an answer to a command that was sent to `url`; `now` is the wall clock. */
export function readFacts(profile, url, status, headers, body, now) {
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
        operation: operationOf(url, problem?.operationId ?? id, problem?.operationUrl ?? (located ? location : undefined)),
    };
}
/** Reads `Retry-After` (seconds, or an HTTP-date) as milliseconds from `now`. Anything else counts as absent. */
export function retryAfter(field, now) {
    if (field === null)
        return undefined;
    const value = field.trim();
    if (/^\d+$/.test(value))
        return Number(value) * 1000;
    const date = httpDate(value);
    return date === undefined ? undefined : Math.max(0, date - now);
}
/** Reads an HTTP-date as milliseconds since 1970. */
export function httpDate(value) {
    const date = /^[A-Z][a-z]+, .* GMT$/.test(value) ? Date.parse(value) : Number.NaN;
    return Number.isNaN(date) ? undefined : date;
}
/** Reads a problem document of Semel, or else in profile `stripe` the object in the member `error`. */
function readProblem(profile, headers, body) {
    if (!isJson(headers))
        return undefined;
    const document = object(parse(body));
    if (document !== undefined && text(document["type"])?.startsWith(PROBLEM_URN) === true) {
        return problemFacts(document, text(document["code"]));
    }
    const error = profile === "stripe" ? object(document?.["error"]) : undefined;
    return error === undefined ? undefined : problemFacts(error, stripeCode(error));
}
function problemFacts(members, code) {
    const named = (name) => {
        const value = text(members[name]);
        // An empty text names nothing.
        return value === "" ? undefined : value;
    };
    return { code, operationId: named("operationId"), operationUrl: named("operationUrl") };
}
/** Returns Semel's code for an error in Stripe's envelope. */
function stripeCode(error) {
    if (text(error["type"]) === "idempotency_error")
        return "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST";
    const code = text(error["code"])?.toUpperCase();
    return code === "IDEMPOTENCY_KEY_IN_USE" ? "IDEMPOTENCY_REQUEST_IN_PROGRESS" : code;
}
function adviceOf(headers) {
    const field = word(headers.get("idempotency-retry"));
    return field === "same-key" || field === "poll" || field === "never" ? field : undefined;
}
/** Finds the address of an operation: the one that is named, or the usual one, of the command's origin only. */
function operationOf(base, id, named) {
    if (id === undefined || !OPERATION_ID.test(id))
        return undefined;
    const reference = named ?? OPERATIONS_PATH + id;
    if (!URL.canParse(reference, base))
        return { id, url: undefined };
    const url = new URL(reference, base);
    const isPlain = url.username === "" && url.password === "";
    return { id, url: isPlain && url.origin === new URL(base).origin ? url.href : undefined };
}
/** Returns true if `reference` leads from `base` to this path. */
function isAt(reference, base, path) {
    return reference !== null && URL.canParse(reference, base) && new URL(reference, base).pathname === path;
}
/** Returns true for `application/json` and media types that end in `+json`. */
export function isJson(headers) {
    const type = (headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
    return type === "application/json" || type.endsWith("+json");
}
/** Parses JSON, or returns undefined. */
export function parse(body) {
    try {
        return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
    }
    catch {
        return undefined;
    }
}
/** Returns `value` if it is an object with members. */
export function object(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value)
        ? value
        : undefined;
}
function text(value) {
    return typeof value === "string" ? value : undefined;
}
/** Returns the value of a field whose case does not matter. */
function word(field) {
    return field?.trim().toLowerCase();
}
function flag(field) {
    const value = word(field);
    return value === "true" ? true : value === "false" ? false : undefined;
}
