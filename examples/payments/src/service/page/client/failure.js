/** What became of an attempt without an answer, as far as the host's `fetch` tells. */
/** System errors that say so if the host was connecting, and not sending or receiving. */
const CONNECT_CODES = new Set([
    "ECONNREFUSED",
    "EHOSTUNREACH",
    "EHOSTDOWN",
    "ENETUNREACH",
    "ENETDOWN",
    "EADDRNOTAVAIL",
    "ETIMEDOUT",
]);
/** Errors about a name that pass. */
const TEMPORARY_NAME_CODES = new Set(["EAI_AGAIN", "ESERVFAIL", "EREFUSED", "ETIMEOUT"]);
/** Errors about a name that stay. */
const UNKNOWN_HOST_CODES = new Set(["ENOTFOUND", "ENODATA", "EAI_NONAME", "EAI_NODATA"]);
/** Errors about a certificate, beside those that begin with `CERT_` or `ERR_TLS_CERT_`. */
const CERTIFICATE_CODES = new Set([
    "DEPTH_ZERO_SELF_SIGNED_CERT",
    "SELF_SIGNED_CERT_IN_CHAIN",
    "UNABLE_TO_DECRYPT_CERT_SIGNATURE",
    "UNABLE_TO_GET_ISSUER_CERT",
    "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "ERROR_IN_CERT_NOT_BEFORE_FIELD",
    "ERROR_IN_CERT_NOT_AFTER_FIELD",
    "HOSTNAME_MISMATCH",
    "INVALID_CA",
    "INVALID_PURPOSE",
    "PATH_LENGTH_EXCEEDED",
]);
/** Most errors of a chain of causes that are looked at. */
const MAX_CAUSES = 8;
/**
 * Classifies an error that `fetch` rejected with before there was an answer. An error that nothing is known about,
 * such as each one of a browser, is `lost`: the command may have run.
 */
export function classify(error) {
    let cause = error;
    for (let depth = 0; depth < MAX_CAUSES && cause instanceof Error; depth += 1) {
        const failure = ofAggregate(cause) ?? ofCode(cause) ?? ofDeno(cause.message);
        if (failure !== undefined)
            return failure;
        cause = cause.cause;
    }
    return "lost";
}
/** Classifies the errors of several addresses of one host: all of them must agree. */
function ofAggregate(error) {
    if (!(error instanceof AggregateError) || error.errors.length === 0)
        return undefined;
    const failures = new Set(error.errors.map((one) => (one instanceof Error ? ofCode(one) : undefined)));
    return failures.size === 1 ? failures.values().next().value : undefined;
}
/** Classifies an error of Node by its code. */
function ofCode(error) {
    const { code, syscall } = error;
    if (typeof code !== "string")
        return undefined;
    if (code === "UND_ERR_CONNECT_TIMEOUT")
        return "connect";
    if (CONNECT_CODES.has(code) && syscall === "connect")
        return "connect";
    if (TEMPORARY_NAME_CODES.has(code) && isLookup(syscall))
        return "name";
    if (UNKNOWN_HOST_CODES.has(code) && isLookup(syscall))
        return "unknown_host";
    if (CERTIFICATE_CODES.has(code) || /^(ERR_TLS_)?CERT_/.test(code))
        return "certificate";
    return undefined;
}
function isLookup(syscall) {
    return typeof syscall === "string" && (syscall === "getaddrinfo" || syscall.startsWith("query"));
}
/** Classifies an error of Deno, which has no code, by its text. */
function ofDeno(message) {
    if (message.includes("invalid peer certificate"))
        return "certificate";
    if (!message.includes("client error (Connect)"))
        return undefined;
    if (!message.includes("dns error"))
        return "connect";
    return message.includes("Temporary failure") || message.includes("try again") ? "name" : "unknown_host";
}
