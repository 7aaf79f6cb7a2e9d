// Payments that are left to be settled: those of the story and of this page whose outcome is open.
import { around, ask, chargeOf, consolePage, element, isPastSemel, keep, page, part, recordLink, write } from "./base.js";
import { task } from "./words.js";

const operations = "/.well-known/semel/operations/";
// The console lists the older ones.
const maxLeft = 20;
// States of operations, as Semel tells their client, and the items of the list.
export const states = new Map();
const items = new Map();

export const isOpen = (state) => ["unknown", "processing", "claimed"].includes(state);

export function leave(payment) {
  if (page.left.some(({ operation }) => operation === payment.operation)) return;
  keep({ left: [...page.left, payment].slice(-maxLeft) });
}

export function drop(gone) {
  keep({ left: page.left.filter(({ operation }) => operation !== gone) });
}

async function stateOf(operation) {
  try {
    const answer = await ask(operations + encodeURIComponent(operation));
    if (answer.status === 404) return "gone";
    return answer.ok ? ((await answer.json()).state ?? null) : null;
  } catch {
    return null;
  }
}

// Asks for the states of the payments whose outcome is open.
export async function look(awaited) {
  if (around() === null || isPastSemel()) return;
  const asked = new Set(page.left.map(({ operation }) => operation));
  if (awaited) asked.add(awaited);
  const due = [...asked].filter((operation) => isOpen(states.get(operation) ?? "unknown"));
  await Promise.all(
    due.map(async (operation) => {
      const state = await stateOf(operation);
      if (state === "gone") drop(operation);
      if (state !== null) states.set(operation, state);
    }),
  );
}

async function copy(source, button) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    button.textContent = "Selected";
  }
  setTimeout(() => write(button, "Copy"), 2000);
}

function leftItem(payment, retry) {
  const item = part("li", "", "");
  const text = part("p", "text", "");
  const body = part("div", "body", "");
  const source = part("code", "", "");
  const button = (className, label, act) => {
    const made = part("button", className, label);
    made.type = "button";
    made.addEventListener("click", act);
    return made;
  };
  const copier = button("second copy", "Copy", () => copy(source, copier));
  copier.ariaLive = "polite";
  body.append(source, copier);
  const links = part("div", "acts", "");
  links.append(
    recordLink(payment.operation, "Settle it in the console"),
    button("second", "Retry it as its client", () => retry(payment)),
  );
  item.append(text, body, links);
  return item;
}

// Shows the list; `retry` sends a payment of it again.
export function showLeft(retry) {
  element("left").hidden = around() === null || isPastSemel();
  if (element("left").hidden) return;
  element("all-unknown").href = consolePage("unknown");
  element("left-none").hidden = page.left.length > 0;
  for (const [operation, item] of items) {
    if (page.left.some((payment) => payment.operation === operation)) continue;
    item.remove();
    items.delete(operation);
  }
  for (const payment of page.left) {
    const { operation } = payment;
    const charge = chargeOf(operation);
    if (charge && !payment.body) {
      // The ledger's page forgets a charge after a dozen others.
      payment.body = charge.body;
      keep({});
    }
    if (!items.has(operation)) {
      items.set(operation, leftItem(payment, retry));
      element("left-list").prepend(items.get(operation));
    }
    const item = items.get(operation);
    const state = states.get(operation) ?? null;
    write(item.querySelector(".text"), task(payment, state, charge));
    write(item.querySelector(".body code"), payment.body ?? "");
    item.querySelector(".body").hidden = !payment.body || state !== "unknown";
    write(item.querySelector("a"), state === "unknown" ? "Settle it in the console" : "Its record in the console");
  }
}
