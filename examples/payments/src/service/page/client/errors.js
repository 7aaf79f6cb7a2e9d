/** The errors that a call rejects with. */
/** The error of a call. Its `kind` is stable, its message is not. Neither has a key. */
export class SemelError extends Error {
    name = "SemelError";
    /** What the error is about. */
    kind;
    /** The server's answer, where the error is one. */
    response;
    /** The operation that an answer named. */
    operation;
    /** Number of times that the command was sent. */
    attempts;
    /** With `not_executed`: why no further attempt was made. */
    stopped;
    /** The last attempt. */
    last;
    /** Makes an error. */
    constructor(kind, message, facts = {}) {
        super(message, "cause" in facts ? { cause: facts.cause } : undefined);
        this.kind = kind;
        this.response = facts.response;
        this.operation = facts.operation;
        this.attempts = facts.attempts ?? 0;
        this.stopped = facts.stopped;
        this.last = facts.last;
    }
}
/** What each error of a decision says. */
export const MESSAGES = {
    bad_key: "the server refuses the key",
    certificate: "the server's certificate is refused; nothing was sent",
    duplicate_business_reference: "another command has this business reference",
    key_reused: "the key was used for another request",
    not_executed: "the command was not executed",
    record_expired: "the command ran, and the server no longer keeps its response",
    redirect: "the server redirects, and a command does not follow",
    response_not_retained: "the command ran, and the server does not keep its response",
    response_unreadable: "the command ran, and the server cannot read its response",
    unknown_host: "there is no such host; nothing was sent",
};
