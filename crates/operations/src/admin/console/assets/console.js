// Script of the console. It shows the page that the fragment of the URL names, and sends the forms of a page to the admin API.
//
// Pages come from the server as HTML, whose templates escape every value. What else is shown here is inserted as text.
//
//   data-go="PAGE"          a form whose fields become the query of a page
//   data-find               a form that searches: its fields are in the body, never in a URL
//   data-action="PATH"      a form that acts: POST /admin/v1/PATH, its fields as members of a JSON object
//     data-done="TEXT"        shown when it is done, with the member that data-tell names
//     data-then="#/PAGE"      shown then; otherwise the page is shown anew
//     data-show               shows the answer below the form
//   data-as, data-optional  how a field becomes a member: "number", "json", "headers"; left out if empty
//   data-bulk="KIND"        a form about all selected commands
//   data-more, data-into    adds the rows of the next page to a table
"use strict";

const root = new URL("./", document.baseURI);
const api = new URL("../admin/v1/", root);
const KEPT = "semel-token";
const REFRESH = 10_000;
const MOST_SELECTED = 1000;
const MOST_ROWS = 2000;
const MOST_EMPTY = 20;

const $ = (id) => document.getElementById(id);
const main = $("main");
const html = trustedTypes_().createPolicy("semel-fragment", { createHTML: (text) => text });

const state = {
  token: sessionStorage.getItem(KEPT),
  session: null,
  shown: null, // the fragment of the URL that is on the page
  turn: 0, // rises with every page, so that a late answer does not replace a newer page
  paused: false,
  isOld: false, // true while the page says that its numbers are old
  sessionNumber: 0, // rises with every sign-in and sign-out, so that a late answer is not shown to somebody else
};

/** Tells other tabs of this browser that somebody signed out. */
const tabs = new BroadcastChannel("semel-console");
tabs.addEventListener("message", ({ data }) => data === "signed-out" && state.session && signOut());

function trustedTypes_() {
  return window.trustedTypes ?? { createPolicy: (_, rules) => rules };
}

// ---------------------------------------------------------------- requests

/** A refusal of the server, with its problem document. */
class Refused extends Error {
  constructor(status, problem) {
    super(plain(problem?.detail ?? problem?.title ?? `The gateway answered ${status}.`));
    this.status = status;
    this.code = problem?.code;
  }
}

/** An answer to somebody who has signed out since. */
class Stale extends Error {}

async function request(url, { method = "GET", members } = {}) {
  const session = state.sessionNumber;
  const headers = { "Semel-Console": "1" };
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  if (members) headers["Content-Type"] = "application/json";
  let answer;
  try {
    const body = members && JSON.stringify(members);
    answer = await fetch(url, { method, headers, body, cache: "no-store", credentials: "same-origin", redirect: "manual" });
  } catch {
    throw new Error(`The gateway does not answer.${members ? " Whether it was done is not known: look at the record before you retry." : ""}`);
  }
  // A proxy with single sign-on leads to its own page when a session is over.
  if (answer.type === "opaqueredirect") throw new Refused(401, { detail: "The session at the proxy is over: load this page again to sign in." });
  const text = await answer.text();
  if (session !== state.sessionNumber) throw new Stale();
  if (answer.ok) return { text, isFragment: answer.headers.get("semel-fragment") === "1" };
  let problem;
  try {
    problem = JSON.parse(text);
  } catch {
    problem = undefined;
  }
  throw new Refused(answer.status, problem);
}

const fragments = new URL("fragments/", root);

/**
 * Asks for a fragment. An address that climbs out of their folder is none, and neither is an answer without the mark of one: only
 * fragments are made by templates, which escape.
 */
async function fragment(name, options) {
  const url = new URL(name, fragments);
  const [path] = name.split("?");
  if (!url.href.startsWith(fragments.href) || url.pathname !== fragments.pathname + path) throw new Refused(404, { detail: "There is no such page." });
  const { text, isFragment } = await request(url, options);
  if (!isFragment) throw new Refused(404, { detail: "There is no such page." });
  return text;
}

/** Does an action of the admin API. */
async function action(path, members) {
  const url = new URL(path, api);
  if (!url.href.startsWith(api.href)) throw new Error("This is no action of the admin API.");
  return JSON.parse((await request(url, { method: "POST", members })).text);
}

