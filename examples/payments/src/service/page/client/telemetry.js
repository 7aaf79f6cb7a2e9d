/** A span for each attempt, where OpenTelemetry is present. It has no key, no path and no body. */
/** The name under which version 1 of `@opentelemetry/api` shares what a program registers with it. */
const OPEN_TELEMETRY = Symbol.for("opentelemetry.js.api.1");
/** `SpanKind.CLIENT` */
const CLIENT_KIND = 2;
/** `SpanStatusCode.ERROR` */
const ERROR_STATUS = 2;
/** Begins the span of an attempt, and returns what ends it. Neither ever throws. */
export function traceAttempt(start) {
    const span = quietly(() => startSpan(start));
    return (result) => {
        quietly(() => {
            if (span !== undefined)
                endSpan(span, result);
        });
    };
}
function startSpan({ number, waitMs, reason, method, url }) {
    const { trace } = globalThis[OPEN_TELEMETRY] ?? {};
    return trace?.getTracer("@semel/client").startSpan(`${method} attempt`, {
        kind: CLIENT_KIND,
        attributes: {
            "http.request.method": method,
            "http.request.resend_count": number - 1,
            "server.address": new URL(url).hostname,
            "semel.attempt.wait_ms": waitMs,
            "semel.attempt.reason": reason,
        },
    });
}
function endSpan(span, result) {
    const error = result.kind === "failure" ? result.failure : undefined;
    if (result.kind === "answer")
        span.setAttribute("http.response.status_code", result.facts.status);
    if (error !== undefined)
        span.setAttribute("error.type", error);
    if (error !== undefined || (result.kind === "answer" && result.facts.status >= 400)) {
        span.setStatus({ code: ERROR_STATUS });
    }
    span.end();
}
/** Telemetry that fails does not stop a command. */
function quietly(act) {
    try {
        return act();
    }
    catch {
        return undefined;
    }
}
