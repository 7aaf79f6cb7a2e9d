// A payment from this page happens once, however often its button is pressed, its page loaded again, or opened twice.
//
// The client of `client/` sends it: a copy of the compiled `sdk/typescript`. The payment is an intent, whose key is in the
// journal of this browser before it is first sent, and until its outcome is known. The page keeps what was sent, since only
// the same request goes on under that key. An intent that is begun anew is another payment.
import { semel, SemelError } from "./client/index.js";
import { once } from "./client/form.js";
import { indexedDbJournal } from "./client/indexeddb.js";

const user = "alice";
const patience = 15_000;
// How long a payment whose outcome is open is asked for by itself; then a person has to.
const maxRounds = 30;
const maxPause = 10_000;
const element = (id) => document.getElementById(id);
const [form, fields, send, anew] = ["pay", "fields", "send", "anew"].map(element);

const client = semel(fetch, {
  origins: [location.origin],
  profile: "semel",
  caller: user,
  journal: indexedDbJournal(),
  // A person waits: what is not known by then is said, and asked for again.
  deadlineMs: 8_000,
  onAccepted: "return",
});

// An order has an address of its own, and is paid once in this browser, whatever tab it is open in. Without an order,
// each form is a payment.
const order = new URLSearchParams(location.search).get("order");
const place = order === null ? "payment" : intentOf(order);

// What is kept: `intent`, `step` and, depending on the step, `shown`, `body` and `result`.
//   open  the form can be changed; nothing was sent
//   sent  the body was sent, perhaps, and the outcome is not known
//   done  there is a result
let payment = JSON.parse(sessionStorage.getItem(place)) ?? begun();
// The form under control of the client, for the intent of this payment.
let controlled;
// How often the outcome was asked for since a person last did something.
let rounds = 0;
let round;
// True if a person tries again what may have arrived.
let isAgain = false;

function intentOf(name) {
  return `payment of order ${name}`;
}

function begun() {
  const chance = crypto.getRandomValues(new Uint8Array(8));
  const drawn = Array.from(chance, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { intent: intentOf(order ?? drawn), step: "open" };
}

// Kept before anything is done about it.
function keep(changes) {
  payment = { ...payment, ...changes };
  sessionStorage.setItem(place, JSON.stringify(payment));
}

const ask = (path) =>
  fetch(path, { headers: { "X-User": user }, cache: "no-store", signal: AbortSignal.timeout(patience) });

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
  elsewhere: ["Not here", "Another tab or an earlier page has the outcome of this payment, or never sent it: see your payments."],
  duplicate: ["Paid before", "There is a payment under this reference already. Nothing was charged now."],
  refused: ["Refused", ""],
  unsure: ["We cannot tell", "It may have been paid; look at the list before paying again."],
};

// What the button says, and whether it can be pressed.
const labels = { sending: "Paying…", waiting: "Waiting…", unknown: "Waiting…", lost: "Try again" };
// States in which a person may press it.
const pressable = ["open", "lost"];

function show(state, { detail, replayed, label } = {}) {
  const [headline, text] = words[state] ?? ["", ""];
  element("outcome").hidden = state === "open";
  element("outcome").dataset.state = state;
  element("headline").textContent = headline;
  element("detail").textContent = detail || text;
  element("replay").textContent = replayed
    ? "This is the answer to an earlier try, given again. This one charged nothing."
    : "";
  element("intent").textContent = payment.intent;
  // What was sent stays in sight, and cannot be changed any more.
  for (const [name, value] of Object.entries(payment.shown ?? {})) form.elements[name].value = value;
  const hadFocus = form.contains(document.activeElement);
  fields.disabled = state !== "open";
  const isOver = payment.step === "done";
  const isPaid = order !== null && (state === "captured" || controlled.state().status === "done");
  form.hidden = isOver;
  // An order is paid once.
  anew.hidden = !isOver || isPaid;
  // Whoever is in the form with a keyboard stays at what can be pressed next.
  if (hadFocus && state !== "open") (isOver && !isPaid ? anew : send).focus();
  send.textContent = label ?? labels[state] ?? `Pay ${form.elements.amount.value || ""} ${form.elements.currency.value}`;
  // Not `disabled`: whoever pressed it stays there, and hears what comes of it.
  send.setAttribute("aria-disabled", String(label === undefined && !pressable.includes(state)));
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
  keep({ step: "done", body: undefined, result: { state, ...more } });
  show(state, more);
  list();
}

// The request of this payment: the same whenever it is sent, or the client refuses to send it under its key.
function request() {
  const headers = { "Content-Type": "application/json", "X-User": user };
  return { input: "/payments", init: { method: "POST", headers, body: payment.body } };
}

// Sends the payment as it was sent before, under its key.
function goOn() {
  clearTimeout(round);
  const { input, init } = request();
  controlled.submit(input, init);
}