/** Asks who the caller is. */
const whoami = async () => JSON.parse((await request(new URL("session", fragments))).text);

// ---------------------------------------------------------------- session

/** Learns who the caller is; asks for a token if one is needed. Returns true once somebody is signed in. */
async function begin() {
  try {
    state.session = await whoami();
  } catch (error) {
    if (error instanceof Stale) return false;
    if (error.status === 401) return refused(error);
    showError(error);
    return false;
  }
  $("pages").hidden = $("session").hidden = $("foot").hidden = false;
  $("who").textContent = `${state.session.who}, ${state.session.role}`;
  $("sign-out").hidden = !state.token;
  $("version").textContent = `Semel ${state.session.version}`;
  return true;
}

/** Asks for a token after a refusal. A kept one is forgotten, and content that was asked for is not left on the page. */
function refused(error, note = "") {
  const had = state.token;
  sessionStorage.removeItem(KEPT);
  for (const shown of main.querySelectorAll("form pre")) shown.remove();
  if (!had && state.session) {
    say(error.message, "problem");
    return false;
  }
  return askForToken(had ? `This token is not known any more: it may have been changed or removed. ${note}`.trim() : "");
}

function askForToken(problem) {
  const dialog = $("sign-in");
  main.hidden = true;
  tell($("sign-in-problem"), problem);
  if (!dialog.open) dialog.showModal();
  $("token").focus();
  return false;
}

$("sign-in").addEventListener("cancel", (event) => event.preventDefault());
$("sign-in-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = $("token").value.trim();
  if (!/^[\x21-\x7e]+$/.test(token)) return tell($("sign-in-problem"), "A token has no spaces and no letters outside of ASCII.");
  const before = state.session?.who;
  const [old, isNew] = [state.token, state.token !== token];
  state.token = token;
  if (isNew) state.sessionNumber += 1;
  try {
    state.session = await whoami();
  } catch (error) {
    state.token = old;
    tell($("sign-in-problem"), error.status === 401 ? "No such token is known here." : error.message);
    return $("token").select();
  }
  if ($("remember").checked) sessionStorage.setItem(KEPT, token);
  else sessionStorage.removeItem(KEPT);
  $("token").value = "";
  $("sign-in").close();
  for (const problem of main.querySelectorAll("form .problem:not([hidden])")) tell(problem, "Not sent: you are signed in again. Press the button once more.");
  await begin();
  // What the same person typed stays as it is. Somebody else gets a page of their own.
  const isKept = state.session?.who === before && state.shown === location.hash && main.querySelector("form");
  if (!isKept) {
    main.replaceChildren();
    show();
  }
  main.hidden = false;
});

$("sign-out").addEventListener("click", () => {
  tabs.postMessage("signed-out");
  signOut();
});

function signOut() {
  sessionStorage.removeItem(KEPT);
  state.token = state.session = state.shown = null;
  state.turn += 1;
  state.sessionNumber += 1;
  main.replaceChildren();
  say("");
  document.title = "Semel console";
  $("pages").hidden = $("session").hidden = $("foot").hidden = true;
  askForToken("");
}

// ---------------------------------------------------------------- pages

const FRAGMENTS = { search: "records" };
/** Every page. Whatever else a link names is not asked for. */
const NAMES = ["overview", "unknown", "search", "records", "outbox", "ledger", "hot-keys", "holds", "audit", "settings"];

/** Returns the page that the URL names: its name, the address of its fragment, and its title. */
function wanted() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "overview", ...rest] = (path || "overview").split("/");
  const address = [FRAGMENTS[name] ?? name, ...rest].join("/");
  return { name, address: query ? `${address}?${query}` : address };
}

