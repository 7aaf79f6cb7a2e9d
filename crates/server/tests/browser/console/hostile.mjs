// Hostile stored content, names and reasons on every page that shows them: node hostile.mjs FACTS
import assert from "node:assert/strict";
import { Person, REFUSED, accessible, admin, command, script, stage } from "./console.mjs";

const { otto } = stage.tokens;

/** Texts that would do something if they were no text. Each tries to change the title. */
const TEXTS = [
  `<script>document.title="taken"</script>`,
  `<img src=x onerror="document.title='taken'">`,
  `"><svg onload="document.title='taken'">`,
  `' onfocus=document.title='taken' autofocus='`,
  `javascript:document.title='taken'`,
  `</pre></textarea></template><iframe srcdoc="<script>parent.document.title='taken'</script>"></iframe>`,
  `{{ 7*7 }} {% raw %} \${7*7} <!-- -->`,
  `<a href="javascript:document.title='taken'" style="position:fixed;inset:0">everywhere</a>`,
  `<form action=https://evil.example><button>Settle</button></form><base href=https://evil.example>`,
  `<meta http-equiv=refresh content="0;url=https://evil.example">`,
];
/** Texts beside ASCII: reversed, invisible, and a word that is longer than any window. */
const BIDI = `\u202eesrever\u202c \u2066isolated \u200b\u200d\ufeff \u0000 \u001b[31m`;
const LONG = "W".repeat(900);

await script(async (browser) => {
  // The store itself has a hostile record, message, note and hold.
  const changed = (await admin("/admin/v1/records")).json.records[0].operationId;
  const message = (await admin("/admin/v1/outbox")).json.messages[0].eventId;
  const made = await make();
  const person = await Person.come(browser, { token: otto, width: 400, height: 800 });
  const { page } = person;
  const check = async (what) => {
    assert.notEqual(await page.title(), "taken", what);
    assert.equal(
      await page
        .locator(
          "main script, main img, main iframe, main base, main meta, main form[action], main [onerror], main [onload], main [onfocus]",
        )
        .count(),
      0,
      what,
    );
    const links = await page.locator("main a").evaluateAll((links) => links.map((link) => link.getAttribute("href")));
    assert.deepEqual(
      links.filter((href) => !href.startsWith("#/")),
      [],
      `${what}: links lead to pages of the console only`,
    );
    await person.fits(what);
    await person.fine(what, { isRefused: true });
    assert.deepEqual(person.foreign, [], what);
  };

  for (const hash of [
    "overview",
    "unknown",
    "search",
    "outbox",
    "hot-keys",
    "holds",
    "audit",
    "settings",
    ...made.map((id) => `records/${id}`),
    `records/${changed}`,
    `outbox/${encodeURIComponent(message)}`,
  ]) {
    await person.open(hash);
    await page.evaluate(() => document.querySelectorAll("main details").forEach((details) => (details.open = true)));
    await check(hash);
    const isOne = hash.includes("/");
    if (!isOne) await person.picture(`hostile-${hash}-narrow`);
    else if (!made.includes(hash.slice("records/".length)))
      await person.picture(`hostile-one-of-${hash.split("/")[0]}-narrow`);
  }
  // A stored response and a kept request are shown as text.
  for (const [index, id] of made.entries()) {
    for (const name of ["Show the stored response…", "Show the kept request…"]) {
      await person.turn(`records/${id}`);
      await person.shown();
      if ((await page.locator("summary", { hasText: name }).count()) === 0) continue;
      const form = await person.action(name);
      await form.getByLabel("Reason").fill(TEXTS[index % TEXTS.length]);
      await form.getByRole("button", { name: "Show" }).click();
      await form.locator("pre, .problem:not([hidden])").first().waitFor();
      await check(`${name} ${id}`);
      if (index < 2)
        await person.picture(`hostile-shown-${index}-${name.includes("request") ? "request" : "response"}`);
    }
  }
  // What was searched for, and an address that somebody made.
  for (const text of [...TEXTS, LONG]) {
    await person.turn("settings");
    await person.shown();
    await person.turn(`unknown?operation=${encodeURIComponent(text)}`);
    await person.shownOrRefused();
    await check(`a filter: ${text}`);
    await person.turn("settings");
    await person.shown();
    await person.turn(`records/${encodeURIComponent(text)}`);
    await person.shownOrRefused();
    await check(`an address: ${text}`);
  }
  await person.picture("hostile-address");
  // An address that climbs out of the pages: what is there is no HTML, and nothing in it was escaped.
  const asked = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  for (const address of [
    "../../admin/v1/records",
    "../admin/v1/records",
    "unknown/../../../admin/v1/records",
    "%2e%2e/%2E%2E/admin/v1/records",
    "records/..%2f..%2f..%2fadmin/v1/records",
    "records\\..\\..\\..\\admin\\v1\\records",
    "records/../../../admin/v1/records",
    "session",
    "find",
    "https://evil.example/",
    "//evil.example/",
  ]) {
    await person.turn("settings");
    await person.shown();
    await person.turn(address);
    await person.shownOrRefused();
    assert.match(await page.locator("h1").first().innerText(), REFUSED, address);
    assert.equal(await page.locator("main form, main a, main img").count(), 0, address);
    await check(address);
  }
  assert.deepEqual(
    asked.filter((path) => !path.startsWith("/console/fragments/")),
    [],
    "nothing else is asked for",
  );
  // What is told after an action: the reason of a refusal with hostile text in it.
  await person.turn("holds");
  await person.shown();
  const hold = page.locator("form.card", { has: page.getByRole("heading", { name: "One tenant" }) });
  await person.fill(hold, { Name: TEXTS[1], Reason: TEXTS[2] });
  await hold.getByRole("button", { name: "Hold" }).click();
  await page.waitForFunction(
    () =>
      document.querySelector("#status").textContent ||
      [...document.querySelectorAll(".problem")].some((element) => element.textContent),
  );
  await check("a hold");
  await person.picture("hostile-hold");
  await person.leave();

  const reader = await Person.come(browser, { token: otto, forAxe: true });
  for (const hash of ["audit", "unknown", `records/${made[0]}`]) {
    await reader.open(hash);
    await accessible(reader, `${hash} with hostile content`);
    await reader.picture(`hostile-${hash.split("/")[0]}`);
  }
  await reader.leave();
});

