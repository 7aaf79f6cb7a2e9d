// Pays under a key, and shows what Semel answers. Everything that comes from elsewhere is inserted as text.
import {
  around,
  ask,
  begun,
  chargeOf,
  element,
  isPastSemel,
  keep,
  keepPayment,
  page,
  part,
  recordLink,
  service,
  write,
} from "./base.js";
import { drop, isOpen, leave, look, showLeft, states } from "./left.js";
import { isUnknown, judge, times, told, unanswered, waitsFor } from "./words.js";

// Longer than Semel waits for the service.
const patience = 20_000;
const interval = 1000;
const maxAnswers = 12;
const maxOpen = 5;
const maxBody = 2000;
const [form, amount, send, anew, answers, ledger] = ["pay", "amount", "send", "anew", "answers", "ledger"].map(element);
const boxes = [...document.querySelectorAll("#days input")];

// The text of the service's last state, and when it came.
let seen = "";
let seenAt = 0;
let open = 0;
let switching = 0;
// The answer that waits for its outcome to become known.
let waiting = null;

// ── Tries ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function parsed(answer, text) {
  if (!(answer.headers.get("Content-Type") ?? "").includes("json")) return {};
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

function fill(item, answer) {
  item.dataset.tone = answer.tone;
  const line = part("p", "facts", "");
  for (const code of answer.codes) line.append(part("code", "", code), " ");
  if (answer.operation && around()) line.append(recordLink(answer.operation, "Its record in the console"));
  const later = part("p", "later", "");
  item.replaceChildren(part("p", "status", answer.title), part("p", "", answer.sentence), line, later);
  if (answer.body) line.after(part("pre", "", answer.body));
  if (answer.isWaiting) waiting = { operation: answer.operation, item };
}

// Sends the payment of this page, and returns the answer as it is shown.
async function attempt(text, label) {
  const { key, amount: typedAmount } = page.payment;
  const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
  const answer = await ask("/payments", { method: "POST", headers, body: text }, patience);
  const body = await answer.text();
  const problem = parsed(answer, body);
  const isReplay = answer.headers.get("Idempotency-Replayed") === "true";
  const operation = answer.headers.get("Idempotency-Operation-Id") ?? problem.operationId ?? null;
  const [tone, sentence] = judge(answer, problem, isReplay, isPastSemel());
  if (operation) {
    states.delete(operation);
    if (isUnknown(answer, problem)) leave({ key, operation, amount: typedAmount, body: null });
    else if (answer.ok) drop(operation);
  }
  if (page.payment.key === key) {
    const { charged, unclear } = page.payment;
    keepPayment({
      operation: operation ?? page.payment.operation,
      charged: charged + Number(answer.ok),
      unclear: unclear - Number(answer.status < 500),
    });
  }
  return {
    tone,
    title: `${label}: ${answer.status} ${answer.statusText}`.trim(),
    sentence,
    codes: [problem.code, isReplay && "Idempotency-Replayed: true"].filter(Boolean),
    operation,
    body: body.length > maxBody ? `${body.slice(0, maxBody)}…` : body.trimEnd(),
    isWaiting: tone === "unsure" && operation !== null,
  };
}

async function submit(text) {
  const { key } = page.payment;
  const tries = page.payment.tries + 1;
  const label = `Try ${tries}`;
  const silent = { tone: "unsure", title: `${label}: no answer`, codes: [], operation: null, body: "", isWaiting: false };
  const item = part("li", "", "");
  waiting = null;
  fill(item, { ...silent, tone: "", title: `${label}: …`, sentence: "The payment is on its way." });
  answers.prepend(item);
  while (answers.children.length > maxAnswers) answers.lastElementChild.remove();
  open += 1;
  // A reload finds this, unless the answer comes first.
  const reloaded = { ...silent, sentence: `This page was reloaded before it came. ${unanswered(isPastSemel())}` };
  keepPayment({ amount: amount.value, tries, unclear: page.payment.unclear + 1, answer: reloaded });
  show();
  let answer = { ...silent, sentence: unanswered(isPastSemel()) };
  try {
    answer = await attempt(text, label);
  } catch {
    // What was prepared says so.
  } finally {
    open -= 1;
    const isMine = page.payment.key === key;
    fill(item, { ...answer, isWaiting: answer.isWaiting && isMine });
    if (isMine) keepPayment({ answer });
    await refresh();
    await follow();
  }
}

