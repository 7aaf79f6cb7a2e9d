// Several people at once, a viewer, an expired token, wrong input and many commands at once: node people.mjs FACTS
import assert from "node:assert/strict";
import { request as ask, createServer } from "node:http";
import { Person, admin, command, free, script, stage, stateOf } from "./console.mjs";

const { otto, olga, vera } = stage.tokens;
const { anew } = stage.more;
const UNKNOWN = { status: 200, outcome: "unknown" };
const NOBODY = "01a1df32-caa3-786d-a196-45c465f24292";

await script(async (browser) => {
  await twoOperators(browser);
  await aViewer(browser);
  await wrongInput(browser);
  await behindAProxy(browser);
  await manyAtOnce(browser);
});

/** Two operators settle one command: the second is told, and keeps what was typed. */
async function twoOperators(browser) {
  const { id } = await command(UNKNOWN);
  const [first, second] = [await Person.come(browser, { token: otto }), await Person.come(browser, { token: olga })];
  for (const person of [first, second]) await person.open(`records/${id}`);
  const typed = { Status: "201", "Header fields": "X-By: olga", Body: "olga's body", Reason: "olga found it" };
  const theirs = await second.action("It was executed…");
  await second.fill(theirs, typed);
  const ours = await first.action("It was executed…");
  await first.fill(ours, { Body: '{"by":"otto"}', Reason: "otto found it" });
  await ours.getByRole("button", { name: "Settle as executed" }).click();
  await first.sees("It is settled as executed.", "#status");

  await theirs.getByRole("button", { name: "Settle as executed" }).click();
  await second.sees("succeeded", ".problem");
  await second.picture("second-operator-told");
  for (const [label, value] of Object.entries(typed))
    assert.equal(await theirs.getByLabel(label).inputValue(), value, label);
  assert.equal(new URL(second.page.url()).hash, `#/records/${id}`, "the page is not left");
  const { notes } = (await admin("/admin/v1/audit")).json;
  assert.deepEqual(
    notes.map((note) => [note.who, note.why]),
    [["token:otto", "otto found it"]],
  );

  // The other way to lose a race: the command was freed and run again, and is unknown anew.
  const again = await command(UNKNOWN, { key: "the-key-of-two-attempts" });
  await second.open(`records/${again.id}`);
  const late = await second.action("It was executed…");
  await second.fill(late, { Body: "{}", Reason: "about the first attempt" });
  await free([again.id]);
  const freed = await admin(`/admin/v1/records/${again.id}/resolve`, {
    method: "POST",
    members: { reason: "not there", verdict: "not-executed", attempt: 1 },
  });
  assert.equal(freed.status, 200, JSON.stringify(freed));
  await command(UNKNOWN, { key: "the-key-of-two-attempts" });
  await late.getByRole("button", { name: "Settle as executed" }).click();
  await second.sees("attempt", ".problem");
  await second.picture("another-attempt-has-begun");
  assert.equal(await stateOf(again.id), "unknown", "a verdict about an old attempt settles nothing");
  second.expected();
  await first.fine("the first operator");
  await second.fine("the second operator");
  await first.leave();
  await second.leave();
}

