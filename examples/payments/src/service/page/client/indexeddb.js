/** A journal in IndexedDB: it outlives the page and the browser, and all tabs of an origin share it. */
import { SemelError } from "./errors.js";
import { intentPending, readEntry, unavailable } from "./journal.js";
/** Name of the database. */
const DATABASE = "semel-journal";
/** Name of the store of entries; their keys count up, so that they keep the order of `begin`. */
const STORE = "entries";
/** Name of the index that allows one entry of an intent. */
const INTENTS = "intents";
/** Returns the journal of this origin, in the database `name`. It is opened with its first use. */
export function indexedDbJournal(name = DATABASE, factory = globalThis.indexedDB) {
    let opened;
    const forget = () => {
        opened = undefined;
    };
    const database = () => {
        opened ??= open(factory, name, forget);
        opened.catch(forget);
        return opened;
    };
    /** Runs requests in one transaction, and returns the result once it is on the disk. */
    const transact = async (mode, act) => {
        const db = await database();
        return new Promise((resolve, reject) => {
            const transaction = db.transaction(STORE, mode, { durability: "strict" });
            const result = act(transaction.objectStore(STORE));
            transaction.oncomplete = () => {
                try {
                    resolve(result());
                }
                catch (error) {
                    reject(error instanceof Error ? error : unavailable("it failed", error));
                }
            };
            transaction.onabort = () => {
                const isTaken = transaction.error?.name === "ConstraintError";
                reject(isTaken ? intentPending() : unavailable("the transaction failed", transaction.error));
            };
        });
    };
    return {
        isShared: true,
        begin: (entry) => guard(() => transact("readwrite", (store) => {
            store.add({ ...entry });
            return () => undefined;
        })),
        clear: (intent, key) => guard(() => transact("readwrite", (store) => {
            const cursor = store.index(INTENTS).openCursor(intent);
            cursor.onsuccess = () => {
                if (readEntry(cursor.result?.value)?.key === key)
                    cursor.result?.delete();
            };
            return () => undefined;
        })),
        pending: () => guard(() => transact("readonly", (store) => {
            const all = store.getAll();
            return () => all.result.map((value) => readEntry(value) ?? damaged());
        })),
        async close() {
            const closing = opened;
            forget();
            (await closing?.catch(() => undefined))?.close();
        },
    };
}
function open(factory, name, forget) {
    return new Promise((resolve, reject) => {
        const request = factory.open(name, 1);
        request.onupgradeneeded = () => {
            const store = request.result.createObjectStore(STORE, { autoIncrement: true });
            store.createIndex(INTENTS, "intent", { unique: true });
        };
        request.onsuccess = () => {
            const database = request.result;
            database.onversionchange = () => {
                database.close();
                forget();
            };
            database.onclose = forget;
            resolve(database);
        };
        request.onerror = () => {
            reject(unavailable("the database cannot be opened", request.error));
        };
    });
}
/** Makes an error of IndexedDB the journal's. */
async function guard(run) {
    try {
        return await run();
    }
    catch (error) {
        throw error instanceof SemelError ? error : unavailable("IndexedDB failed", error);
    }
}
function damaged() {
    throw unavailable("an entry is damaged");
}
