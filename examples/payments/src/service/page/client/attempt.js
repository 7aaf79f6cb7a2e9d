/** One attempt: a request, and its whole answer or the failure in its place. */
import { parse, readFacts } from "./answer.js";
import { classify } from "./failure.js";
import { readBounded } from "./request.js";
/** Statuses whose answers have no body. */
const WITHOUT_BODY = [101, 204, 205, 304];
/** Sends a request once. Never rejects. A cancelled or late request counts as sent. */
export async function sendOnce(host, url, init, timeoutMs, signal) {
    const controller = new AbortController();
    const state = { isLate: false };
    let leave = () => undefined;
    // A `fetch` that does not heed its signal is left alone.
    const left = new Promise((_, reject) => {
        leave = () => {
            const reason = new DOMException("the attempt has ended", "AbortError");
            controller.abort(reason);
            reject(reason);
        };
    });
    const stopTimer = host.clock.timer(timeoutMs, () => {
        state.isLate = true;
        leave();
    });
    signal?.addEventListener("abort", leave);
    if (signal?.aborted === true)
        leave();
    try {
        const exchange = receive(host, url, { ...init, redirect: "manual", signal: controller.signal });
        exchange.catch(() => undefined);
        return await Promise.race([exchange, left]);
    }
    catch (error) {
        const failure = state.isLate ? "timeout" : signal?.aborted === true ? "lost" : failureOf(error);
        return failed(failure, error);
    }
    finally {
        stopTimer();
        signal?.removeEventListener("abort", leave);
        controller.abort();
    }
}
/** Marks an error that came after the head of an answer. */
class CutError extends Error {
}
function failureOf(error) {
    return error instanceof CutError ? "lost" : classify(error);
}
async function receive(host, url, init) {
    const response = await host.fetch(url, init);
    const { body } = response;
    let bytes = new Uint8Array();
    try {
        if (body !== null)
            bytes = await readBounded(body, host.maxResponseBytes);
    }
    catch (error) {
        throw new CutError("the answer did not arrive whole", { cause: error });
    }
    if (bytes === undefined) {
        return failed("too_large", new Error(`the answer has more than ${String(host.maxResponseBytes)} bytes`));
    }
    const { status, headers } = response;
    const facts = readFacts(host.profile, url, status, headers, bytes, host.clock.now());
    const whole = rebuild(response, url, bytes);
    return { result: { kind: "answer", facts }, response: whole, document: parse(bytes), cause: undefined };
}
function failed(failure, cause) {
    return { result: { kind: "failure", failure }, response: undefined, document: undefined, cause };
}
/** Makes an answer that can be read from the one that was. */
function rebuild(response, url, bytes) {
    const { status, headers } = response;
    const isUsual = status >= 200 && status <= 599;
    const statusText = /^[\t\x20-\x7e]*$/.test(response.statusText) ? response.statusText : "";
    const body = bytes.length === 0 || WITHOUT_BODY.includes(status) ? null : bytes;
    const whole = new Response(body, { status: isUsual ? status : 500, statusText, headers });
    // The constructor takes no address, and only the usual statuses.
    Object.defineProperty(whole, "url", { value: response.url === "" ? url : response.url });
    if (!isUsual)
        Object.defineProperty(whole, "status", { value: status });
    return whole;
}
