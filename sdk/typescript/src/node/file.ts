/**
 * A journal in a file, for Node and Deno. Each change is a line of JSON that is on the disk before the client goes on.
 * One process uses a file at a time: a lock beside it says which.
 */

import { Buffer } from "node:buffer";
import { open, readFile, rename, type FileHandle } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import process from "node:process";

import { SemelError } from "../errors.js";
import { intentPending, unavailable, type Journal, type JournalEntry } from "../journal.js";
import { readLines, type FileLines } from "./lines.js";
import { lock, unlock } from "./lock.js";

/** Most lines of cleared entries before the file is written anew. */
const MAX_DEAD_LINES = 1000;
/** Nobody else may read the keys. */
const MODE = 0o600;

/** A journal with an open file. */
export interface FileJournal extends Journal {
  /** Closes the file, and gives it up to other processes. The next use opens it again. */
  close(): Promise<void>;
}

/** The journals of this process, by their paths: two of one file are the same. */
const journals = new Map<string, FileJournal>();

/** Returns the journal in the file at `path`. It is made with its first use; its folder must be there. */
export function fileJournal(path: string): FileJournal {
  const absolute = resolve(path);
  const known = journals.get(absolute);
  if (known !== undefined) return known;
  const journal = new OpenFile(absolute);
  journals.set(absolute, journal);
  return journal;
}

class OpenFile implements FileJournal {
  readonly #path: string;
  #file: FileHandle | undefined;
  #lines: FileLines = { entries: new Map(), length: 0, dead: 0, isTorn: false };
  /** The changes before the next one: they are made one by one. */
  #queue: Promise<unknown> = Promise.resolve();

  constructor(path: string) {
    this.#path = path;
  }

  begin(entry: JournalEntry): Promise<void> {
    return this.#next(async (file) => {
      const { entries } = this.#lines;
      if (entries.has(entry.intent)) throw intentPending();
      const { intent, key, digest, origin, caller, at } = entry;
      const begun = { intent, key, digest, origin, caller, at };
      await this.#append(file, { begin: begun });
      entries.set(intent, begun);
    });
  }

  clear(intent: string, key: string): Promise<void> {
    return this.#next(async (file) => {
      const { entries } = this.#lines;
      if (entries.get(intent)?.key !== key) return;
      await this.#append(file, { clear: intent });
      entries.delete(intent);
      this.#lines.dead += 2;
      // The entry is cleared; a file that cannot be written anew now is only longer than it need be.
      if (this.#lines.dead > MAX_DEAD_LINES) await this.#rewrite(file).catch(() => undefined);
    });
  }

  pending(): Promise<readonly JournalEntry[]> {
    return this.#next(() => Promise.resolve([...this.#lines.entries.values()]));
  }

  close(): Promise<void> {
    const closed = this.#queue.then(async () => {
      const file = this.#file;
      this.#file = undefined;
      if (file === undefined) return;
      await file.close();
      await unlock(this.#path);
    });
    this.#queue = closed.catch(() => undefined);
    return closed;
  }

  /** Runs a change after those before it, with the file open. */
  #next<T>(act: (file: FileHandle) => Promise<T>): Promise<T> {
    const done = this.#queue.then(async () => {
      try {
        return await act(this.#file ?? (await this.#open()));
      } catch (error) {
        throw error instanceof SemelError ? error : unavailable("its file failed", error);
      }
    });
    this.#queue = done.catch(() => undefined);
    return done;
  }

  async #open(): Promise<FileHandle> {
    await lock(this.#path);
    let file: FileHandle | undefined;
    try {
      const bytes = await readFile(this.#path).catch(absentIsUndefined);
      const lines = readLines(bytes ?? new Uint8Array());
      file = await open(this.#path, bytes === undefined ? "wx+" : "r+", MODE);
      if (bytes === undefined) await syncFolder(this.#path);
      this.#lines = lines;
      this.#file = file;
      return file;
    } catch (error) {
      await file?.close();
      await unlock(this.#path);
      throw error;
    }
  }

  /** Writes a line after the last whole one, and waits for the disk. */
  async #append(file: FileHandle, change: object): Promise<void> {
    const lines = this.#lines;
    if (lines.isTorn) await file.truncate(lines.length);
    const line = Buffer.from(`${JSON.stringify(change)}\n`);
    // Until the line is on the disk, it does not count.
    lines.isTorn = true;
    for (let from = 0; from < line.length;) {
      const { bytesWritten } = await file.write(line, from, line.length - from, lines.length + from);
      from += bytesWritten;
    }
    await file.sync();
    lines.isTorn = false;
    lines.length += line.length;
  }

  /** Writes the file anew, without the lines of cleared entries. */
  async #rewrite(old: FileHandle): Promise<void> {
    const entries = [...this.#lines.entries.values()];
    const text = entries.map((entry) => `${JSON.stringify({ begin: entry })}\n`).join("");
    const draft = `${this.#path}.new`;
    const file = await open(draft, "w+", MODE);
    try {
      await file.writeFile(text);
      await file.sync();
      await rename(draft, this.#path);
    } catch (error) {
      // The old file is whole, and stays in use.
      await file.close();
      throw error;
    }
    this.#file = file;
    this.#lines.dead = 0;
    this.#lines.length = Buffer.byteLength(text);
    await old.close();
    await syncFolder(this.#path);
  }
}

function absentIsUndefined(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  return undefined;
}

/** Makes a new name in the folder of `path` durable. Windows cannot, and need not. */
async function syncFolder(path: string): Promise<void> {
  if (process.platform === "win32") return;
  const folder = await open(dirname(path), "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
