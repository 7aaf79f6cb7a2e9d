/** Intents that are done, remembered beyond the page, so that a page that is loaded anew does not begin them again. */
/** Most intents that are remembered; the oldest are forgotten. */
export const MAX_DONE = 1000;
/** Beginning of the items' names. Each intent has an item of its own: two tabs can write at once. */
const STORAGE_PREFIX = "semel:done:";
/** Returns the marks in `sessionStorage`, or in `localStorage` for all tabs. */
export function doneMarks(store) {
    const attempt = (act) => {
        try {
            return act();
        }
        catch {
            // A mark only spares a question; the key of a command that is open is in the journal.
            return undefined;
        }
    };
    const drop = (name) => {
        // Not every store can remove: an empty mark is none.
        if (store.removeItem === undefined)
            store.setItem(name, "");
        else
            store.removeItem(name);
    };
    const write = (name) => {
        store.setItem(name, String(Date.now()));
    };
    return {
        has: (intent) => (attempt(() => store.getItem(STORAGE_PREFIX + intent)) ?? "") !== "",
        add(intent) {
            const name = STORAGE_PREFIX + intent;
            attempt(() => {
                for (const old of oldest(store, name))
                    drop(old);
            });
            attempt(() => {
                write(name);
            });
        },
        remove(intent) {
            attempt(() => {
                drop(STORAGE_PREFIX + intent);
            });
        },
    };
}
/** Returns the names of the oldest marks beside `name` that are too many, as far as the store tells its names. */
function oldest(store, name) {
    const marks = [];
    for (let index = 0; index < (store.length ?? 0); index += 1) {
        const other = store.key?.(index);
        if (other == null || other === name || !other.startsWith(STORAGE_PREFIX))
            continue;
        marks.push({ name: other, at: Number(store.getItem(other)) });
    }
    marks.sort((one, two) => one.at - two.at);
    return marks.slice(0, Math.max(0, marks.length + 1 - MAX_DONE)).map((mark) => mark.name);
}
