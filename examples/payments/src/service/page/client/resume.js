/** Whether a journal entry may be sent again. Pure. */
import { SemelError } from "./errors.js";
/** Most that an entry can come from the future, because clocks differ or were set back. */
export const MAX_SKEW_MS = 5 * 60 * 1000;
/** Returns why an entry must not be sent again: then a person decides. */
export function refusal(entry, resumption) {
    if (entry === undefined) {
        return new SemelError("no_such_entry", "the journal has no command of this intent");
    }
    if (entry.caller !== resumption.caller) {
        return new SemelError("other_caller", "the command of this intent is another caller's");
    }
    const ageMs = resumption.now - entry.at;
    if (ageMs >= resumption.maxAgeMs || ageMs < -MAX_SKEW_MS) {
        return new SemelError("entry_expired", "the command of this intent is too old to be sent: look its outcome up at the service");
    }
    if (entry.digest !== resumption.digest) {
        return new SemelError("request_changed", "the request is not the one that was sent under this intent's key");
    }
    return undefined;
}
