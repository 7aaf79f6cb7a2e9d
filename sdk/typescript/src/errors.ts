/** The errors that a call rejects with. */

import type { Operation } from "./answer.js";
import type { LastAttempt, Stopped } from "./outcome.js";

/**
 * What an error is about.
 *
 * Nothing ran, and nothing was sent: `bad_key` without a response, `body_not_replayable`, `entry_expired`,
 * `intent_pending`, `journal_unavailable`, `no_such_entry`, `other_caller`, `request_changed`, `unnamed_origin`.
 * Nothing ran: `not_executed`, `certificate`, `unknown_host`.
 * Answers of the server: all others.
 */
export type ErrorKind =
  | "bad_key"
  | "body_not_replayable"
  | "certificate"
  | "duplicate_business_reference"
  | "entry_expired"
  | "intent_pending"
  | "journal_unavailable"
  | "key_reused"
  | "no_such_entry"
  | "not_executed"
  | "other_caller"
  | "record_expired"
  | "redirect"
  | "request_changed"
  | "response_not_retained"
  | "response_unreadable"
  | "unknown_host"
  | "unnamed_origin";

/** Facts of a call that an error can have. */
export interface ErrorFacts {
  /** The server's answer. */
  readonly response?: Response | undefined;
  /** The operation that an answer named. */
  readonly operation?: Operation | undefined;
  /** Number of times that the command was sent. */
  readonly attempts?: number;
  /** Why no further attempt was made. */
  readonly stopped?: Stopped | undefined;
  /** The last attempt. */
  readonly last?: LastAttempt | undefined;
  /** The error below this one. */
  readonly cause?: unknown;
}

/** The error of a call. Its `kind` is stable, its message is not. Neither has a key. */
export class SemelError extends Error {
  override readonly name = "SemelError";
  /** What the error is about. */
  readonly kind: ErrorKind;
  /** The server's answer, where the error is one. */
  readonly response: Response | undefined;
  /** The operation that an answer named. */
  readonly operation: Operation | undefined;
  /** Number of times that the command was sent. */
  readonly attempts: number;
  /** With `not_executed`: why no further attempt was made. */
  readonly stopped: Stopped | undefined;
  /** The last attempt. */
  readonly last: LastAttempt | undefined;

  /** Makes an error. */
  constructor(kind: ErrorKind, message: string, facts: ErrorFacts = {}) {
    super(message, "cause" in facts ? { cause: facts.cause } : undefined);
    this.kind = kind;
    this.response = facts.response;
    this.operation = facts.operation;
    this.attempts = facts.attempts ?? 0;
    this.stopped = facts.stopped;
    this.last = facts.last;
  }
}

/** What each error of a decision says. */
export const MESSAGES: Readonly<Record<string, string>> = {
  bad_key: "the server refuses the key",
  certificate: "the server's certificate is refused; nothing was sent",
  duplicate_business_reference: "another command has this business reference",
  key_reused: "the key was used for another request",
  not_executed: "the command was not executed",
  record_expired: "the command ran, and the server no longer keeps its response",
  redirect: "the server redirects, and a command does not follow",
  response_not_retained: "the command ran, and the server does not keep its response",
  response_unreadable: "the command ran, and the server cannot read its response",
  unknown_host: "there is no such host; nothing was sent",
};
