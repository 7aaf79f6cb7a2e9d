/** Journals: keys that outlive the process or the page. */
import { SemelError } from "./errors.js";
/** Name of the item with all entries. */
const STORAGE_ITEM = "semel:journal";
/** Returns the error for an intent that has an entry. */
export function intentPending() {
    return new SemelError("intent_pending", "a command of this intent is pending: resume it, or clear it once its outcome is known");
}
/** Returns the error for a journal that cannot be read or written. */
export function unavailable(why, cause) {
    return new SemelError("journal_unavailable", `the journal cannot be used: ${why}`, { cause });
}
/** Reads an entry from JSON, or returns undefined. */
export function readEntry(value) {
    if (typeof value !== "object" || value === null)
        return undefined;
    const { intent, key, digest, origin, caller, at } = value;
    if (typeof intent !== "string" || typeof key !== "string" || typeof digest !== "string")
        return undefined;
    if (typeof origin !== "string" || typeof caller !== "string" || typeof at !== "number")
        return undefined;
    return { intent, key, digest, origin, caller, at };
}
/**
 * Returns a journal in `sessionStorage`: it outlives a reload and the back button, but not its tab. Tabs do not see
 * each other's, and a duplicated tab begins with a copy. `localStorage` will not do: two tabs can write at once.
 */
export function storageJournal(storage, name = STORAGE_ITEM) {
    const read = () => {
        const text = guard(() => storage.getItem(name));
        const values = text === null ? [] : guard(() => JSON.parse(text));
        const entries = Array.isArray(values) ? values.map(readEntry) : [undefined];
        return entries.map((entry) => entry ?? damaged());
    };
    const write = (entries) => {
        guard(() => {
            storage.setItem(name, JSON.stringify(entries));
        });
    };
    return {
        begin: (entry) => attempt(() => {
            const entries = read();
            if (entries.some((one) => one.intent === entry.intent))
                throw intentPending();
            write([...entries, entry]);
        }),
        clear: (intent, key) => attempt(() => {
            const entries = read();
            const kept = entries.filter((one) => one.intent !== intent || one.key !== key);
            if (kept.length < entries.length)
                write(kept);
        }),
        pending: () => attempt(read),
    };
}
function damaged() {
    throw unavailable("an entry is damaged");
}
function guard(run) {
    try {
        return run();
    }
    catch (error) {
        throw unavailable("the storage failed", error);
    }
}
function attempt(run) {
    return new Promise((resolve) => {
        resolve(run());
    });
}