// Asks for the outcome again after a while, which grows; after the last time, a person may.
function askLater(state) {
  if (rounds >= maxRounds) return show(state, { label: "Ask again" });
  show(state);
  list();
  const pause = Math.min(500 * 1.5 ** rounds, maxPause);
  rounds += 1;
  round = setTimeout(goOn, pause);
}

// Shows what the client says of the payment.
function onChange({ status, outcome, error }) {
  if (status === "idle" || payment.step === "done") return;
  if (status === "sending") {
    // While its outcome is asked for, the page says what it said before.
    if (rounds === 0) show("sending");
    return;
  }
  if (error !== undefined) return onError(error);
  if (status === "elsewhere" || outcome === undefined) return finish("elsewhere");
  if (outcome.kind === "accepted") return askLater("waiting");
  if (outcome.kind === "unknown") return askLater("unknown");
  if (outcome.kind === "unresolved") return lost();
  conclude(outcome);
}

function lost(detail) {
  rounds = 0;
  isAgain = true;
  show("lost", { detail });
}

// A final outcome says what became of the payment.
async function conclude({ response, replayed }) {
  const answer = await response.json().catch(() => ({}));
  if ([201, 402].includes(response.status)) {
    const { status, amount, currency, card } = answer;
    const detail = status === "captured" ? `${money(amount, currency)} were charged to card …${card}.` : undefined;
    return finish(status, { detail, replayed: replayed && isAgain });
  }
  if (answer.code === "DUPLICATE_BUSINESS_REFERENCE") return finish("duplicate");
  const why = answer.error ?? answer.detail ?? answer.title;
  if (response.status !== 400) return finish("refused", { detail: why });
  // Nothing was begun, so what was meant may still be sent.
  keep({ step: "open", body: undefined, shown: undefined });
  form.elements.card.value = "";
  show("open");
  complain(why);
}

function onError(error) {
  const kind = error instanceof SemelError ? error.kind : undefined;
  if (kind === "duplicate_business_reference") return finish("duplicate");
  if (kind === "response_not_retained") return finish("elsewhere");
  // It provably did not run; with the next try it has the same key.
  if (kind === "not_executed") return lost("Nothing was charged. Try again.");
  if (kind === "request_changed") {
    // Another tab has sent something else for this order, and its outcome is open: nothing was sent here.
    return lost("Another tab pays this order, with other details. Nothing was sent from here.");
  }
  // It may have been sent before: what its key was cannot be read now, or must not be used any more.
  if (kind === "journal_unavailable") return unsure();
  if (kind === "entry_expired" || kind === "other_caller") return finish("unsure");
  finish("refused", { detail: error.message });
}

// The payment stays as it is. A person may look again, which sends nothing unless the journal has its key.
function unsure() {
  show("unsure", { label: "Look again" });
  list();
}

const isUnsure = () => payment.step === "sent" && element("outcome").dataset.state === "unsure";

// A form that cannot be sent does not reach the client.
form.addEventListener("submit", (event) => {
  const stop = () => {
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  if (send.getAttribute("aria-disabled") === "true") return stop();
  rounds = 0;
  clearTimeout(round);
  if (isUnsure()) {
    stop();
    return resume();
  }
  if (payment.step !== "open") return;
  const [wrong, order] = typed();
  if (wrong) {
    stop();
    return complain(wrong, order);
  }
  complain("");
  const { amount, currency, reference } = form.elements;
  const card = `•••• ${order.card.slice(-4)}`;
  const shown = { amount: amount.value, currency: currency.value, card, reference: reference.value };
  keep({ step: "sent", body: JSON.stringify(order), shown });
});

// Takes the form over for this payment. An intent that is done is done in all tabs, and stays so.
function control() {
  controlled?.stop();
  controlled = once(form, { client, intent: payment.intent, request, remember: localStorage, onChange });
}

// Goes on with what an earlier page sent, if the journal has its key. Without one, it has its outcome, or was never sent:
// to send it now would be another payment.
async function resume() {
  show("sending");
  const entries = await client.pending().catch(() => undefined);
  if (entries === undefined) return unsure();
  if (entries.some(({ intent }) => intent === payment.intent)) goOn();
  else finish("elsewhere");
}

anew.addEventListener("click", () => {
  payment = begun();
  [rounds, isAgain] = [0, false];
  keep({});
  control();
  form.reset();
  show("open");
  form.elements.amount.focus();
});

form.addEventListener("input", () => payment.step === "open" && show("open"));
// The network is back: what may have arrived is asked for.
addEventListener("online", () => {
  if (isUnsure()) resume();
  else if (payment.step === "sent" && controlled.state().status === "open") goOn();
});

element("user").textContent = user;
keep({});
control();
list();
// Where the page was left.
if (payment.step === "done") show(payment.result.state, payment.result);
else if (controlled.state().status === "done") finish("elsewhere");
else if (payment.step === "sent") resume();
else show("open");
