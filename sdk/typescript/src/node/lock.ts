/**
 * The lock beside a journal file, which names the process that uses it. Two processes that wrote one file would not see
 * each other's entries, and draw two keys for one intent.
 *
 * The number of a process is not enough: in containers it is often 1, and it is given again after the process ends. The
 * lock has what tells processes apart, and is taken away only from one that is proven to be gone.
 */

import { readFileSync, readlinkSync, rmSync } from "node:fs";
import { link, open, readFile, rename, rm } from "node:fs/promises";
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import process from "node:process";

import { unavailable } from "../journal.js";

/** What a lock says of the process that has it. What cannot be read is empty, as the last three are without `/proc`. */
interface Holder {
  readonly pid: number;
  readonly host: string;
  /** Differs for each lock that is taken. */
  readonly id: string;
  /** The boot of the machine. */
  readonly boot: string;
  /** The namespace that the number counts in. */
  readonly space: string;
  /** The time at which the process started, in ticks since the boot. */
  readonly start: string;
}

/** The locks of this process, which go with it. */
const held = new Set<string>();
/** True once the locks are removed at the end of the process. */
let isWatching = false;
/** Most times that a lock is tried for: others may take and leave it meanwhile. */
const MAX_TRIES = 5;

/** Takes the lock of the file at `path`, or rejects unless the process that has it is proven to be gone. */
export async function lock(path: string): Promise<void> {
  const name = `${path}.lock`;
  const own = self();
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    if (await take(name, JSON.stringify(own))) return;
    const text = await readFile(name, "utf8").catch(() => undefined);
    // It was given up meanwhile.
    if (text === undefined) continue;
    const why = refusal(own, readHolder(text));
    if (why !== undefined) throw unavailable(`${why}: remove ${name} if nothing uses the journal`);
    await remove(name, text);
  }
  throw unavailable(`its lock ${name} cannot be taken`);
}

/** Gives the lock up. */
export async function unlock(path: string): Promise<void> {
  held.delete(`${path}.lock`);
  await rm(`${path}.lock`, { force: true });
}

/** Makes the lock, whole or not at all. */
async function take(name: string, text: string): Promise<boolean> {
  const draft = `${name}.${randomUUID()}`;
  try {
    const file = await open(draft, "wx");
    try {
      await file.writeFile(text);
      // A lock that a crash left empty would be nobody's.
      await file.sync();
    } finally {
      await file.close();
    }
    await link(draft, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
  if (!isWatching) process.once("exit", removeAll);
  isWatching = true;
  held.add(name);
  return true;
}

/** Removes the lock of a process that is gone, but not one that was taken meanwhile. */
async function remove(name: string, holder: string): Promise<void> {
  const aside = `${name}.${randomUUID()}`;
  try {
    await rename(name, aside);
  } catch {
    return;
  }
  const found = await readFile(aside, "utf8").catch(() => "");
  if (found !== holder) await link(aside, name).catch(() => undefined);
  await rm(aside, { force: true });
}

/** Returns why a lock stays with its holder, or undefined if that is gone. */
function refusal(own: Holder, holder: Holder | undefined): string | undefined {
  if (holder === undefined) return "its lock names no process";
  const process = `process ${String(holder.pid)} of ${holder.host}`;
  if (holder.host !== own.host) return `${process}, another host, uses its file`;
  // The machine was started again since.
  if (holder.boot !== own.boot && holder.boot !== "" && own.boot !== "") return undefined;
  if (holder.boot !== own.boot || holder.space !== own.space) {
    return `${process}, which cannot be seen from here, uses its file`;
  }
  if (holder.pid === own.pid && (holder.start === own.start || holder.start === "")) {
    return `this process, another thread of it, or one before it with the same number uses its file`;
  }
  if (!isRunning(holder.pid)) return undefined;
  const start = startOf(String(holder.pid));
  // The number was given to another process since.
  if (start !== "" && holder.start !== "" && start !== holder.start) return undefined;
  return `${process} uses its file`;
}

function self(): Holder {
  return {
    pid: process.pid,
    // Deno may not be allowed to read what is asked for here.
    host: orEmpty(hostname),
    id: randomUUID(),
    boot: orEmpty(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()),
    space: orEmpty(() => readlinkSync("/proc/self/ns/pid")),
    start: startOf("self"),
  };
}

/** Returns the time at which a process started, or nothing if the system does not tell. */
function startOf(pid: string): string {
  return orEmpty(() => {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name before it can have any characters.
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
  });
}

function orEmpty(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}

function readHolder(text: string): Holder | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const { pid, host, id, boot, space, start } = value as Record<string, unknown>;
  if (typeof pid !== "number" || !Number.isSafeInteger(pid) || pid <= 0) return undefined;
  if (typeof host !== "string" || typeof id !== "string" || typeof boot !== "string") return undefined;
  if (typeof space !== "string" || typeof start !== "string") return undefined;
  return { pid, host, id, boot, space, start };
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function removeAll(): void {
  for (const name of held) rmSync(name, { force: true });
}
