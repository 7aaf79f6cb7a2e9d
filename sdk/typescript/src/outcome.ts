/** What a call returns: the outcome of its command, as far as it is known. */

import type { Operation } from "./answer.js";
import type { Failure } from "./failure.js";

/** The outcome of a call. */
export type Outcome = Final | Unknown | Accepted | Unresolved;

/** The command's own answer, or the answer to a request that is no command. */
export interface Final {
  readonly kind: "final";
  /** The answer, whole. A status of 400 or more is the service's answer, too. */
  readonly response: Response;
  /** True if the answer is a replay: the command ran before. */
  readonly replayed: boolean;
  /** The operation, where the server named one. */
  readonly operation: Operation | undefined;
  /** The time until which the server replays this answer. */
  readonly expires: Date | undefined;
  /** Number of times that the command was sent. */
  readonly attempts: number;
  /** The error of a journal that could not clear its entry. The entry stays pending; its resumption is a replay. */
  readonly journalError?: unknown;
}

/** The server does not know what became of the command. Never send it under a new key. */
export interface Unknown {
  readonly kind: "unknown";
  /** The key. */
  readonly key: string;
  /** The operation to ask for. */
  readonly operation: Operation | undefined;
  /** Number of times that the command was sent. */
  readonly attempts: number;
}

/** The server carries the command out later. */
export interface Accepted {
  readonly kind: "accepted";
  /** The key. */
  readonly key: string;
  /** The operation to poll. */
  readonly operation: Operation | undefined;
  /** Number of times that the command was sent. */
  readonly attempts: number;
}

/** The command may have run, and the call has ended without its outcome. Send it again under this key only. */
export interface Unresolved {
  readonly kind: "unresolved";
  /** The key; undefined if the request was sent without one. */
  readonly key: string | undefined;
  /** The operation, where an answer named one. */
  readonly operation: Operation | undefined;
  /** Number of times that the command was sent. */
  readonly attempts: number;
  /** Why no further attempt was made. */
  readonly stopped: Stopped;
  /** The last attempt. */
  readonly last: LastAttempt | undefined;
}

/** Why a call makes no further attempt. */
export type Stopped =
  | "answer"
  | "attempts"
  | "budget"
  | "cancelled"
  | "certificate"
  | "deadline"
  | "expired"
  | "redirect"
  | "too_large"
  | "unknown_host"
  | "unnamed_origin";

/** Why an attempt was not the last one. */
export type Reason = "answer" | Failure;

/** What is known about the last attempt. */
export interface LastAttempt {
  /** The reason. */
  readonly reason: Reason;
  /** The status of its answer. */
  readonly status?: number;
  /** The code of its problem. */
  readonly code?: string | undefined;
}
