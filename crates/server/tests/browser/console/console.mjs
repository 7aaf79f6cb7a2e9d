// Steps that the scripts share: people with tokens, pages of the console, and what must hold on each of them.
import assert from "node:assert/strict";
import { audit, axeSource, complaintsOf, launch } from "../../../../../proof/testkit/browser/browser.mjs";

/** What the test knows: addresses, tokens, the folder for pictures. */
export const stage = JSON.parse(process.argv[2]);

/** Every page by its address, with its heading. */
export const PAGES = {
  overview: "Overview",
  unknown: "Unknown outcomes",
  search: "Search",
  outbox: "Outbox",
  ledger: "Ledger findings",
  "hot-keys": "Hot keys",
  holds: "Holds",
  audit: "Audit log",
  settings: "Settings in force",
};

/** Headings of a page that cannot be shown. */
export const REFUSED = /^(Not found|This page cannot be shown)$/;

/** Height of the tallest picture. */
const TALLEST = 4000;

/** Runs the steps of a script with a browser, and fails with its exit code. */
export async function script(steps) {
  const browser = await launch();
  try {
    await steps(browser);
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
    const pages = browser.contexts().flatMap((context) => context.pages());
    await Promise.all(pages.map((page, index) => page.screenshot({ path: `${stage.pictures}/failed-${index}.png` })));
  } finally {
    await browser.close();
    // Whatever a script has started ends with it.
    process.exit();
  }
}

/** A person at a browser of their own. */
export class Person {
  /** Signs nobody in if there is no token. */
  static async come(
    browser,
    { token, admin = stage.admin, dark = false, width = 1440, height = 900, forAxe = false } = {},
  ) {
    const context = await browser.newContext({
      viewport: { width, height },
      colorScheme: dark ? "dark" : "light",
      // A page's policy keeps axe out. What is found with axe in is about the same page.
      bypassCSP: forAxe,
      reducedMotion: "reduce",
    });
    if (token) await context.addInitScript((token) => sessionStorage.setItem("semel-token", token), token);
    if (forAxe) await context.addInitScript({ content: axeSource() });
    const person = new Person();
    person.context = context;
    person.page = await context.newPage();
    person.admin = admin;
    person.base = `${admin}/console/`;
    person.complaints = complaintsOf(person.page);
    await watch(person);
    return person;
  }

  /** Opens a page of the console by its address, and waits until it is shown. */
  async open(hash) {
    await this.page.goto(`${this.base}#/${hash}`);
    await this.shown();
  }

  /** Goes to another page of the console without waiting for it. */
  turn(hash) {
    return this.page.evaluate((hash) => (location.hash = hash), `#/${hash}`);
  }

  /** Waits until the page of the address is shown: its own variables say so. */
  shown() {
    return this.page.waitForFunction(() => state.shown === location.hash);
  }

  /** Waits until the page of the address is shown, or is refused. */
  shownOrRefused() {
    return this.page.waitForFunction(
      (refused) =>
        state.shown === location.hash || new RegExp(refused).test(document.querySelector("main h1")?.textContent),
      REFUSED.source,
    );
  }

  /** Waits until the page says this, at an element if one is named. It is looked for at each frame, and not ever more slowly. */
  sees(text, selector = "body") {
    const isThere = ([text, selector]) =>
      [...document.querySelectorAll(selector)].some(
        (element) => element.checkVisibility() && element.innerText.includes(text),
      );
    return this.page.waitForFunction(isThere, [text, selector]);
  }

  heading(text) {
    return this.sees(text, "h1");
  }

  /** Keeps a picture of the page, or of the beginning of a very long one. */
  async picture(name) {
    const height = await this.page.evaluate(() => document.documentElement.scrollHeight);
    const { width } = this.page.viewportSize();
    const clip = height > TALLEST ? { x: 0, y: 0, width, height: TALLEST } : undefined;
    await this.page.screenshot({ path: `${stage.pictures}/${name}.png`, fullPage: true, clip });
  }

  /** Fills in a form by the labels of its fields. */
  async fill(form, fields) {
    for (const [label, value] of Object.entries(fields)) await form.getByLabel(label, { exact: false }).fill(value);
  }

  /** Opens one of the actions on a page, and returns its form. */
  async action(name) {
    const details = this.page
      .locator("details.action", { has: this.page.locator("summary", { hasText: name }) })
      .first();
    if (!(await details.evaluate((element) => element.open))) await details.locator("summary").click();
    return details.locator("form");
  }