/** Shows the page that the URL names. A page that is shown anew keeps its focus and its open parts. */
async function show({ anew = false, quietly = false } = {}) {
  const { name, address } = wanted();
  const turn = ++state.turn;
  const waiting = anew || quietly ? null : setTimeout(() => turn === state.turn && main.replaceChildren($("loading").content.cloneNode(true)), 150);
  let text;
  try {
    if (!NAMES.includes(name)) throw new Refused(404, { detail: "There is no such page." });
    text = await fragment(address);
  } catch (error) {
    clearTimeout(waiting);
    if (turn !== state.turn || error instanceof Stale) return;
    if (error.status === 401) return refused(error);
    if (quietly) {
      state.isOld = true;
      return say(`These numbers are old. ${error.message}`, "problem");
    }
    // A filter that cannot be read is told beside its form.
    if (error.status === 400 && main.querySelector(`form[data-go="${name}"]`)) return say(error.message, "problem");
    return showError(error, name);
  }
  clearTimeout(waiting);
  if (turn !== state.turn) return;
  const focus = anew || quietly ? document.activeElement?.id : null;
  place(main, text);
  state.shown = location.hash;
  if (state.isOld) say("");
  state.isOld = false;
  mark(name);
  if (state.paused) paused(main.querySelector("[data-pause]"));
  if (!quietly) window.scrollTo(0, anew ? window.scrollY : 0);
  if (focus && $(focus)) $(focus).focus({ preventScroll: true });
  else if (!quietly) main.focus({ preventScroll: true });
}

/** Replaces the content of an element by a fragment of the server. */
function place(element, text) {
  const template = document.createElement("template");
  template.innerHTML = html.createHTML(text);
  element.replaceChildren(template.content);
  times(element);
}

