/** Journals: keys that outlive the process or the page. */

import { SemelError } from "./errors.js";

/** A command that may have run, and whose outcome the caller does not know yet. */
export interface JournalEntry {
  /** The caller's name for what it wants, such as `invoice 4711`. */
  readonly intent: string;
  /** The key. */
  readonly key: string;
  /** The digest of the request. */
  readonly digest: string;
  /** The origin that the command is for. */
  readonly origin: string;
  /** The client's name for itself. */
  readonly caller: string;
  /** The wall clock at the first send, in milliseconds since 1970. */
  readonly at: number;
}

/** A place for entries that outlives the process. Each change is durable once its promise is fulfilled. */
export interface Journal {
  /** True if all tabs of an origin see each other's entries at once. */
  readonly isShared?: boolean;
  /** Adds an entry. Rejects with `intent_pending` if there is one of its intent: one of two callers wins. */
  begin(entry: JournalEntry): Promise<void>;
  /** Removes the entry of this intent, if it has this key. */
  clear(intent: string, key: string): Promise<void>;
  /** Returns the entries in the order of `begin`. */
  pending(): Promise<readonly JournalEntry[]>;
}

/** The part of `sessionStorage` that a journal needs. With the optional members, old marks of `remember` are removed. */
export interface StringStore {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem?(name: string): void;
  key?(index: number): string | null;
  readonly length?: number;
}

/** Name of the item with all entries. */
const STORAGE_ITEM = "semel:journal";

/** Returns the error for an intent that has an entry. */
export function intentPending(): SemelError {
  return new SemelError(
    "intent_pending",
    "a command of this intent is pending: resume it, or clear it once its outcome is known",
  );
}

/** Returns the error for a journal that cannot be read or written. */
export function unavailable(why: string, cause?: unknown): SemelError {
  return new SemelError("journal_unavailable", `the journal cannot be used: ${why}`, { cause });
}

/** Reads an entry from JSON, or returns undefined. */
export function readEntry(value: unknown): JournalEntry | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { intent, key, digest, origin, caller, at } = value as Record<string, unknown>;
  if (typeof intent !== "string" || typeof key !== "string" || typeof digest !== "string") return undefined;
  if (typeof origin !== "string" || typeof caller !== "string" || typeof at !== "number") return undefined;
  return { intent, key, digest, origin, caller, at };
}

/**
 * Returns a journal in `sessionStorage`: it outlives a reload and the back button, but not its tab. Tabs do not see
 * each other's, and a duplicated tab begins with a copy. `localStorage` will not do: two tabs can write at once.
 */
export function storageJournal(storage: StringStore, name: string = STORAGE_ITEM): Journal {
  const read = (): JournalEntry[] => {
    const text = guard(() => storage.getItem(name));
    const values: unknown = text === null ? [] : guard(() => JSON.parse(text) as unknown);
    const entries = Array.isArray(values) ? values.map(readEntry) : [undefined];
    return entries.map((entry) => entry ?? damaged());
  };
  const write = (entries: readonly JournalEntry[]): void => {
    guard(() => {
      storage.setItem(name, JSON.stringify(entries));
    });
  };
  return {
    begin: (entry) =>
      attempt(() => {
        const entries = read();
        if (entries.some((one) => one.intent === entry.intent)) throw intentPending();
        write([...entries, entry]);
      }),
    clear: (intent, key) =>
      attempt(() => {
        const entries = read();
        const kept = entries.filter((one) => one.intent !== intent || one.key !== key);
        if (kept.length < entries.length) write(kept);
      }),
    pending: () => attempt(read),
  };
}

function damaged(): never {
  throw unavailable("an entry is damaged");
}

function guard<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw unavailable("the storage failed", error);
  }
}

function attempt<T>(run: () => T): Promise<T> {
  return new Promise((resolve) => {
    resolve(run());
  });
}