/** A viewer sees no form that acts and no content, and what is forged is refused. */
async function aViewer(browser) {
  const { id } = await command(UNKNOWN, { body: { card: "canary-of-a-request" } });
  const settled = await command({ body: { secret: "canary-of-a-response" } });
  const person = await Person.come(browser, { token: vera });
  const { page } = person;
  for (const hash of [
    "overview",
    "unknown",
    "search",
    "outbox",
    "ledger",
    "hot-keys",
    "holds",
    "audit",
    "settings",
    `records/${id}`,
    `records/${settled.id}`,
  ]) {
    await person.open(hash);
    assert.equal(await page.locator("form[data-action], form[data-bulk], [data-select]").count(), 0, hash);
    assert.ok(!(await page.content()).includes("canary"), hash);
    if (hash === "unknown" || hash === `records/${id}`) await person.picture(`viewer-${hash.split("/")[0]}`);
  }
  assert.match(await page.locator("#who").innerText(), /token:vera, viewer/);
  // From the viewer's own page.
  const forge = (path, members) =>
    page.evaluate(
      async ([path, token, body]) => {
        const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json", "Semel-Console": "1" };
        return (await fetch(path, { method: "POST", headers, body })).status;
      },
      [path, vera, JSON.stringify(members)],
    );
  const reason = "forged";
  for (const [path, members] of [
    [`../admin/v1/records/${id}/resolve`, { reason, verdict: "executed", status: 201 }],
    [`../admin/v1/records/${id}/reconcile`, { reason }],
    [`../admin/v1/records/${id}/request`, { reason }],
    [`../admin/v1/records/${settled.id}/purge`, { reason }],
    [`../admin/v1/records/${settled.id}/response`, { reason }],
    ["../admin/v1/records/settle", { reason, verdicts: [{ operationId: id, verdict: "not-executed" }] }],
    ["../admin/v1/records/reconcile", { reason, operationIds: [id] }],
    ["../admin/v1/holds", { kind: "reconciler", reason }],
    ["../admin/v1/log-level", { filter: "trace", reason }],
  ]) {
    assert.equal(await forge(path, members), 403, path);
  }
  assert.deepEqual([await stateOf(id), await stateOf(settled.id)], ["unknown", "succeeded"]);
  assert.ok(!(await admin("/admin/v1/audit")).json.notes.some((note) => note.why === reason));
  person.expected();
  await person.fine("the viewer");
  await person.leave();
}

/** Wrong input is told on the page. Nothing changes, and nothing typed is lost. */
async function wrongInput(browser) {
  const { id } = await command(UNKNOWN);
  const person = await Person.come(browser, { token: otto });
  const { page } = person;
  await person.open(`records/${id}`);
  const form = await person.action("It was executed…");
  const button = form.getByRole("button", { name: "Settle as executed" });
  let asks = 0;
  page.on("request", (request) => (asks += request.method() === "POST"));

  // Without a reason, the browser says so at the field, and asks for nothing.
  await person.fill(form, { Body: '{"found":1}' });
  await button.click();
  assert.equal(await page.evaluate(() => document.activeElement.id), "executed-reason");
  assert.equal(await form.getByLabel("Reason").evaluate((field) => field.validity.valueMissing), true);
  assert.equal(asks, 0);

  for (const [title, fields, told] of [
    ["blank-reason", { Reason: "   " }, "empty"],
    ["empty-json", { Body: "", Reason: "ticket 7" }, "The body is empty"],
    ["not-json", { Body: '{"found":', Reason: "ticket 7" }, "JSON"],
    ["no-header", { Body: "x", "Header fields": "no colon here" }, "no colon"],
    ["bad-header", { "Header fields": "a b: c" }, "header"],
    ["bad-status", { "Header fields": "X-A: b", Status: "199" }, undefined],
  ]) {
    await person.fill(form, fields);
    await button.click();
    if (told) await person.sees(told, ".problem");
    else assert.equal(await form.getByLabel("Status").evaluate((field) => field.validity.patternMismatch), true, title);
    for (const [label, value] of Object.entries(fields))
      assert.equal(await form.getByLabel(label).inputValue(), value, `${title}: ${label}`);
    await person.picture(`wrong-${title}`);
    assert.equal(await stateOf(id), "unknown", title);
  }
  assert.ok(!(await admin("/admin/v1/audit")).json.notes.some((note) => note.operationId === id), "nothing was done");
  // The gateway goes away while somebody settles: it is told that the result is not known.
  await person.fill(form, { Status: "201" });
  await page.route("**/resolve", (route) => route.abort("connectionrefused"));
  await button.click();
  await person.sees("Whether it was done is not known", ".problem");
  await page.unroute("**/resolve");
  await page.route("**/resolve", (route) =>
    route.fulfill({ status: 503, contentType: "text/html", body: "<b>a proxy</b>" }),
  );
  await button.click();
  await person.sees("The gateway answered 503.", ".problem");
  await page.unroute("**/resolve");
  assert.equal(await form.getByLabel("Body").inputValue(), "x");
  await button.click();
  await person.sees("It is settled as executed.", "#status");
  person.expected();

  // Ids that do not exist, and that are none.
  await person.turn(`records/${NOBODY}`);
  await person.heading("Not found");
  await person.picture("not-found");
  await person.turn("records/not-an-id");
  await person.sees("is not an operation id", "[role=alert]");
  await person.turn("nowhere");
  await person.heading("Not found");
  await person.turn("outbox/x%3Amade");
  await person.heading("Not found");
  await person.turn("search");
  await person.shown();
  const search = page.locator("form.card").first();
  for (const [given, told] of [
    [NOBODY, NOBODY],
    ["'; DROP TABLE", "not an operation id"],
  ]) {
    await search.getByLabel("Operation id").fill(given);
    await search.getByRole("button", { name: "Find" }).click();
    await person.sees(told, ".problem");
    assert.equal(await search.getByLabel("Operation id").inputValue(), given);
  }
  await person.picture("search-nothing-found");
  await person.turn("unknown?olderThan=soon");
  await person.sees("not a duration", "[role=alert]");
  await person.picture("wrong-filter");
  person.expected();
  await person.fine("wrong input");
  await person.leave();
}