function mark(name) {
  const page = name === "records" ? (main.querySelector(".banner.unknown") ? "unknown" : "search") : name;
  for (const link of $("pages").children) {
    if (link.getAttribute("href") === `#/${page}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = main.querySelector("h1")?.textContent.trim();
  document.title = title ? `${title} · Semel console` : "Semel console";
}

function showError(error, name) {
  const title = document.createElement("h1");
  title.textContent = error.status === 404 ? "Not found" : "This page cannot be shown";
  const why = document.createElement("p");
  why.className = "banner problem";
  why.setAttribute("role", "alert");
  why.textContent = error.message;
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "Try again";
  again.addEventListener("click", () => start());
  main.replaceChildren(title, why, again);
  state.shown = null;
  mark(name);
  main.focus({ preventScroll: true });
}

async function start() {
  if (!state.session && !(await begin())) return;
  await show();
}

window.addEventListener("hashchange", () => {
  say("");
  start();
});

// The overview is live, unless it is paused, hidden, or somebody selects a part of it.
function live() {
  const { name, address } = wanted();
  const isLive = (name === "overview" || (name === "unknown" && !address.includes("?") && !main.querySelector("tr:nth-child(101)"))) && state.session;
  if (isLive && !state.paused && !document.hidden && isUntouched()) show({ quietly: true });
  // Many open consoles do not ask at the same moment.
  setTimeout(live, REFRESH * (0.9 + Math.random() * 0.2));
}
setTimeout(live, REFRESH);

function paused(button) {
  if (!button) return;
  button.setAttribute("aria-pressed", String(state.paused));
  button.textContent = state.paused ? "Paused: go on" : "Pause";
}

// ---------------------------------------------------------------- forms

main.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  if (form.dataset.go !== undefined) go(form);
  else if (form.dataset.find !== undefined) once(form, find);
  else if (form.dataset.action !== undefined) once(form, act);
  else if (form.dataset.bulk !== undefined) once(form, bulk);
});

function go(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (value.trim() !== "") query.append(name, value.trim());
  }
  const target = `#/${form.dataset.go}${query.size ? `?${query}` : ""}`;
  if (target === location.hash) show({ anew: true });
  else location.hash = target;
}

/** Runs a form's work, one at a time; a refusal is told in the form, and nothing typed is lost. */
async function once(form, work) {
  const button = form.querySelector('button[type="submit"]');
  if (button.getAttribute("aria-disabled") === "true") return;
  const problem = form.querySelector(".problem");
  tell(problem, "");
  say("");
  button.setAttribute("aria-disabled", "true");
  try {
    await work(form);
  } catch (error) {
    if (error instanceof Stale) return;
    if (error.status === 401) {
      refused(error, "Sign in again: what you typed is still there.");
      return tell(problem, "Nothing was done: sign in again, and send this once more.");
    }
    const own = wanted().address.split("/")[1];
    tell(problem, own ? error.message.replace(`${own}: `, "") : error.message);
    if (error.code === "ACTION_REFUSED") offerReload(problem);
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

/** After a conflict: the page tells what was before it. */
function offerReload(problem) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Show what it is now";
  button.addEventListener("click", () => show({ anew: true }));
  problem.append(" ", button);
}

/** Returns the members that a form's fields make. */
function members(form) {
  const given = {};
  for (const field of form.elements) {
    if (!field.name || (field.dataset.optional !== undefined && field.value === "")) continue;
    const isName = form.dataset.find !== undefined && !["key", "reference"].includes(field.name);
    given[field.name] = READ[field.dataset.as ?? "text"](isName ? field.value.trim() : field.value);
  }
  return given;
}

const READ = {
  text: (text) => text,
  number: (text) => {
    if (!/^[0-9]{1,9}$/.test(text.trim())) throw new Error(`“${text}” is not a number.`);
    return Number(text);
  },
  json: (text) => {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Error(`This is not JSON: ${error.message}`);
    }
  },
  headers: (text) => {
    const fields = {};
    for (const line of text.split("\n").filter((line) => line.trim())) {
      const [name, ...value] = line.split(":");
      if (!value.length) throw new Error(`“${line}” is not a header field: it has no colon.`);
      (fields[name.trim()] ??= []).push(value.join(":").trim());
    }
    return fields;
  },
};

async function act(form) {
  const answer = await action(form.dataset.action, members(form));
  if (form.dataset.show !== undefined) return reveal(form, answer);
  if (form.dataset.look !== undefined) {
    const isSettled = answer.outcome === "resolved";
    say(isSettled ? `Evidence settled it: ${answer.verdict}.` : `Still unknown: ${answer.why ?? LOOKED[answer.outcome]}.`, isSettled ? "done" : "warn");
    return show({ anew: true });
  }
  const warning = answer.warning ?? (answer.bodyStored === false ? "The operation does not store bodies: retries get the answer without it." : "");
  const next = form.dataset.action.endsWith("/resolve") ? ["#/unknown", "All unknown outcomes"] : undefined;
  const tellDone = () => say([form.dataset.done, sentence(warning)].filter(Boolean).join(" "), warning ? "warn" : "done", next);
  if (form.dataset.then) {
    // The listener above clears what was said, and comes first.
    addEventListener("hashchange", tellDone, { once: true });
    location.hash = form.dataset.then;
  } else {
    await show({ anew: true });
    tellDone();
  }
}

/** Shows content that was asked for, as text. */
function reveal(form, answer) {
  const content = answer.response ?? answer;
  const lines = [];
  if (content.method) lines.push(`${content.method} ${content.target}`);
  if (content.status !== undefined) lines.push(String(content.status));
  for (const [name, values] of Object.entries(content.headers ?? {})) {
    for (const value of values) lines.push(`${name}: ${value}`);
  }
  if (lines.length) lines.push("");
  const encoded = content.bodyBase64 ?? content.payloadBase64;
  if (encoded !== undefined) lines.push("(no text; in base64:)", encoded);
  else lines.push(content.body ?? content.payload ?? "(without a body)");
  let shown = form.querySelector("pre");
  if (!shown) form.append((shown = document.createElement("pre")));
  shown.tabIndex = 0;
  shown.textContent = lines.join("\n");
  shown.focus();
}

async function find(form) {
  const text = await fragment("find", { method: "POST", members: members(form) });
  const found = main.querySelector("[data-found]");
  place(found, text);
  const only = found.querySelector("[data-open]");
  if (only) location.hash = only.dataset.open;
  else found.scrollIntoView({ block: "nearest" });
}

// ---------------------------------------------------------------- many at once

const chosen = () => [...main.querySelectorAll("[data-select]:checked")].map((box) => box.dataset.select);

main.addEventListener("input", ({ target }) => {
  if (target.name !== "status") return;
  const after = target.form.querySelector("[data-of-status]");
  if (after) after.textContent = Number(target.value) >= 400 ? after.dataset.failed : after.dataset.executed;
});

main.addEventListener("change", (event) => {
  const { target } = event;
  if (target.dataset.selectAll !== undefined) {
    for (const box of main.querySelectorAll("[data-select]")) box.checked = target.checked;
  }
  const count = main.querySelector("[data-selected]");
  if (count) count.textContent = String(chosen().length);
});

async function bulk(form) {
  const ids = chosen();
  if (!ids.length) throw new Error("No command is selected.");
  if (ids.length > MOST_SELECTED) throw new Error(`${ids.length} commands are selected, and at most 1,000 can be changed at once.`);
  const { reason } = members(form);
  const results = main.querySelector("[data-results]");
  if (form.dataset.bulk === "look") return looked(await action("records/reconcile", { reason, operationIds: ids }), results);
  const verdicts = ids.map((id) => ({ operationId: id, verdict: "not-executed", attempt: attemptOf(id) }));
  const button = form.querySelector("button");
  const checked = form.dataset.checked === ids.join();
  const answer = await action("records/settle", { reason, verdicts, dryRun: !checked });
  settled(answer, results, checked);
  if (checked) {
    delete form.dataset.checked;
    button.textContent = "Check, then settle";
    await refresh(results);
  } else {
    form.dataset.checked = ids.join();
    button.textContent = `Settle ${answer.settled ?? ids.length} as not executed`;
  }
}

const attemptOf = (id) => Number(main.querySelector(`[data-select="${id}"]`).dataset.attempt);

/** Outcomes of a look-up, in words. */
const LOOKED = {
  resolved: "settled by evidence",
  again: "no evidence yet",
  given_up: "no evidence, and no more looks",
  overtaken: "another process is looking it up",
  not_unknown: "not unknown any more",
  absent: "not looked up",
  failed: "the look-up failed",
  not_tried: "not looked up",
};

async function looked(answer, results) {
  const told = (result) => [LOOKED[result.outcome] ?? result.outcome, result.verdict ?? result.state, result.why].filter(Boolean).join(": ");
  list(results, "Looked up:", answer.results.map((result) => [result.operationId, told(result)]));
  await refresh(results);
}

function settled(answer, results, isDone) {
  const failed = answer.results.filter((result) => result.why);
  const counts = isDone ? `Settled as not executed: ${answer.settled}.` : `Nothing is changed yet. Can be settled: ${answer.settled}.`;
  list(results, `${counts} Refused: ${failed.length}.`, failed.map((result) => [result.operationId, result.why.replace(`${result.operationId}: `, "")]));
}

/** Shows the page anew and keeps the results of what was done. */
async function refresh(results) {
  const kept = [...results.childNodes];
  await show({ anew: true });
  let place = main.querySelector("[data-results]");
  if (!place) {
    place = document.createElement("section");
    place.className = "results";
    main.append(place);
  }
  place.replaceChildren(...kept);
}

function list(element, title, rows) {
  const heading = document.createElement("p");
  heading.textContent = title;
  const items = document.createElement("ul");
  for (const [id, text] of rows) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `#/records/${encodeURIComponent(id)}`;
    link.textContent = id;
    link.className = "id";
    item.append(link, ` ${text}`);
    items.append(item);
  }
  element.replaceChildren(heading, items);
}

// ---------------------------------------------------------------- buttons and keys

main.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.pause !== undefined) {
    state.paused = !state.paused;
    paused(button);
    if (!state.paused) show({ quietly: true });
  } else if (button.dataset.copy !== undefined) {
    await copy(button);
  } else if (button.dataset.more !== undefined) {
    await more(button);
  }
});

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    // Without TLS, a browser gives pages no clipboard: the text is selected instead.
    getSelection().selectAllChildren(button.previousElementSibling);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

