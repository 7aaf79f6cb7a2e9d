/**
 * The submission of one intent of a page. Its lock is taken before anything is awaited: a second click, or a second
 * component with the same intent, finds it taken. `form.ts` and `react.ts` are made of it.
 */

import { HOOKS, type Hooks } from "./call.js";
import type { Client, CommandInit } from "./client.js";
import { doneMarks } from "./done.js";
import { SemelError } from "./errors.js";
import { unavailable, type Journal, type StringStore } from "./journal.js";
import type { Outcome } from "./outcome.js";

/** Most submissions that a client remembers. The oldest one of which nothing was sent is forgotten. */
export const MAX_SUBMISSIONS = 1000;

/** What is known of a submission. */
export interface SubmissionState {
  /**
   * - `idle`: nothing was submitted.
   * - `sending`: the command is under way.
   * - `done`: the command has succeeded. It is not sent again before `again` is called.
   * - `open`: the call has ended otherwise; `outcome` or `error` says how. The next submission has the same key
   *   unless the outcome was final.
   * - `elsewhere`: another tab sends this intent, or has just done so, and has its outcome.
   */
  readonly status: "idle" | "sending" | "done" | "open" | "elsewhere";
  /** The outcome of the last call. */
  readonly outcome?: Outcome;
  /** The error of the last call. */
  readonly error?: unknown;
}

/** What a submission takes: a request, but neither key nor intent. */
export type SubmissionInit = Omit<CommandInit, "key" | "intent">;

/** The submission of one intent. Its functions can be passed on without it. */
export interface Submission {
  /** Returns what is known, as the same object until it changes. */
  readonly state: () => SubmissionState;
  /** Calls `listener` after each change, until the function that it returns is called. */
  readonly subscribe: (listener: () => void) => () => void;
  /**
   * Sends the command, or goes on with the one that is pending. Returns undefined, and does nothing, while it is
   * under way or done. The promise never rejects.
   */
  readonly submit: (
    input: string | URL | Request,
    init?: SubmissionInit,
  ) => Promise<SubmissionState> | undefined;
  /** Allows a new command of this intent after one that is done. */
  readonly again: () => void;
  /** Forgets a command that may have run. Only a person who knows its outcome may decide this. */
  readonly abandon: () => Promise<void>;
}

/** The part of `navigator.locks` that is used. */
interface TabLocks {
  request<T>(name: string, options: { ifAvailable: true }, act: (lock: unknown) => Promise<T>): Promise<T>;
}

/** The submissions of each client by their intents. */
const known = new WeakMap<Client, Map<string, Submission>>();

/** Options of a submission. */
export interface SubmissionOptions {
  /**
   * Where intents that are done are remembered beyond the page: `sessionStorage`, or `localStorage` for all tabs. For
   * intents that happen once, such as `payment of order 17`.
   */
  readonly remember?: StringStore;
}

/** State of a submission before anything happened. */
export const IDLE: SubmissionState = { status: "idle" };

/**
 * Returns the submission of an intent: the same one for all forms and components of the page. The options of the first
 * one count.
 */
export function submissionOf(client: Client, intent: string, options: SubmissionOptions = {}): Submission {
  const all = known.get(client) ?? new Map<string, Submission>();
  known.set(client, all);
  const found = all.get(intent);
  if (found !== undefined) return found;
  if (all.size >= MAX_SUBMISSIONS) forgetOne(all);
  const made = submission(client, intent, options);
  all.set(intent, made);
  return made;
}

function forgetOne(all: Map<string, Submission>): void {
  for (const [intent, one] of all) {
    if (one.state().status !== "idle") continue;
    all.delete(intent);
    return;
  }
}

function submission(client: Client, intent: string, { remember }: SubmissionOptions): Submission {
  const { journal } = client;
  if (journal === undefined) {
    throw unavailable(
      "the client has none: give it `storageJournal(sessionStorage)` or `indexedDbJournal()`",
    );
  }
  const marks = remember === undefined ? undefined : doneMarks(remember);
  const listeners = new Set<() => void>();
  let state: SubmissionState = marks?.has(intent) === true ? { status: "done" } : IDLE;
  const become = (next: SubmissionState): SubmissionState => {
    state = next;
    for (const listener of [...listeners]) listener();
    return next;
  };
  // The mark is there before the journal entry goes, and is looked for after the entry was: whoever finds neither is
  // the first.
  const hooks: Hooks = {
    mayBegin: () => marks?.has(intent) !== true,
    settled(isSuccess) {
      if (isSuccess) marks?.add(intent);
    },
  };
  const isLocked = (): boolean => state.status === "sending" || state.status === "done";
  return {
    state: () => state,
    subscribe(listener) {
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
      };
    },
    submit(input, init = {}) {
      if (isLocked()) return undefined;
      if (marks?.has(intent) === true) {
        // Another tab has done it since.
        become({ status: "done" });
        return undefined;
      }
      become({ status: "sending" });
      const sent = alone(journal, intent, () =>
        sendOrResume(client, intent, input, { ...init, [HOOKS]: hooks }),
      );
      return sent.then(become, (error: unknown) => become(ofError(error)));
    },
    again() {
      if (state.status === "sending") return;
      marks?.remove(intent);
      become(IDLE);
    },
    async abandon() {
      if (state.status === "sending") throw new Error("the command is under way: abort its signal first");
      const entries = await journal.pending();
      const entry = entries.find((one) => one.intent === intent);
      if (entry !== undefined) await journal.clear(intent, entry.key);
      become(IDLE);
    },
  };
}

/** Runs while no other tab sends this intent. With a journal that tabs share, they send under one key instead. */
async function alone(
  journal: Journal,
  intent: string,
  act: () => Promise<SubmissionState>,
): Promise<SubmissionState> {
  const { locks } = (globalThis as { navigator?: { locks?: TabLocks | null } }).navigator ?? {};
  if (journal.isShared === true || locks == null) return act();
  return locks.request(`semel:${intent}`, { ifAvailable: true }, async (lock) =>
    lock === null ? { status: "elsewhere" } : act(),
  );
}

async function sendOrResume(
  client: Client,
  intent: string,
  input: string | URL | Request,
  init: SubmissionInit & { [HOOKS]: Hooks },
): Promise<SubmissionState> {
  const entries = await client.pending();
  const isPending = entries.some((entry) => entry.intent === intent);
  if (!isPending && !init[HOOKS].mayBegin()) return { status: "elsewhere" };
  try {
    if (!isPending) return ofOutcome(await client(input, { ...init, intent }));
  } catch (error) {
    // Another tab has had its outcome while this one wrote its entry.
    if (kindOf(error) === "no_such_entry") return { status: "elsewhere" };
    // Another tab was first: this one goes on under its key.
    if (kindOf(error) !== "intent_pending") throw error;
  }
  try {
    return ofOutcome(await client.resume(intent, input, init));
  } catch (error) {
    // The other tab has had its outcome since: a new key would be a second command.
    if (kindOf(error) === "no_such_entry") return { status: "elsewhere" };
    throw error;
  }
}

function ofOutcome(outcome: Outcome): SubmissionState {
  const isDone = outcome.kind === "final" && outcome.response.status < 400;
  return { status: isDone ? "done" : "open", outcome };
}

/** Without its response, a command that ran is done all the same. */
function ofError(error: unknown): SubmissionState {
  return { status: kindOf(error) === "response_not_retained" ? "done" : "open", error };
}

function kindOf(error: unknown): string | undefined {
  return error instanceof SemelError ? error.kind : undefined;
}
