/** A command's request, with its body as bytes, so that every attempt sends the same. */
import { SemelError } from "./errors.js";
/** Most bytes of a stream that are buffered. */
export const MAX_BUFFERED_REQUEST = 16 * 1024 * 1024;
/** Hexadecimal digits of a form's boundary. */
const BOUNDARY_DIGITS = 40;
/** Options of `fetch` that a `Request` carries and each attempt needs. */
const CARRIED = ["cache", "credentials", "integrity", "mode", "referrer", "referrerPolicy"];
/**
 * Serialises a request once. A stream, or a `Request` with a body, is read only if `buffer` allows it, since it can
 * be read once. A form gets a boundary that its content decides, so that a resumed form has the same bytes.
 */
export async function prepare(input, init, buffer) {
    const isStream = init.body == null ? hasBody(input) : isOneWay(init.body);
    if (isStream && !buffer) {
        throw new SemelError("body_not_replayable", "the body is a stream: set `buffer: true` to keep its bytes for retries");
    }
    // A signal of the caller's stays out: it would cancel the copy here, and each attempt has its own.
    const { signal: _signal, body, ...rest } = init;
    const source = input instanceof Request ? input.clone() : input;
    const template = body == null ? new Request(source, rest) : new Request(source, { ...rest, body, ...halfDuplex(body) });
    const headers = new Headers(template.headers);
    let bytes = isStream || body != null ? await readWhole(template, isStream) : undefined;
    const isBoundaryDrawn = body != null && !isStream && !new Headers(rest.headers).has("content-type");
    if (isBoundaryDrawn && bytes !== undefined)
        bytes = await settleBoundary(headers, bytes);
    const options = { ...rest };
    if (input instanceof Request) {
        for (const name of CARRIED) {
            if (!(name in options))
                Object.assign(options, { [name]: input[name] });
        }
    }
    delete options.method;
    delete options.headers;
    const url = new URL(template.url);
    url.hash = "";
    return { url: url.href, method: template.method.toUpperCase(), headers, body: bytes, options };
}
/** Returns true for a body that can be read once: a stream, or what Node takes for one. */
function isOneWay(body) {
    return typeof body === "object" && ("getReader" in body || Symbol.asyncIterator in body);
}
/** Returns true if a `Request` has a body. Firefox has no `Request.body`: there, the method decides. */
function hasBody(input) {
    if (!(input instanceof Request))
        return false;
    const body = input.body;
    return body === undefined ? !["GET", "HEAD"].includes(input.method) : body !== null;
}
/** Returns the header fields of a poll: the caller's own, such as credentials, but none about a body or a key. */
export function pollHeaders(headers) {
    const names = [...headers.keys()];
    const kept = new Headers(headers);
    for (const name of names) {
        if (name.startsWith("content-") || name === "idempotency-key" || name === "semel-deadline")
            kept.delete(name);
    }
    return kept;
}
/**
 * Returns a SHA-256 digest, in hex, of what identifies a request: method, address, content type and body, each after
 * its length, so that no two requests have the same bytes here.
 */
export async function digest(request) {
    const encoder = new TextEncoder();
    const names = [request.method, request.url, request.headers.get("content-type") ?? ""];
    const fields = [...names.map((name) => encoder.encode(name)), request.body ?? new Uint8Array()];
    return sha256(join(fields.flatMap((field) => [length(field), field])));
}
/** Returns the length of a field as 64-bit big-endian number. */
function length(field) {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigUint64(0, BigInt(field.length));
    return bytes;
}
/** Node wants to be told that a stream is sent before the answer is read. */
function halfDuplex(body) {
    return isOneWay(body) ? { duplex: "half" } : {};
}
async function readWhole(request, isBounded) {
    const stream = request.body;
    if (!isBounded || stream == null)
        return new Uint8Array(await request.arrayBuffer());
    const bytes = await readBounded(stream, MAX_BUFFERED_REQUEST);
    if (bytes !== undefined)
        return bytes;
    const most = String(MAX_BUFFERED_REQUEST);
    throw new SemelError("body_not_replayable", `the body has more than the ${most} bytes that are buffered`);
}
/** Replaces the random boundary of a form by one made from its content. */
async function settleBoundary(headers, bytes) {
    const random = /^multipart\/form-data; *boundary="?([^";]+)"?$/.exec(headers.get("content-type") ?? "")?.[1];
    // Pages that are not secure have no digests, and no journal.
    if (random === undefined || !hasDigests())
        return bytes;
    const pieces = split(bytes, new TextEncoder().encode(random));
    const settled = `semel-${(await sha256(join(pieces))).slice(0, BOUNDARY_DIGITS)}`;
    headers.set("content-type", `multipart/form-data; boundary=${settled}`);
    const boundary = new TextEncoder().encode(settled);
    return join(pieces.flatMap((piece, index) => (index === 0 ? [piece] : [boundary, piece])));
}
/** Cuts bytes at each place where `mark` is. */
function split(bytes, mark) {
    const pieces = [];
    let from = 0;
    let at = bytes.indexOf(mark[0] ?? 0);
    while (at !== -1) {
        if (mark.every((byte, index) => bytes[at + index] === byte)) {
            pieces.push(bytes.subarray(from, at));
            from = at + mark.length;
        }
        at = bytes.indexOf(mark[0] ?? 0, Math.max(at + 1, from));
    }
    pieces.push(bytes.subarray(from));
    return pieces;
}
function join(pieces) {
    const whole = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
        whole.set(piece, at);
        at += piece.length;
    }
    return whole;
}
/** Returns true where the host has digests: everywhere but on pages that are not secure. */
export function hasDigests() {
    return crypto.subtle !== undefined;
}
async function sha256(bytes) {
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
/** Reads a stream to its end, or returns undefined, and stops, once it has more than `most` bytes. */
export async function readBounded(stream, most) {
    const reader = stream.getReader();
    const chunks = [];
    let length = 0;
    for (;;) {
        const { done, value } = await reader.read();
        if (done)
            break;
        length += value.length;
        if (length > most) {
            // The rest is not wanted; a failure to say so changes nothing.
            reader.cancel().catch(() => undefined);
            return undefined;
        }
        chunks.push(value);
    }
    return join(chunks);
}
