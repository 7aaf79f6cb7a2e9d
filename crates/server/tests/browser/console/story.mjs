// An unknown outcome from its beginning to its end, and the same by the keyboard alone: node story.mjs FACTS
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Person, admin, command, script, stage, stateOf, until } from "./console.mjs";

const { otto } = stage.tokens;
const REASON = "ticket 4711: charge ch_91 is in the provider's list";
const BODY = '{"payment":91,"amount":12.50}';

await script(async (browser) => {
  await story(browser);
  await byKeyboard(browser);
});

async function story(browser) {
  const person = await Person.come(browser, { token: otto });
  const { page } = person;
  await page.clock.install();
  await person.open("overview");
  await person.sees("none to settle");

  // The service is killed in the middle of a command.
  const body = { reference: "invoice-91", amount: "12.50" };
  const asked = command({ hang: true }, { key: "the-key-of-invoice-91", body });
  await until(async () => (await admin("/admin/v1/records?state=processing")).json.records.length === 1);
  process.kill(stage.service.id, "SIGKILL");
  const lost = await asked;
  assert.equal(lost.status, 502, lost.text);

  // The overview shows it by itself.
  await page.clock.runFor(12_000);
  await person.sees("1", ".tile-bad dd");
  await person.sees("oldest:", ".tile-bad");
  await person.picture("overview-one-unknown");

  // It is paused, and goes on.
  await page.getByRole("button", { name: "Pause" }).click();
  let asks = 0;
  await page.route("**/fragments/overview", (route) => ((asks += 1), route.continue()));
  await page.clock.runFor(40_000);
  assert.equal(asks, 0, "a paused page asks for nothing");
  await page.getByRole("button", { name: "Paused: go on" }).click();
  await until(async () => asks > 0);
  await page.unroute("**/fragments/overview");

  // The list of unknown outcomes is loaded anew by its key.
  await page.keyboard.press("u");
  await person.shown();
  await person.sees("payments.create", "#rows");
  const second = await command({ status: 200, outcome: "unknown" }, { path: "/refunds" });
  assert.ok(second.status >= 500, "the service is still dead");
  await restart();
  const other = await command({ status: 200, outcome: "unknown" }, { path: "/refunds" });
  assert.equal(await page.locator("#rows tbody tr").count(), 1);
  await page.keyboard.press("r");
  await person.sees("refunds.create", "#rows");
  const ids = await page.locator("#rows tbody tr .id").allTextContents();
  assert.deepEqual(ids, [lost.id, other.id], "the oldest first");
  await person.picture("unknown-two");

  // What will happen is told before it happens.
  await page.getByRole("link", { name: "payments.create" }).click();
  await person.sees("Nobody knows whether it had its effect.");
  await person.sees("in ", ".banner [data-countdown]");
  await person.picture("record-in-quarantine");
  const refusals = page.locator(".refusals");
  await refusals.locator("summary").click();
  assert.match(await refusals.innerText(), /Settle as not executed\s+a call of it could still be in flight until/);
  const form = await person.action("It was executed…");
  await person.sees("every retry gets the response below", ".consequence");
  await person.fill(form, {
    Status: "201",
    "Header fields": "Content-Type: application/json\nX-Charge: ch_91",
    Body: BODY,
    Reason: REASON,
  });
  await person.picture("record-before-settling");
  await form.getByRole("button", { name: "Settle as executed" }).click();
  await person.sees("It is settled as executed.", "#status");
  await person.sees("succeeded", ".state");
  await person.picture("record-settled");
  assert.equal(await stateOf(lost.id), "succeeded");

  // The retry gets that answer.
  const retry = await command({}, { key: "the-key-of-invoice-91", body });
  assert.deepEqual([retry.status, retry.text, retry.headers.get("x-charge")], [201, BODY, "ch_91"]);
  assert.equal(retry.headers.get("idempotency-replayed"), "true");

  // The timeline and the audit log say who and why.
  await person.sees(REASON, ".timeline");
  await person.turn("audit");
  await person.shown();
  const row = page.locator("#rows tbody tr", { hasText: lost.id });
  assert.match(await row.innerText(), /token:otto\s+resolve.*ticket 4711: charge ch_91 is in the provider's list/s);
  await person.picture("audit-after-settling");

  // The stored response is hidden until it is asked for, which is in the audit log, too.
  await row.getByRole("link").click();
  await person.shown();
  assert.ok(!(await page.content()).includes("12.50"), "no body is on the page");
  const shown = await person.action("Show the stored response…");
  await shown.getByLabel("Reason").fill("the customer asks");
  await shown.getByRole("button", { name: "Show" }).click();
  await person.sees(BODY, "pre");
  await person.picture("record-response-shown");
  const { notes } = (await admin("/admin/v1/audit")).json;
  assert.match(`${notes[0].who} ${notes[0].why}`, /token:otto the customer asks/);

  // It is found by each of its names.
  for (const [title, fields] of [
    ["By operation id", { "Operation id": lost.id }],
    ["By key", { Operation: "payments.create", Tenant: "acme", Caller: "alice", Key: "the-key-of-invoice-91" }],
    ["By business reference", { Operation: "payments.create", Tenant: "acme", Reference: "invoice-91" }],
  ]) {
    await person.turn("search");
    await person.shown();
    const search = page.locator("form.card", { has: page.getByRole("heading", { name: title }) });
    await person.fill(search, fields);
    await search.getByRole("button", { name: "Find" }).click();
    await page.waitForFunction((id) => location.hash === `#/records/${id}` && state.shown === location.hash, lost.id);
  }
  await person.fine("the story");
  assert.deepEqual(person.foreign, []);
  await person.leave();
}

/** Starts the service anew at its port. */
async function restart() {
  const port = stage.service.address.split(":")[1];
  const service = spawn(process.execPath, [new URL("service.mjs", import.meta.url).pathname, port], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  process.on("exit", () => service.kill("SIGKILL"));
  await once(service.stdout, "data");
}

/** Signs in, goes to the list, opens a record and settles it, without a mouse. The focus is seen at each step. */
async function byKeyboard(browser) {
  const left = await command(
    { status: 200, outcome: "unknown" },
    { key: "the-key-of-the-keyboard", body: { reference: "invoice-92" } },
  );
  const person = await Person.come(browser, {});
  const { page } = person;
  const { keyboard } = page;
  const focus = () =>
    page.evaluate(() => {
      const element = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(element);
      const isSeen = element.matches(":focus-visible") && outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
      const name = element.getAttribute("aria-label") ?? element.labels?.[0]?.innerText ?? element.innerText ?? "";
      return { name: name.trim().split("\n")[0], isSeen, isBody: element === document.body, tag: element.tagName };
    });
  const tabTo = async (name, key = "Tab") => {
    for (let steps = 0; steps < 60; steps += 1) {
      const at = await focus();
      assert.ok(!at.isBody || steps === 0, `the focus is lost on the way to ${name}`);
      if (at.tag !== "MAIN" && !at.isBody) assert.ok(at.isSeen, `the focus on ${at.name} is not seen`);
      if (at.name.startsWith(name)) return;
      await keyboard.press(key);
    }
    assert.fail(`${name} is not reached`);
  };

  await page.goto(person.base);
  await person.sees("Sign in", "dialog");
  await keyboard.press("Escape");
  await person.sees("Sign in", "dialog");
  assert.equal((await focus()).name, "Token", "the field has the focus");
  await keyboard.type("a-wrong-token-0123456789abcdef0123456789");
  await keyboard.press("Enter");
  await person.sees("No such token is known here.", "#sign-in-problem");
  await person.picture("sign-in-refused");
  assert.deepEqual(person.expected().length, 2, "the question without a token, and the one with a wrong one");
  assert.equal((await focus()).name, "Token");
  await keyboard.type(otto);
  await keyboard.press("Enter");
  await person.shown();
  await person.heading("Overview");
  assert.deepEqual(
    await page.evaluate(() => [sessionStorage.length, localStorage.length, document.cookie]),
    [0, 0, ""],
    "the token is kept nowhere",
  );

  await keyboard.press("u");
  await person.shown();
  await tabTo("payments.create");
  await person.picture("keyboard-focus");
  await keyboard.press("Enter");
  await person.shown();
  assert.equal(new URL(page.url()).hash, `#/records/${left.id}`);
  await tabTo("It was executed…");
  await keyboard.press("Enter");
  await tabTo("Status for retries");
  await tabTo("Body for retries");
  await keyboard.type('{"payment":92}');
  // Keys of the console do nothing while somebody types.
  await tabTo("Reason");
  await keyboard.type("/ or u or r: ticket 4712");
  assert.equal(new URL(page.url()).hash, `#/records/${left.id}`);
  await tabTo("Settle as executed");
  await keyboard.press("Enter");
  await person.sees("It is settled as executed.", "#status");
  await person.sees("succeeded", ".state");
  const after = await focus();
  assert.ok(!after.isBody, "the focus is not lost");
  const retry = await command({}, { key: "the-key-of-the-keyboard", body: { reference: "invoice-92" } });
  assert.deepEqual([retry.status, retry.text], [201, '{"payment":92}']);

  // The search has its key, and the page its way past the links.
  await keyboard.press("/");
  await page.waitForFunction(() => document.activeElement?.id === "find-id");
  await keyboard.type(left.id);
  await keyboard.press("Enter");
  await page.waitForFunction((id) => location.hash === `#/records/${id}` && state.shown === location.hash, left.id);
  await page.reload();
  await person.sees("Sign in", "dialog");
  person.expected();
  await keyboard.type(otto);
  await tabTo("Keep it until this tab is closed");
  await keyboard.press("Space");
  await tabTo("Sign in");
  await keyboard.press("Enter");
  await person.shown();
  assert.equal(new URL(page.url()).hash, `#/records/${left.id}`, "a deep link is shown after signing in");
  await page.reload();
  await person.shown();
  // A page that is shown has the focus; the links are before it.
  assert.equal((await focus()).tag, "MAIN");
  await tabTo("Skip to the page", "Shift+Tab");
  await keyboard.press("Enter");
  assert.equal((await focus()).tag, "MAIN");
  await person.fine("the keyboard");
  await person.leave();
}
