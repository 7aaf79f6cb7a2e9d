/** The table of answers: what an attempt's result means for its command. Pure. Called by `decide.ts`. */
/** Codes that end a call with an error of their own. */
const TYPED_CODES = {
    DUPLICATE_BUSINESS_REFERENCE: "duplicate_business_reference",
    IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST: "key_reused",
    IDEMPOTENCY_RECORD_EXPIRED: "record_expired",
    IDEMPOTENCY_RESPONSE_UNREADABLE: "response_unreadable",
    INVALID_IDEMPOTENCY_KEY: "bad_key",
    MISSING_IDEMPOTENCY_KEY: "bad_key",
};
/** Codes after which the same request may be sent again, and which prove that this attempt ran nothing. */
const NOTHING_RAN_CODES = new Set([
    "AUTHORIZATION_UNAVAILABLE",
    "COMMAND_ROLLED_BACK",
    "DEADLINE_EXCEEDED",
    "IDEMPOTENCY_HELD",
    "IDEMPOTENCY_KEY_QUOTA_EXCEEDED",
    "IDEMPOTENCY_STORE_UNAVAILABLE",
    "LOOKUP_QUOTA_EXCEEDED",
    "OVERLOADED",
    "REQUEST_HEAD_TIMEOUT",
    "REQUEST_INCOMPLETE",
    "SHUTTING_DOWN",
    "UPSTREAM_UNREACHABLE",
]);
/** Codes after which the same request may be sent again, of commands that run or have run. */
const RUNNING_CODES = new Set(["IDEMPOTENCY_REQUEST_IN_PROGRESS", "IDEMPOTENCY_RESULT_UNAVAILABLE"]);
/** Judges a result; `wasAmbiguous` tells whether the command may have run before this attempt. */
export function judge(terms, wasAmbiguous, result) {
    if (result.kind === "failure")
        return ofFailure(wasAmbiguous, result.failure);
    const { facts } = result;
    return (ofTypedCode(wasAmbiguous, facts) ??
        ofAdvice(wasAmbiguous, facts) ??
        ofOwnOutcome(terms, facts) ??
        ofStatus(terms, wasAmbiguous, facts));
}
function ofFailure(wasAmbiguous, failure) {
    switch (failure) {
        case "connect":
        case "name":
            return { then: "retry", ambiguous: false };
        case "certificate":
        case "unknown_host":
            return wasAmbiguous ? stop(failure) : error(failure);
        case "lost":
        case "timeout":
            return { then: "retry", ambiguous: true };
        case "too_large":
            return stop(failure);
    }
}
/** Codes that are known, and replays. */
function ofTypedCode(wasAmbiguous, facts) {
    const { code } = facts;
    if (facts.notRetained || code === "IDEMPOTENCY_RESPONSE_NOT_RETAINED")
        return error("response_not_retained");
    if (facts.replayed)
        return final();
    const typed = code === undefined ? undefined : TYPED_CODES[code];
    if (typed !== undefined)
        return wasAmbiguous ? stop("answer") : error(typed);
    // The server names an operation to this caller only because the command ran before.
    const isDenied = code === "UNAUTHENTICATED" || code === "FORBIDDEN";
    return isDenied && facts.namesOperation ? stop("answer") : undefined;
}
/** `Idempotency-Retry`, and the codes that stand for it where it is absent. */
function ofAdvice(wasAmbiguous, facts) {
    const { advice, code } = facts;
    if (advice === "poll" || code === "IDEMPOTENCY_OUTCOME_UNKNOWN") {
        return facts.operation === undefined
            ? { then: "retry", ambiguous: true }
            : { then: "poll", for: "unknown", ambiguous: true };
    }
    const provesNothingRan = code !== undefined && NOTHING_RAN_CODES.has(code);
    const isRetried = provesNothingRan || (code !== undefined && RUNNING_CODES.has(code));
    if (advice === "same-key" || (advice === undefined && isRetried)) {
        const isRefused = facts.status === 425 || facts.status === 429;
        const isReleased = facts.marked && facts.status >= 400;
        return { then: "retry", ambiguous: !(provesNothingRan || isRefused || isReleased) };
    }
    if (advice === "never")
        return facts.marked || !wasAmbiguous ? final() : stop("answer");
    return undefined;
}
/** Answers that `Idempotency-Operation-Id` marks as this command's. */
function ofOwnOutcome(terms, facts) {
    const isAccepted = facts.status === 202 && facts.located && facts.operation !== undefined;
    if (isAccepted && terms.profile === "semel") {
        return terms.onAccepted === "poll"
            ? { then: "poll", for: "accepted", ambiguous: true }
            : { then: "accepted", ambiguous: true };
    }
    return facts.marked && facts.status >= 200 && facts.status < 500 ? final() : undefined;
}
/** Answers that say nothing but their status. */
function ofStatus(terms, wasAmbiguous, facts) {
    const { status } = facts;
    // A browser hides what a redirect says: it may be the answer of a command that ran.
    if (status === 0)
        return stop("redirect");
    if (status >= 300 && status < 400)
        return wasAmbiguous ? stop("redirect") : error("redirect");
    if (status === 425 || status === 429)
        return { then: "retry", ambiguous: false };
    if (facts.shouldRetry === true)
        return { then: "retry", ambiguous: true };
    if (facts.shouldRetry === false && status >= 500)
        return stop("answer");
    const isRunning = terms.profile === "ietf" && status === 409 && facts.hasRetryAfter;
    if (isRunning || status === 408 || status >= 500)
        return { then: "retry", ambiguous: true };
    if (!wasAmbiguous)
        return final();
    // Other servers do not mark their answers: with them, a success is taken for the command's own.
    return status < 300 && terms.profile !== "semel" ? final() : stop("answer");
}
function final() {
    return { then: "final", ambiguous: false };
}
function error(kind) {
    return { then: "error", error: kind, ambiguous: false };
}
/** Ends a call of which nobody can say that nothing ran. */
function stop(stopped) {
    return { then: "stop", stopped, ambiguous: true };
}