async function more(button) {
  if (button.disabled) return;
  button.disabled = true;
  const name = wanted().address.split("?")[0];
  try {
    const holder = document.createElement("div");
    place(holder, await fragment(`${name}?${button.dataset.more}`));
    // A page may find none of the records that it reads: the next ones are read, too, for a while.
    for (let page = 0; page < MOST_EMPTY; page += 1) {
      const next = holder.querySelector("[data-more]");
      if (!next || holder.querySelector("tbody > tr")) break;
      place(holder, await fragment(`${name}?${next.dataset.more}`));
    }
    const rows = holder.querySelectorAll(`#${button.dataset.into} tbody > tr`);
    const table = main.querySelector(`#${button.dataset.into} tbody`);
    const next = holder.querySelector("[data-more]");
    next?.closest(".more").remove();
    if (table) table.append(...rows);
    else if (rows.length) {
      main.querySelector(".empty")?.remove();
      button.closest(".more").before(holder);
    }
    if (next && (table?.rows.length ?? 0) < MOST_ROWS) button.dataset.more = next.dataset.more;
    else if (next) button.closest(".more").textContent = `${MOST_ROWS.toLocaleString("en")} rows are shown, and there are more: narrow the filter.`;
    else button.closest(".more").remove();
    say(`${rows.length} more rows.`);
  } catch (error) {
    if (error.status === 401) refused(error);
    else if (!(error instanceof Stale)) say(error.message, "problem");
  } finally {
    button.disabled = false;
  }
}