// Asks what became of open payments.
async function follow() {
  await look(waiting?.operation);
  showLater();
  showLeft(retry);
}

// Says what the last answer waits for, or that its outcome became known in the meantime.
function showLater() {
  const state = waiting && states.get(waiting.operation);
  if (!state || state === "gone") return;
  const { operation, item } = waiting;
  const later = item.querySelector(".later");
  if (isOpen(state)) {
    write(later, waitsFor(state, chargeOf(operation), service.isCurrent));
    return;
  }
  waiting = null;
  item.dataset.tone = "good";
  later.textContent =
    state === "succeeded"
      ? "Settled now: there is evidence of the charge. “Same key again” gets the answer, and charges nothing."
      : `Settled now, as ${state.replaceAll("_", " ")}. “Same key again” tells more.`;
}

// ── What is shown ──────────────────────────────────────────────────────────────────────────────────────────────────

// Returns how often this payment was charged: from the ledger, or without Semel from the answers.
function tally() {
  const { operation, charged, unclear } = page.payment;
  if (isPastSemel()) {
    const doubtful = Math.max(0, unclear - open);
    if (charged + doubtful === 0) return "";
    const tries = doubtful === 1 ? "One more try" : `${doubtful} more tries`;
    return `Charged under this key: ${times(charged)}.${doubtful ? ` ${tries} may have charged it as well.` : ""}`;
  }
  if (!operation || !service.isCurrent) return "";
  const own = service.shop.charges.filter((charge) => charge.operation === operation);
  // An older charge is not in this part of the ledger.
  if (own.length === 0 && service.shop.count > service.shop.charges.length) return "";
  const isDouble = own[0]?.event?.copies === 2 && own[0].event.answers[1] === "seen";
  const event = isDouble ? " Its event came twice: Semel took the first, and the second changed nothing." : "";
  return `Charged under this key: ${times(own.length)}.${event}`;
}

function show() {
  const { key, tries } = page.payment;
  write(element("key"), key);
  write(send, tries > 0 ? "Same key again" : "Pay");
  anew.hidden = tries === 0;
  element("answers-title").hidden = answers.children.length === 0;
  // Not `disabled`: whoever pressed it with the keyboard stays there.
  send.setAttribute("aria-disabled", String(around() === null || open >= maxOpen));
  write(element("tally"), tally());
  const age = Math.round((performance.now() - seenAt) / 1000);
  const isOld = service.shop !== null && !service.isCurrent;
  write(element("age"), isOld ? `This is the ledger as it was ${age} s ago.` : "");
}

function say(state, text) {
  const status = element("service");
  status.dataset.state = state;
  write(status, text);
}

function row(charge) {
  const line = part("tr", charge.operation && charge.operation === page.payment.operation ? "own" : "", "");
  const cell = (className, text) => line.appendChild(part("td", className, text));
  cell("", String(charge.charge));
  cell("amount", String(charge.amount));
  if (charge.operation && around()) cell("", "").append(recordLink(charge.operation, `…${charge.operation.slice(-8)}`));
  else cell("", charge.operation ?? "without Semel");
  cell("", told(charge, around()?.left.charge ?? Infinity));
  return line;
}

function showShop() {
  const { shop } = service;
  const { length } = shop.charges;
  const newest = shop.count > length ? `The newest ${length} of ` : "";
  write(element("count"), `${newest}${shop.count} charges.`);
  const focused = ledger.contains(document.activeElement) ? document.activeElement.href : null;
  ledger.replaceChildren(...shop.charges.map(row));
  if (focused) [...ledger.querySelectorAll("a")].find((link) => link.href === focused)?.focus();
  const other = element("other");
  other.hidden = around() === null;
  if (around() !== null) {
    other.href = `http://${isPastSemel() ? around().gateway : around().service}/`;
    other.textContent = isPastSemel() ? "The page with Semel" : "The same page without Semel, to compare";
  }
  if (isPastSemel()) showBare();
}