/** Makes commands, notes and messages with hostile texts wherever they may be; returns the ids of commands. */
async function make() {
  const made = [];
  const header = (text) => text.replaceAll(/[^\x20-\x7e]/g, "?");
  for (const [index, text] of [...TEXTS, BIDI, LONG].entries()) {
    const people = { caller: header(text).slice(0, 200), tenant: header(text).slice(0, 100) };
    const answer = {
      headers: {
        "Content-Type": "text/html",
        "X-Text": header(text),
        Location: `javascript:${encodeURIComponent(text).slice(0, 100)}`,
      },
      body: text,
    };
    // Names that the gateway does not take are those of somebody else.
    const settled = await named((names) => command(answer, { ...names, body: { text } }), people);
    const open = await named(
      (names) => command({ ...answer, status: 200, outcome: "unknown" }, { ...names, body: { text } }),
      people,
    );
    made.push(settled.id, open.id);
    const reason = text.slice(0, 900);
    const noted = await admin(`/admin/v1/records/${open.id}/request`, { method: "POST", members: { reason } });
    assert.ok([200, 400, 404, 409].includes(noted.status), JSON.stringify(noted));
    // An operator settles one with a hostile response.
    if (index % 2)
      await admin(`/admin/v1/records/${open.id}/resolve`, {
        method: "POST",
        members: {
          reason: noted.status === 200 ? reason : "as it is",
          verdict: "executed",
          status: 201,
          headers: { "X-Text": [header(text)] },
          body: text,
        },
      });
  }
  for (const name of TEXTS)
    await admin("/admin/v1/holds", { method: "POST", members: { kind: "tenant", name, reason: name } });
  return made;
}

async function named(send, people) {
  const first = await send(people);
  return first.id ? first : send({ caller: "alice", tenant: "acme" });
}
