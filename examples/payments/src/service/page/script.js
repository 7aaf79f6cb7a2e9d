// A payment from this page happens once, however often its button is pressed and its page loaded again.
//
// The payment's key is made when the form is made, and kept with what was sent. Until there is a result, everything that
// is sent again is sent as it was, under that key. Only a form that is begun anew after a result has a new one.
"use strict";

const user = "alice";
const operations = "/.well-known/semel/operations/";
const patience = 15_000;
const element = (id) => document.getElementById(id);
const [form, fields, send, anew] = ["pay", "fields", "send", "anew"].map(element);

// What is kept: `key`, `step` and, depending on the step, `shown`, `body`, `operation` and `result`.
//   open      the form can be changed; nothing was sent
//   sent      the body was sent, perhaps, and no answer has come
//   accepted  the service has it, as this operation, and says later what came of it
//   done      there is a result
let payment = JSON.parse(sessionStorage.getItem("payment")) ?? begun();

function begun() {
  const chance = crypto.getRandomValues(new Uint8Array(16));
  return { key: Array.from(chance, (byte) => byte.toString(16).padStart(2, "0")).join(""), step: "open" };
}

// Kept before anything is done about it.
function keep(changes) {
  payment = { ...payment, ...changes };
  sessionStorage.setItem("payment", JSON.stringify(payment));
}

const ask = (path, options = {}) =>
  fetch(path, {
    ...options,
    headers: { "X-User": user, ...options.headers },
    cache: "no-store",
    signal: AbortSignal.timeout(patience),
  });

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// What the service asks to wait, within reason.
const retryAfter = (answer) => Math.min(Math.max(Number(answer.headers.get("Retry-After")) || 1, 1), 30);

const money = (amount, currency) => new Intl.NumberFormat("en", { style: "currency", currency }).format(amount / 100);

// ── What is shown ──────────────────────────────────────────────────────────────────────────────────────────────────

const words = {
  sending: ["Paying…", "The payment is on its way."],
  lost: [
    "No answer",
    "It may have arrived, or not. Trying again is safe: it is the same payment, and is charged once.",
  ],
  waiting: [
    "Accepted, waiting",
    "The service has your payment, and waits for the card. You may leave or reload this page.",
  ],
  unknown: [
    "We do not know yet",
    "The card may have been charged, or not. Do not pay again: we are finding out, and this page will say it.",
  ],
  captured: ["Paid", ""],
  declined: ["Declined", "The card was not charged."],
  duplicate: ["Paid before", "There is a payment under this reference already. Nothing was charged now."],
  refused: ["Refused", ""],
  forgotten: ["Gone", "The service does not remember this payment any more. Your payments below do."],
};

// What the button says, and whether it can be pressed.
const labels = { sending: "Paying…", waiting: "Waiting…", unknown: "Waiting…", lost: "Try again" };

function show(state, { detail, replayed } = {}) {
  const [headline, text] = words[state] ?? ["", ""];
  element("outcome").hidden = state === "open";
  element("outcome").dataset.state = state;
  element("headline").textContent = headline;
  element("detail").textContent = detail || text;
  element("replay").textContent = replayed
    ? "This is the answer to an earlier try, given again. This one charged nothing."
    : "";
  element("key").textContent = payment.key;
  // What was sent stays in sight, and cannot be changed any more.
  for (const [name, value] of Object.entries(payment.shown ?? {})) form.elements[name].value = value;
  const hadFocus = form.contains(document.activeElement);
  fields.disabled = state !== "open";
  const isOver = payment.step === "done";
  form.hidden = isOver;
  anew.hidden = !isOver;
  // Whoever is in the form with a keyboard stays at what can be pressed next.
  if (hadFocus && state !== "open") (isOver ? anew : send).focus();
  send.textContent = labels[state] ?? `Pay ${form.elements.amount.value || ""} ${form.elements.currency.value}`;
  // Not `disabled`: whoever pressed it stays there, and hears what comes of it.
  send.setAttribute("aria-disabled", String(!["open", "lost"].includes(state)));
}

function complain(text, field) {
  element("complaint").textContent = text;
  for (const input of form.querySelectorAll("input")) input.toggleAttribute("aria-invalid", input === field);
  field?.focus();
}

// Nothing that comes from elsewhere is more than text.
function row(entry) {
  const item = document.createElement("li");
  const add = (tag, className, text) => {
    const part = document.createElement(tag);
    part.className = className;
    part.textContent = text;
    item.append(part);
  };
  add("strong", "amount", money(entry.amount, entry.currency));
  add("span", `status ${entry.status}`, entry.status);
  add("span", "reference", entry.reference ?? "");
  add("span", "quiet", `card …${entry.card}`);
  add("time", "quiet", new Date(entry.createdAt).toLocaleTimeString());
  return item;
}

