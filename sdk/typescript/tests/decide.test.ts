import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { it } from "node:test";

import {
  begin,
  decide,
  LIMITS,
  type AnswerFacts,
  type AttemptResult,
  type CallTerms,
  type Profile,
  type Surroundings,
} from "@semel/client";

const AROUND: Surroundings = { elapsedMs: 0, cancelled: false, tokens: 500, draw: 0.5 };
const STATUSES = [
  0, 200, 201, 202, 204, 207, 303, 400, 401, 404, 408, 409, 410, 422, 425, 429, 500, 502, 503, 504, 600,
];
const CODES = [
  undefined,
  "DUPLICATE_BUSINESS_REFERENCE",
  "FORBIDDEN",
  "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST",
  "IDEMPOTENCY_OUTCOME_UNKNOWN",
  "IDEMPOTENCY_RECORD_EXPIRED",
  "IDEMPOTENCY_REQUEST_IN_PROGRESS",
  "IDEMPOTENCY_RESPONSE_UNREADABLE",
  "IDEMPOTENCY_STORE_UNAVAILABLE",
  "INVALID_IDEMPOTENCY_KEY",
  "A_CODE_OF_TOMORROW",
];
const ADVICE = [undefined, "same-key", "poll", "never"] as const;
const FLAGS = [false, true];

function terms(profile: Profile): CallTerms {
  return { profile, limits: LIMITS, onAccepted: "poll", retryCost: 14 };
}

/** Every answer that this test can think of. */
function* answers(): Generator<AnswerFacts> {
  for (const status of STATUSES)
    for (const code of CODES)
      for (const advice of ADVICE)
        for (const replayed of FLAGS)
          for (const marked of FLAGS)
            for (const shouldRetry of [undefined, false, true])
              yield {
                status,
                // An answer that is marked has no code of Semel.
                code: marked ? undefined : code,
                namesOperation: false,
                advice,
                shouldRetry,
                hasRetryAfter: false,
                retryAfterMs: undefined,
                replayed,
                notRetained: false,
                marked,
                located: marked,
                operation: marked ? { id: "op_1", url: "https://api.example.com/op_1" } : undefined,
              };
}

function after(profile: Profile, isResumed: boolean, result: AttemptResult): ReturnType<typeof decide> {
  return decide(begin(terms(profile), isResumed), { kind: "attempt", result }, AROUND);
}

await it("a command that may have run is never said to have failed, whatever the answer", () => {
  let number = 0;
  for (const facts of answers()) {
    const { state, step } = after("semel", true, { kind: "answer", facts });
    number += 1;
    const what = JSON.stringify(facts);
    assert.ok(state.ambiguous, what);
    if (step.do !== "end") continue;
    assert.notEqual(step.ending.kind, "error", what);
    if (step.ending.kind === "final") assert.ok(facts.marked || facts.replayed, what);
  }
  assert.ok(number > 5000);
});

await it("a success without a mark ends a command that may have run only where servers do not mark", () => {
  for (const profile of ["semel", "ietf", "stripe"] as const) {
    for (const facts of answers()) {
      const { step } = after(profile, true, { kind: "answer", facts });
      const isFinal = step.do === "end" && step.ending.kind === "final";
      if (!isFinal || facts.marked || facts.replayed) continue;
      assert.notEqual(profile, "semel");
      assert.ok(facts.status >= 200 && facts.status < 300, JSON.stringify(facts));
    }
  }
});

await it("a server error that is no replay is final only on the server's own word", () => {
  for (const profile of ["semel", "ietf"] as const) {
    for (const facts of answers()) {
      if (facts.status < 500 || facts.replayed || facts.advice === "never") continue;
      const { step } = after(profile, false, { kind: "answer", facts });
      assert.ok(step.do !== "end" || step.ending.kind !== "final", JSON.stringify(facts));
    }
  }
});

await it("a decision changes nothing and depends on nothing but its arguments", () => {
  const facts = Object.freeze({ ...answers().next().value } as AnswerFacts);
  const state = Object.freeze(begin(terms("semel"), false));
  for (const result of [{ kind: "answer", facts } as const, { kind: "failure", failure: "lost" } as const]) {
    const event = Object.freeze({ kind: "attempt", result } as const);
    assert.deepEqual(decide(state, event, AROUND), decide(state, event, AROUND));
  }
});

await it("a decision draws only for a wait", () => {
  let drawn = 0;
  const around = {
    ...AROUND,
    get draw() {
      drawn += 1;
      return 0.5;
    },
  };
  const state = begin(terms("semel"), false);
  decide(state, { kind: "begun" }, around);
  decide(state, { kind: "attempt", result: { kind: "failure", failure: "certificate" } }, around);
  assert.equal(drawn, 0);
  const { step } = decide(state, { kind: "attempt", result: { kind: "failure", failure: "lost" } }, around);
  assert.deepEqual(step, { do: "wait", ms: 50, tokens: 14 });
  assert.equal(drawn, 1);
});

await it("an operation is polled a hundred times at most", () => {
  const limits = { ...LIMITS, deadlineMs: Number.MAX_SAFE_INTEGER };
  const facts: AnswerFacts = { ...(answers().next().value as AnswerFacts), status: 504 };
  const operation = { id: "op_1", url: "https://api.example.com/op_1" };
  const unknown = { ...facts, advice: "poll", operation } as const;
  let { state, step } = decide(
    begin({ ...terms("semel"), limits }, false),
    { kind: "attempt", result: { kind: "answer", facts: unknown } },
    AROUND,
  );
  let polls = 0;
  while (step.do !== "end") {
    assert.equal(step.do, "wait");
    ({ state, step } = decide(state, { kind: "waited" }, AROUND));
    assert.equal(step.do, "poll");
    polls += 1;
    const result = { kind: "answer", facts: { ...facts, status: 200 } } as const;
    ({ state, step } = decide(state, { kind: "polled", result, document: { state: "unknown" } }, AROUND));
  }
  assert.equal(polls, 100);
  assert.deepEqual(step.ending, { kind: "unknown" });
});

await it("a wait that lasts longer than it should does not send after the deadline", () => {
  const late = { ...AROUND, elapsedMs: LIMITS.deadlineMs - 0.5 };
  const { step } = decide(begin(terms("semel"), false), { kind: "waited" }, late);
  assert.deepEqual(step, {
    do: "end",
    ending: { kind: "error", error: "not_executed", stopped: "deadline" },
  });
});

await it("the codes that are sent again without advice are those of the contract's section", () => {
  const path = process.env["SEMEL_PROBLEMS"];
  assert.ok(path !== undefined, "SEMEL_PROBLEMS is the page of problems");
  const sections = readFileSync(path, "utf8").split(/^## /m).slice(1, 4);
  const plain = { ...(answers().next().value as AnswerFacts), status: 418 };
  let retried = 0;
  for (const [index, section] of sections.entries()) {
    for (const [, code] of section.matchAll(/^\| `([A-Z_]+)` \| \d+ \|/gm)) {
      const { step } = after("semel", false, { kind: "answer", facts: { ...plain, code } });
      // The second section is polled: without an operation, that is another attempt.
      assert.equal(step.do === "wait", index < 2, code);
      retried += step.do === "wait" ? 1 : 0;
    }
  }
  assert.ok(retried > 10);
});