/** Below a path of a proxy, whose gateway is started anew with another token while somebody types. */
async function behindAProxy(browser) {
  let target = stage.admin;
  const proxy = createServer((request, response) => {
    if (!request.url.startsWith("/ops/")) return response.writeHead(404).end();
    const to = new URL(request.url.slice("/ops".length), target);
    const passed = ask(to, { method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    passed.on("error", () => response.writeHead(502).end());
    request.pipe(passed);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const { id } = await command(UNKNOWN);
  const person = await Person.come(browser, { token: otto, admin: `http://127.0.0.1:${proxy.address().port}/ops` });
  const { page } = person;
  await page.goto(`${person.admin}/console`);
  await person.shown();
  assert.equal(page.url(), `${person.admin}/console/`, "the way there is relative");
  await person.heading("Overview");
  await page.getByRole("link", { name: "Unknown" }).first().click();
  await person.shown();
  await page.locator(`a[href="#/records/${id}"]`).click();
  await person.shown();
  const form = await person.action("It was executed…");
  await person.fill(form, { Body: '{"kept":1}', Reason: "while the token expires" });

  target = anew.admin;
  await form.getByRole("button", { name: "Settle as executed" }).click();
  await person.sees("what you typed is still there", "#sign-in-problem");
  await person.picture("token-expired");
  await page.getByLabel("Token").fill(anew.tokens.otto);
  await page.getByLabel("Token").press("Enter");
  await page.waitForFunction(() => !document.querySelector("dialog").open);
  assert.deepEqual(
    [await form.getByLabel("Body").inputValue(), await form.getByLabel("Reason").inputValue()],
    ['{"kept":1}', "while the token expires"],
  );
  await form.getByRole("button", { name: "Settle as executed" }).click();
  await person.sees("It is settled as executed.", "#status");
  assert.equal((await admin("/admin/v1/audit")).json.notes[0].why, "while the token expires");
  // Where nothing is typed, the page itself asks for a new token, and then shows what was wanted.
  target = stage.admin;
  await person.turn("audit");
  await person.sees("not known any more", "#sign-in-problem");
  await page.getByLabel("Token").fill(otto);
  await page.getByLabel("Token").press("Enter");
  await person.shown();
  await person.heading("Audit log");
  await page.goto(`${person.base}#/unknown?operation=refunds.create`);
  await page.reload();
  await person.shown();
  assert.equal(await page.getByLabel("Operation").inputValue(), "refunds.create", "a filter has a deep link");
  assert.deepEqual(person.foreign, [], "nothing is asked of the proxy beside its path");
  person.expected();
  await person.fine("behind a proxy");
  await person.leave();
  proxy.close();
}

/** Looks for evidence about several commands, and settles several as not executed; those that cannot be are named. */
async function manyAtOnce(browser) {
  const looked = [await command({ ...UNKNOWN, charge: true }), await command(UNKNOWN), await command(UNKNOWN)];
  const others = [await command(UNKNOWN, { path: "/refunds" }), await command(UNKNOWN, { path: "/refunds" })];
  const person = await Person.come(browser, { token: otto });
  const { page } = person;
  await person.open("unknown");
  const box = (id) => page.locator(`[data-select="${id}"]`);
  const form = (title) => page.locator("form[data-bulk]", { has: page.getByRole("heading", { name: title }) });
  const look = form("Look now");
  await look.getByLabel("Reason").fill("ticket 8");
  await look.getByRole("button").click();
  await person.sees("No command is selected.", ".problem");
  for (const { id } of [...looked, others[0]]) await box(id).check();
  assert.equal(await page.locator("[data-selected]").innerText(), "4");
  // One of them is settled meanwhile.
  const meanwhile = await admin(`/admin/v1/records/${looked[2].id}/resolve`, {
    method: "POST",
    members: { reason: "meanwhile", verdict: "executed", status: 201 },
  });
  assert.equal(meanwhile.status, 200);
  await person.picture("bulk-selected");
  await look.getByRole("button").click();
  await person.sees("Looked up", "[data-results]");
  await person.picture("bulk-looked");
  const results = page.locator("[data-results] li");
  const line = async (id) => (await results.filter({ hasText: id }).innerText()).replaceAll(/\s+/g, " ");
  assert.match(await line(looked[0].id), /settled by evidence: executed/);
  assert.match(await line(looked[1].id), /no evidence yet: .*the provider does not know it/);
  assert.match(await line(looked[2].id), /succeeded/);
  assert.equal(await results.count(), 4, "each is named");
  assert.deepEqual(await Promise.all(looked.map(({ id }) => stateOf(id))), ["succeeded", "unknown", "succeeded"]);

  // Settling checks first, and changes nothing until it is said again.
  const settle = form("Settle as not executed");
  for (const { id } of [looked[1], ...others]) await box(id).check();
  await admin(`/admin/v1/records/${others[1].id}/resolve`, {
    method: "POST",
    members: { reason: "meanwhile", verdict: "executed", status: 201 },
  });
  await free([looked[1].id, others[0].id]);
  await settle.getByLabel("Reason").fill("ticket 9: none is in the provider's list");
  await settle.getByRole("button").click();
  await person.sees("Nothing is changed yet. Can be settled: 2.", "[data-results]");
  assert.match(await line(others[1].id), /succeeded/);
  await person.picture("bulk-checked");
  assert.deepEqual([await stateOf(looked[1].id), await stateOf(others[0].id)], ["unknown", "unknown"]);
  await settle.getByRole("button").click();
  await person.sees("Settled as not executed: 2.", "[data-results]");
  assert.match(await line(others[1].id), /succeeded/);
  await person.picture("bulk-settled");
  assert.equal(await box(looked[1].id).count(), 0, "the list is shown anew");
  const { notes } = (await admin("/admin/v1/audit?limit=50")).json;
  const mine = notes.filter((note) => note.why.startsWith("ticket 9"));
  assert.deepEqual(
    mine.map((note) => [note.who, note.operationId]).sort(),
    [looked[1].id, others[0].id].sort().map((id) => ["token:otto", id]),
  );
  // Nothing offers to settle several as executed.
  assert.equal(
    await page.locator("form[data-bulk]").count(),
    await page.locator('form[data-bulk="look"], form[data-bulk="not-executed"]').count(),
  );
  person.expected();
  await person.fine("many at once");
  await person.leave();
}