async function list() {
  try {
    const answer = await ask("/payments");
    if (!answer.ok) return;
    const entries = await answer.json();
    element("payments").replaceChildren(...entries.map(row));
    element("empty").hidden = entries.length > 0;
  } catch {
    // It is shown when the service answers again.
  }
}

// ── What is done ───────────────────────────────────────────────────────────────────────────────────────────────────

// What was typed, as the service wants it; or which field is wrong.
function typed() {
  const { amount, currency, card, reference } = form.elements;
  if (!/^\d{1,6}([.,]\d{1,2})?$/.test(amount.value.trim())) return ["An amount looks like 12.00.", amount];
  const [whole, part = ""] = amount.value.trim().split(/[.,]/);
  const cents = Number(whole) * 100 + Number(part.padEnd(2, "0"));
  if (cents === 0) return ["The amount is more than zero.", amount];
  const number = card.value.replaceAll(/[\s-]/g, "");
  if (!/^\d{12,19}$/.test(number)) return ["A card number has 12 to 19 digits.", card];
  const order = { amount: cents, currency: currency.value, card: number };
  if (reference.value.trim()) order.reference = reference.value.trim();
  return [null, order];
}

function finish(state, more) {
  // The card is not kept any longer than it is needed.
  keep({ step: "done", body: undefined, operation: undefined, result: { state, ...more } });
  show(state, more);
  list();
}

// An answer that says what became of the payment.
async function conclude(answer, replayed) {
  const paid = await answer.json();
  const detail =
    paid.status === "captured" ? `${money(paid.amount, paid.currency)} were charged to card …${paid.card}.` : undefined;
  finish(paid.status, { detail, replayed });
}

// Sends the payment: for the first time, or as it was.
async function submit() {
  show("sending");
  let answer;
  let problem = {};
  try {
    const headers = { "Content-Type": "application/json", "Idempotency-Key": `"${payment.key}"` };
    answer = await ask("/payments", { method: "POST", headers, body: payment.body });
    if ([201, 402].includes(answer.status)) {
      return await conclude(answer, answer.headers.get("Idempotency-Replayed") === "true");
    }
    if (answer.status !== 202) problem = await answer.json();
  } catch {
    return show("lost");
  }
  const why = problem.error ?? problem.detail ?? problem.title;
  if (answer.status === 202) return wait(answer.headers.get("Location"), retryAfter(answer));
  if (problem.code === "IDEMPOTENCY_REQUEST_IN_PROGRESS") {
    await pause(retryAfter(answer));
    return submit();
  }
  if (problem.code === "IDEMPOTENCY_OUTCOME_UNKNOWN" && answer.status === 409) {
    return wait(operations + problem.operationId, retryAfter(answer));
  }
  if (problem.code === "DUPLICATE_BUSINESS_REFERENCE") return finish("duplicate");
  if (answer.status === 400) {
    // Nothing was begun, so what was meant may still be sent under this key.
    keep({ step: "open", body: undefined, shown: undefined });
    form.elements.card.value = "";
    show("open");
    return complain(why);
  }
  // Nobody can say more than that it may be sent again.
  if (answer.status === 429 || answer.status >= 500) return show("lost");
  finish("refused", { detail: why });
}

// Asks for the operation until it has come to its end.
async function wait(operation, seconds) {
  keep({ step: "accepted", body: undefined, operation });
  show("waiting");
  list();
  for (;;) {
    await pause(seconds);
    try {
      const answer = await ask(operation);
      seconds = retryAfter(answer);
      if (answer.status === 404) return finish("forgotten");
      if (!answer.ok) continue;
      const { state } = await answer.json();
      if (state === "succeeded" || state === "failed_final") {
        const result = await ask(`${operation}/result`);
        if ([201, 402].includes(result.status)) return await conclude(result, false);
        return finish("forgotten");
      }
      if (state === "failed_retryable")
        return finish("refused", { detail: "It was not carried out. Nothing was charged." });
      show(state === "unknown" ? "unknown" : "waiting");
    } catch {
      // The service is away; it knows more when it is back.
    }
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (send.getAttribute("aria-disabled") === "true") return;
  if (payment.step === "open") {
    const [wrong, order] = typed();
    if (wrong) return complain(wrong, order);
    complain("");
    const { amount, currency, reference } = form.elements;
    const card = `•••• ${order.card.slice(-4)}`;
    const shown = { amount: amount.value, currency: currency.value, card, reference: reference.value };
    keep({ step: "sent", body: JSON.stringify(order), shown });
  }
  submit();
});

anew.addEventListener("click", () => {
  payment = begun();
  keep({});
  form.reset();
  show("open");
  form.elements.amount.focus();
});

form.addEventListener("input", () => payment.step === "open" && show("open"));

element("user").textContent = user;
keep({});
list();
// Where the page was left.
if (payment.step === "sent") submit();
else if (payment.step === "accepted") wait(payment.operation, 0);
else if (payment.step === "done") show(payment.result.state, payment.result);
else show("open");