  /** Checks that the page is no wider than the window. */
  async fits(what) {
    const [wide, most] = await this.page.evaluate(() => {
      const width = document.documentElement.clientWidth;
      const outside = [...document.body.querySelectorAll("*")].filter((element) => {
        const box = element.getBoundingClientRect();
        return box.width > 0 && box.right > width + 1 && !element.closest(".scroll, pre");
      });
      const name = (element) =>
        `${element.tagName.toLowerCase()}.${element.className} ${element.textContent.slice(0, 40)}`;
      return [document.documentElement.scrollWidth > width, outside.slice(0, 3).map(name)];
    });
    assert.deepEqual([wide, most], [false, []], `${what} is wider than the window`);
  }

  /** Takes away complaints that are expected, and returns them. A browser reports every answer from 400 on. */
  expected() {
    return this.complaints.splice(0);
  }

  /** Checks that the page had nothing to complain about, and that no foreign text ran. A refusal may be one of the complaints. */
  async fine(what, { isRefused = false } = {}) {
    const complaints = this.complaints.filter((text) => !isRefused || !text.startsWith("Failed to load resource"));
    assert.deepEqual(complaints, [], what);
    assert.deepEqual(await this.page.evaluate(() => globalThis.violations ?? []), [], `${what}: policy`);
    assert.deepEqual(this.dialogs, [], what);
  }

  async leave() {
    await this.context.close();
  }
}

/** Listens for what a foreign script would do: dialogs, and what the policy of the page stops. */
async function watch(person) {
  person.dialogs = [];
  person.foreign = [];
  person.page.on("dialog", (dialog) => {
    person.dialogs.push(dialog.message());
    return dialog.dismiss();
  });
  person.page.on("request", (request) => {
    if (!request.url().startsWith(person.admin) && !request.url().startsWith("data:"))
      person.foreign.push(request.url());
  });
  await person.context.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => {
      globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
    });
  });
}

/** Findings of axe that stop somebody from using the page. */
const SERIOUS = ["serious", "critical"];

/** Every finding of axe so far, by page. */
export const findings = {};

/** Checks the page with axe. */
export async function accessible(person, name) {
  const found = await audit(person.page);
  findings[name] = found;
  const serious = found.filter((finding) => SERIOUS.includes(finding.impact));
  assert.deepEqual(serious, [], `${name}: axe`);
}

let keys = 0;

/** Returns a value as JSON that may be in a header. */
const ascii = (value) =>
  JSON.stringify(value).replaceAll(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Sends a command through the gateway, under a key of its own unless one is given. */
export async function command(
  what,
  {
    key = `a-key-of-a-script-${process.pid}-${(keys += 1)}`,
    path = "/payments",
    tenant = "acme",
    caller = "alice",
    body = {},
  } = {},
) {
  const answer = await fetch(`${stage.gateway}${path}`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      "Idempotency-Key": key,
      "X-Tenant": tenant,
      "X-Caller": caller,
      "X-Do": ascii(what),
    },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  return {
    status: answer.status,
    headers: answer.headers,
    text,
    key,
    id: answer.headers.get("idempotency-operation-id") ?? namedIn(text),
  };
}

/** Returns the operation that a problem document names. */
function namedIn(text) {
  try {
    return JSON.parse(text).operationId;
  } catch {
    return undefined;
  }
}

/** Asks the admin API, as one of the people. */
export async function admin(path, { token = stage.tokens.otto, method = "GET", members } = {}) {
  const headers = { Authorization: `Bearer ${token}`, ...(members && { "Content-Type": "application/json" }) };
  const answer = await fetch(`${stage.admin}${path}`, { method, headers, body: members && JSON.stringify(members) });
  return { status: answer.status, json: await answer.json().catch(() => undefined) };
}

/** Returns true if a record is in this state. */
export const stateOf = async (id) => (await admin(`/admin/v1/records/${id}`)).json.state;

/** Waits until something holds that is not on a page. */
export async function until(holds) {
  for (let tries = 0; tries < 400; tries += 1) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`it does not come to hold: ${holds}`);
}

/** Waits until the quarantine of commands is over, so that they may be settled as not executed. */
export const free = (ids) =>
  until(async () => {
    const verdicts = ids.map((operationId) => ({ operationId, verdict: "not-executed" }));
    const { json } = await admin("/admin/v1/records/settle", {
      method: "POST",
      members: { reason: "to see", dryRun: true, verdicts },
    });
    return json.settled === ids.length;
  });