$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !state.session) return;
  const pages = { u: "#/unknown", o: "#/overview" };
  if (pages[event.key]) location.hash = pages[event.key];
  else if (event.key === "r") show({ anew: true });
  else if (event.key === "/") {
    event.preventDefault();
    if (wanted().name === "search") main.querySelector("[data-search]")?.focus();
    else {
      location.hash = "#/search";
      addEventListener("hashchange", () => setTimeout(() => main.querySelector("[data-search]")?.focus(), 300), { once: true });
    }
  }
});

// ---------------------------------------------------------------- words and times

/** Tells at the top of the page, as done, or as a "warn" or a "problem". */
function say(text, kind = "done", link) {
  const status = $("status");
  status.textContent = sentence(text);
  status.className = kind;
  if (!link) return;
  const anchor = document.createElement("a");
  [anchor.href, anchor.textContent] = link;
  status.append(" ", anchor);
}

/** Returns a sentence of the server without the marks that a terminal's reader knows. */
const plain = (text) => text.replaceAll("`", "").replaceAll('?."', '?"').replace(/\?\.$/, "?");
/** Returns a text with a capital, unless it begins with an id. */
const sentence = (text) => (/^[0-9a-f]{8}-/.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1));

function tell(element, text) {
  if (!element) return;
  element.textContent = sentence(text);
  element.hidden = !text;
}

const UNITS = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** Returns a time span as people say it, in its two largest units. */
function span(seconds) {
  const first = UNITS.findIndex(([size]) => seconds >= size);
  if (first < 0) return "0 s";
  const parts = [];
  for (const [size, unit] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count || !parts.length) parts.push(`${count} ${unit}`);
  }
  return parts.join(" ");
}

/** Shows the page anew when a quarantine ends while it is open, unless somebody has begun to use it. */
function ended(element) {
  element.dataset.ended = "";
  if (document.contains(element) && isUntouched()) setTimeout(() => isUntouched() && show({ quietly: true }), 500);
}

/** Returns true if nothing on the page is typed, chosen or opened. */
function isUntouched() {
  const typed = [...main.querySelectorAll("input:not([type=hidden]), textarea")].some((field) => (field.type === "checkbox" ? field.checked : field.value !== field.defaultValue));
  const isUsed = main.querySelector("details[open], form pre, [data-results] > *") || main.contains(document.activeElement?.closest("input, textarea, select") ?? null);
  return !typed && !isUsed && getSelection().isCollapsed && !$("sign-in").open;
}

/** Writes times as a distance from now; the exact time stays in the tooltip and for machines. */
function times(within) {
  const now = Date.now();
  for (const element of within.querySelectorAll("time[datetime]")) {
    const at = Date.parse(element.dateTime);
    if (Number.isNaN(at)) continue;
    if (!element.title) element.title = element.dateTime;
    const seconds = (at - now) / 1000;
    const write = (text) => element.textContent === text || (element.textContent = text);
    if (element.dataset.age !== undefined) {
      write(span(Math.max(0, -seconds)));
      continue;
    }
    const isNear = Math.abs(seconds) < 7 * 86_400;
    const { countdown } = element.dataset;
    if (element.dataset.exact !== undefined) write(element.dateTime.replace("T", " ").replace(/(\.\d+)?Z$/, " UTC"));
    else if (countdown !== undefined) {
      write(seconds > 0 ? `${countdown} in ${span(seconds)}`.trim() : countdown ? `${countdown} now` : "due now");
      if (seconds <= 0) element.parentElement.querySelector(".while")?.remove();
      if (seconds <= 0 && countdown === "over" && !element.dataset.ended) ended(element);
    }
    else if (isNear && seconds <= 0) write(`${span(-seconds)} ago`);
    else if (isNear) write(`in ${span(seconds)}`);
    else write(element.dateTime.replace("T", " ").replace(/\.\d+/, ""));
  }
}

setInterval(() => times(main), 1000);
start();
