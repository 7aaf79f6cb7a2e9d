/** Idempotency keys: how they are drawn, checked and written into the header field. */
/** Most characters of a key. */
export const KEY_MAX_LENGTH = 255;
/** Fewest characters of a key in profile `semel`; one is enough in the others. */
export const KEY_MIN_LENGTH = 16;
/** Returns a UUIDv7: sortable by its time, with 74 random bits. */
export function uuidv7(now) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    const view = new DataView(bytes.buffer);
    view.setUint16(0, Math.floor(now / 0x1_0000_0000) & 0xffff);
    view.setUint32(2, now % 0x1_0000_0000);
    view.setUint8(6, 0x70 | (view.getUint8(6) & 0x0f));
    view.setUint8(8, 0x80 | (view.getUint8(8) & 0x3f));
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
/** Returns why `key` cannot be sent, or undefined if it can. The text never has the key itself. */
export function keyFault(key, profile) {
    const least = profile === "semel" ? KEY_MIN_LENGTH : 1;
    if (key.length < least)
        return `the key has ${String(key.length)} characters; the least is ${String(least)}`;
    if (key.length > KEY_MAX_LENGTH)
        return `the key has more than ${String(KEY_MAX_LENGTH)} characters`;
    const isAllowed = profile === "stripe" ? /^[\x21-\x7e]+$/ : /^[\x20-\x7e]+$/;
    return isAllowed.test(key) ? undefined : "the key has a character that is not printable ASCII";
}
/** Returns the value of `Idempotency-Key`: an RFC 8941 string, or the bare key in profile `stripe`. */
export function keyField(key, profile) {
    return profile === "stripe" ? key : `"${key.replace(/["\\]/g, "\\$&")}"`;
}
