/** The lines of a journal file. Pure. */

import { readEntry, unavailable, type JournalEntry } from "../journal.js";

/** What a journal file says. */
export interface FileLines {
  /** The pending entries by their intents, in the order of `begin`. */
  readonly entries: Map<string, JournalEntry>;
  /** Number of bytes up to the end of the last whole line. */
  length: number;
  /** Number of lines that entries no longer need. */
  dead: number;
  /** True if there are bytes after the last whole line. */
  isTorn: boolean;
}

/**
 * Reads the lines of a journal file. A last line without its end was torn by a crash before it counted. Any other line
 * that cannot be read means that the file is damaged, and that a key may be lost.
 */
export function readLines(bytes: Uint8Array): FileLines {
  const length = bytes.lastIndexOf(0x0a) + 1;
  const entries = new Map<string, JournalEntry>();
  let dead = 0;
  for (const line of decode(bytes.subarray(0, length)).split("\n").slice(0, -1)) {
    const change = parseChange(line);
    if (change === undefined) throw damaged();
    if (typeof change === "string") {
      dead += entries.delete(change) ? 2 : 1;
    } else {
      if (entries.has(change.intent)) throw damaged();
      entries.set(change.intent, change);
    }
  }
  return { entries, length, dead, isTorn: length < bytes.length };
}

/** Reads a line: an entry that begins, or the intent of one that is cleared. */
function parseChange(line: string): JournalEntry | string | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const { begin, clear } = value as Record<string, unknown>;
  return typeof clear === "string" ? clear : readEntry(begin);
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw damaged();
  }
}

function damaged(): Error {
  return unavailable("its file is damaged");
}
