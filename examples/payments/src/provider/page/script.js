// Sends a switch when it is flipped, and keeps the page as the provider has it.
"use strict";

const form = document.querySelector("form");
const said = document.querySelector("#said");
let sending = 0;
// How often a switch was sent: what was read before that is out of date.
let sent = 0;

function say(text, isWrong) {
  said.textContent = text;
  said.classList.toggle("wrong", isWrong);
}

// What a field asks for: off, on, or on for the next few.
function wanted(field) {
  if (!field.querySelector("[type=checkbox]").checked) return false;
  const next = field.querySelector("[name=next]").valueAsNumber || true;
  const ms = field.querySelector("[name=ms]");
  return ms ? { ms: ms.valueAsNumber || 0, next } : next;
}

async function send(field) {
  const name = field.dataset.switch;
  sending += 1;
  sent += 1;
  try {
    const body = JSON.stringify({ [name]: wanted(field) });
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch("/switches", { method: "PUT", headers, body });
    const now = await answer.json();
    if (answer.ok) say(`${name} is now ${JSON.stringify(now[name])}`, false);
    else say(now.error, true);
  } catch {
    say("The provider does not answer.", true);
  } finally {
    sending -= 1;
  }
}

// The ledger as it is now; and the switches, unless somebody is about to change them.
async function refresh() {
  const before = sent;
  const answer = await fetch("/");
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  document.querySelector("#ledger").replaceWith(page.querySelector("#ledger"));
  if (sent !== before || document.activeElement?.type === "number") return;
  for (const input of page.querySelectorAll("fieldset input")) {
    const name = input.closest("fieldset").dataset.switch;
    const mine = form.querySelector(`[data-switch=${name}] [name=${input.name}]`);
    mine.checked = input.checked;
    mine.value = input.value;
  }
}

async function keepCurrent() {
  if (sending === 0) await refresh().catch(() => say("The provider does not answer.", true));
  setTimeout(keepCurrent, 1000);
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", (event) => {
  const field = event.target.closest("fieldset");
  // A bound without its switch says nothing yet.
  if (event.target.type === "checkbox" || field.querySelector("[type=checkbox]").checked) send(field);
});
setTimeout(keepCurrent, 1000);
