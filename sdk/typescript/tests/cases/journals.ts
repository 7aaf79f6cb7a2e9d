/** The journals that cases run with. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { storageJournal, type Journal, type StringStore } from "@semel/client";
import { fileJournal, type FileJournal } from "@semel/client/file";
import { indexedDbJournal, type IndexedDbJournal } from "@semel/client/indexeddb";
import { IDBFactory } from "fake-indexeddb";

import type { TearCall } from "./format.js";

/** A place for entries that outlives a client. */
export interface CaseJournal {
  /** Makes a journal of what is there. */
  open(): Journal;
  /** Drops the journal, as the end of a process does. */
  drop(): Promise<void>;
  /** Changes what is there. */
  tear?(call: TearCall): void;
  /** Removes everything. */
  remove(): void;
}

/** Kinds of journals: whole ones, and ones that cannot be written. */
export const JOURNALS: Readonly<Record<string, (canWrite: boolean) => CaseJournal>> = {
  file: (canWrite) => new FileCase(canWrite),
  indexeddb: (canWrite) => new IndexedDbCase(canWrite),
  storage: (canWrite) => new StorageCase(canWrite),
};

class FileCase implements CaseJournal {
  readonly #folder = mkdtempSync(join(tmpdir(), "semel-journal-"));
  readonly #path: string;
  #journal: FileJournal | undefined;

  constructor(canWrite: boolean) {
    this.#path = canWrite ? join(this.#folder, "journal") : join(this.#folder, "absent", "journal");
  }

  open(): Journal {
    this.#journal = fileJournal(this.#path);
    return this.#journal;
  }

  async drop(): Promise<void> {
    await this.#journal?.close();
  }

  tear({ append, cut }: TearCall): void {
    const bytes = readFileSync(this.#path);
    if (append !== undefined) {
      writeFileSync(this.#path, Buffer.concat([bytes, Buffer.from(append)]));
      return;
    }
    if (cut !== true) throw new Error("a journal is cut or appended to");
    const from = bytes.subarray(0, -1).lastIndexOf("\n") + 1;
    writeFileSync(this.#path, bytes.subarray(0, from + Math.floor((bytes.length - from) / 2)));
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true });
  }
}

class IndexedDbCase implements CaseJournal {
  readonly #factory: IDBFactory;
  #journal: IndexedDbJournal | undefined;

  constructor(canWrite: boolean) {
    this.#factory = new IDBFactory();
    if (canWrite) return;
    this.#factory.open = () => {
      throw new DOMException("no room", "QuotaExceededError");
    };
  }

  open(): Journal {
    this.#journal = indexedDbJournal(undefined, this.#factory);
    return this.#journal;
  }

  async drop(): Promise<void> {
    await this.#journal?.close();
  }

  remove(): void {
    // The database goes with its factory.
  }
}

class StorageCase implements CaseJournal {
  readonly #items = new Map<string, string>();
  readonly #canWrite: boolean;

  constructor(canWrite: boolean) {
    this.#canWrite = canWrite;
  }

  open(): Journal {
    const store: StringStore = {
      getItem: (name) => this.#items.get(name) ?? null,
      setItem: (name, value) => {
        if (!this.#canWrite) throw new DOMException("no room", "QuotaExceededError");
        this.#items.set(name, value);
      },
    };
    return storageJournal(store);
  }

  drop(): Promise<void> {
    return Promise.resolve();
  }

  remove(): void {
    this.#items.clear();
  }
}
