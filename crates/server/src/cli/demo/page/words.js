// Sentences of the page: about answers, about unknown payments, and about events.

const again = "“Same key again” is safe at any time.";
const explained = {
  IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST: [
    "bad",
    "The key belongs to a payment of another amount, so this is no retry. Semel refused it, and nothing was charged.",
  ],
  IDEMPOTENCY_REQUEST_IN_PROGRESS: [
    "unsure",
    "The first request still runs. Semel did not start a second one.",
  ],
  UPSTREAM_UNREACHABLE: [
    "bad",
    `The service could not be reached. Semel knows that nothing ran, and keeps the key free. ${again}`,
  ],
};
const unknown = {
  500: "The service answered 500: it may have charged or not. Semel passed that on, and runs nothing again without evidence.",
  502: "The service broke off after Semel had sent the payment. Nobody knows whether it charged, so Semel calls it unknown.",
  504: "The service said nothing for 4 seconds. It may have charged, so Semel gave up waiting, and calls it unknown.",
  409: "Whether the first try charged is still unknown, so Semel did not let this one reach the service.",
};

// Returns true if nobody knows what became of the payment.
export const isUnknown = (answer, problem) =>
  problem.code === "IDEMPOTENCY_OUTCOME_UNKNOWN" || answer.headers.get("Idempotency-Retry") === "poll";

// Returns the tone of an answer, and what it means in one sentence.
export function judge(answer, problem, isReplay, isPastSemel) {
  if (isPastSemel) {
    if (answer.ok) return ["unsure", "The service charged, and it will charge again under the same key."];
    if (answer.status >= 500) return ["bad", "Was the card charged? The answer does not say."];
    return ["bad", problem.error ?? "It was refused."];
  }
  if (isReplay) {
    return ["good", "Semel gave the stored answer again. The service saw nothing of this try, and nothing was charged."];
  }
  if (answer.ok) return ["good", "The service charged. Semel stored its answer before it passed it on."];
  if (isUnknown(answer, problem)) return ["unsure", unknown[answer.status] ?? unknown[502]];
  return explained[problem.code] ?? ["bad", problem.detail ?? problem.error ?? problem.title ?? "It was refused."];
}

// Returns what a try without an answer means.
export const unanswered = (isPastSemel) =>
  isPastSemel
    ? "Was the card charged? Trying again may charge it twice."
    : `It may have arrived or not. ${again}`;

// Returns a number of times in words.
export const times = (number) => ["not at all", "once", "twice"][number] ?? `${number} times`;

// Returns true if no event will come: the process that was to send it was killed before.
const isLost = (event) =>
  event === null || (event.answers.length > 0 && event.answers.every((answer) => answer === "lost"));

// Returns what an answer without a known outcome waits for. The charge is that in the ledger, if it is there.
export function waitsFor(state, charge, isCurrent) {
  if (state !== "unknown") return "It still runs.";
  if (!isCurrent) return "Unknown. The service is dead, and the ledger will tell more once it is back.";
  if (charge && isLost(charge.event)) {
    return "Unknown. No event will come, since the service died: settle it in the console.";
  }
  return "Unknown until there is evidence: the service's event, or a person in the console.";
}

// Returns what is to be done about an open payment.
export function task(payment, state, charge) {
  const name = `The payment of ${payment.amount}`;
  if (state === null) return `${name}: …`;
  if (state !== "unknown") {
    return `${name} is settled now, as ${state.replaceAll("_", " ")}. Retry it as its client, and see the answer.`;
  }
  if (!payment.body) return `${name} is unknown. The ledger will tell whether it was charged.`;
  const number = charge?.charge ?? JSON.parse(payment.body).charge;
  const found = `${name} is charge ${number} in the ledger, which proves it.`;
  const verdict = "the verdict is “It was executed…”, with status 201 and this body. Until then its client gets 409.";
  return charge && !isLost(charge.event)
    ? `${found} The service's event will settle it. If you are faster, ${verdict}`
    : `${found} The service died before it answered, and sends no event: ${verdict}`;
}

// Returns what became of the event about a charge.
export function told(charge, firstOfThePage) {
  const event = charge.event;
  if (event === null) return charge.operation && charge.charge < firstOfThePage ? "none during the story" : "none";
  const said = (answer) => (answer === "lost" ? "none: the service was killed first" : answer);
  const [first, second] = event.answers;
  if (first === undefined) return event.copies > 1 ? "on its way, twice" : "on its way";
  if (event.copies === 1 || isLost(event)) return said(first);
  return `${said(first)}; then ${second === "seen" ? "seen before, ignored" : second ? said(second) : "on its way"}`;
}
