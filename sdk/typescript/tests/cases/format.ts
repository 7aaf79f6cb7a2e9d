/** The format of the shared cases: see sdk/cases/README.md. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import type { Profile } from "@semel/client";

export interface Case {
  readonly name: string;
  readonly profile?: Profile;
  readonly origins?: readonly string[];
  readonly options?: CaseOptions;
  readonly random?: readonly number[];
  readonly now?: number;
  readonly journal?: boolean | "unwritable";
  readonly calls: readonly Call[];
}

export interface CaseOptions {
  readonly base?: number;
  readonly cap?: number;
  readonly deadline?: number;
  readonly attemptTimeout?: number;
  readonly attempts?: number;
  readonly retryAfterMax?: number;
  readonly budgetTokens?: number;
  readonly budgetCost?: number;
  readonly budgetReturn?: number;
  readonly maxAge?: number;
  readonly responseBound?: number;
  readonly onAccepted?: "poll" | "return";
  readonly caller?: string;
}

export type Call = SendCall | PendingCall | RestartCall | TearCall | ClockCall;

export interface SendCall {
  readonly do: "send" | "resume";
  readonly request?: CaseRequest;
  readonly server?: readonly ServerItem[];
  readonly cancelInWait?: number;
  readonly cancelBefore?: boolean;
  readonly expect?: Expectation;
}

export interface PendingCall {
  readonly do: "pending";
  readonly expect?: Expectation;
}

export interface RestartCall {
  readonly do: "restart";
  readonly options?: CaseOptions;
  readonly origins?: readonly string[];
}

export interface TearCall {
  readonly do: "tear_journal";
  readonly cut?: boolean;
  readonly append?: string;
}

export interface ClockCall {
  readonly do: "jump_clock" | "advance_clock";
  readonly by: number;
}

export interface CaseRequest {
  readonly method?: string;
  readonly path?: string;
  readonly url?: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly key?: string;
  readonly intent?: string;
}

export interface ServerItem {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: unknown;
  readonly problem?: string;
  readonly operation?: string;
  readonly operationUrl?: string;
  readonly bodySize?: number;
  readonly fault?: string;
  readonly elapse?: number;
  readonly jump?: number;
}

export interface Expectation {
  readonly outcome?: string;
  readonly status?: number;
  readonly body?: unknown;
  readonly replayed?: boolean;
  readonly operation?: string | null;
  readonly expires?: string;
  readonly attempts?: number;
  readonly stopped?: string;
  readonly last?: Readonly<Record<string, unknown>>;
  readonly requests?: readonly ExpectedRequest[];
  readonly waits?: readonly number[];
  readonly journal?: readonly string[];
  readonly hook?: readonly Readonly<Record<string, unknown>>[];
  readonly tokens?: number;
}

export interface ExpectedRequest {
  readonly method?: string;
  readonly path?: string;
  readonly key?: "absent" | "same" | "new" | { readonly is: string };
  readonly headers?: Readonly<Record<string, string | null>>;
  readonly body?: unknown;
}

/** Members that this runner knows: an unknown one is a mistake, or a check that would not be made. */
const MEMBERS = {
  case: ["name", "profile", "origins", "options", "random", "now", "journal", "calls"],
  expect: [
    ...["outcome", "status", "body", "replayed", "operation", "expires", "attempts", "stopped", "last"],
    ...["requests", "waits", "journal", "hook", "tokens"],
  ],
  request: ["method", "path", "key", "headers", "body"],
  server: [
    ...["status", "headers", "body", "problem", "operation", "operationUrl", "bodySize", "fault"],
    ...["elapse", "jump"],
  ],
};

/** Reads all cases of a folder. */
export function readCases(folder: string): Case[] {
  const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
  const cases = files.sort().flatMap((name) => {
    const { cases: some } = JSON.parse(readFileSync(join(folder, name), "utf8")) as { cases: Case[] };
    return some;
  });
  const names = new Set(cases.map(({ name }) => name));
  if (names.size !== cases.length) throw new Error("two cases have one name");
  for (const one of cases) check(one);
  return cases;
}

function check(one: Case): void {
  known(one, MEMBERS.case);
  for (const call of one.calls) {
    if ("server" in call) for (const item of call.server) known(item, MEMBERS.server);
    if (!("expect" in call)) continue;
    known(call.expect, MEMBERS.expect);
    for (const request of call.expect.requests ?? []) known(request, MEMBERS.request);
  }
}

function known(value: object, members: readonly string[]): void {
  const unknown = Object.keys(value).find((name) => !members.includes(name));
  if (unknown !== undefined) throw new Error(`the format of cases has no member ${unknown}`);
}