// Says nothing of Semel where there is none, and has no events.
function showBare() {
  for (const place of document.querySelectorAll("[data-bare]")) write(place, place.dataset.bare);
  element("double").hidden = true;
}

function showDays() {
  for (const box of boxes) {
    if (switching === 0) box.checked = service.shop.switches[box.name] === true;
    box.disabled = around() === null;
    write(box.closest("label").querySelector(".armed"), service.shop.switches[box.name] ? "armed" : "");
  }
}

// Begins anew with a demo that was not met before, and shows what a reload has kept.
function meet() {
  const { left } = around();
  if (page.demo !== left.operationId) {
    if (page.demo !== null) replace(begun());
    states.clear();
    const story = { key: left.key, operation: left.operationId, amount: String(left.amount), body: left.body };
    keep({ demo: left.operationId, left: isPastSemel() ? [] : [story] });
  }
  if (page.payment.answer && answers.children.length === 0) {
    answers.append(part("li", "", ""));
    fill(answers.firstElementChild, page.payment.answer);
  }
}

// Asks the service how it is.
async function refresh() {
  try {
    const before = switching;
    const answer = await ask("/demo/state");
    if (!answer.ok) throw answer;
    const text = await answer.text();
    service.shop = JSON.parse(text);
    service.isCurrent = true;
    seenAt = performance.now();
    if (around() !== null) meet();
    if (text + page.payment.operation !== seen) {
      seen = text + page.payment.operation;
      showShop();
    }
    if (before === 0 && switching === 0) showDays();
    if (around() === null) say("told", "The story on the terminal is not over yet. This page opens at its end.");
    else say("up", `The payment service runs, as process ${service.shop.process}.`);
  } catch (problem) {
    const isDead = problem instanceof Response;
    service.isCurrent = false;
    if ((isDead || isPastSemel()) && service.shop !== null) {
      // Bad days die with their process.
      for (const name of Object.keys(service.shop.switches)) service.shop.switches[name] = false;
      showDays();
    }
    const stopped = isPastSemel()
      ? "The payment service is dead, or the demo was stopped."
      : "Nobody answers. Was the demo stopped?";
    say("down", isDead ? "The payment service is dead. The demo starts it again." : stopped);
  }
  show();
}

async function keepCurrent() {
  if (!document.hidden) {
    await refresh();
    await follow();
  }
  setTimeout(keepCurrent, interval);
}

// ── What is done ───────────────────────────────────────────────────────────────────────────────────────────────────

// What was typed as the body of a payment; `null` if it is no amount.
function typed() {
  const text = amount.value.trim().replace(",", ".");
  const isAmount = /^\d{1,6}(\.\d{1,2})?$/.test(text) && Number(text) > 0;
  element("complaint").textContent = isAmount ? "" : "An amount looks like 50 or 12.50.";
  amount.toggleAttribute("aria-invalid", !isAmount);
  if (!isAmount) amount.focus();
  return isAmount ? JSON.stringify({ amount: Number(text) }) : null;
}

function replace(next) {
  keep({ payment: next });
  waiting = null;
  answers.replaceChildren();
  amount.value = next.amount;
  element("complaint").textContent = "";
  amount.removeAttribute("aria-invalid");
  seen = "";
}

function retry(payment) {
  replace({ ...begun(), key: payment.key, operation: payment.operation, amount: payment.amount });
  submit(typed());
  send.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (send.getAttribute("aria-disabled") === "true") return;
  const text = typed();
  if (text !== null) submit(text);
});

anew.addEventListener("click", () => {
  replace({ ...begun(), amount: amount.value });
  show();
  send.focus();
});

for (const box of boxes) {
  box.addEventListener("change", async () => {
    switching += 1;
    try {
      const headers = { "Content-Type": "application/json" };
      const body = JSON.stringify({ [box.name]: box.checked });
      const answer = await ask("/demo/switches", { method: "PUT", headers, body });
      if (!answer.ok) throw answer;
      element("said").textContent = "";
    } catch {
      const name = box.closest("label").querySelector("b").textContent;
      element("said").textContent = `“${name}” was not changed: the service does not answer.`;
    } finally {
      switching -= 1;
      await refresh();
    }
  });
}

amount.value = page.payment.amount;
keep({});
show();
keepCurrent();
