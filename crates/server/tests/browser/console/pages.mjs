// Every page, empty, loading, failing and full: node pages.mjs FACTS
import assert from "node:assert/strict";
import { PAGES, Person, accessible, admin, command, findings, script, stage } from "./console.mjs";

const { empty, records } = stage.more;
const { otto } = stage.tokens;
const NARROW = { width: 400, height: 800 };
/** Largest number of bytes of the first view. */
const LARGEST_VIEW = 100_000;
const LISTS = ["unknown", "search", "outbox", "audit"];

/** Texts of pages with nothing to show. */
const EMPTY = {
  overview: "No records yet.",
  unknown: "No unknown outcomes.",
  search: "No records match.",
  outbox: "No messages.",
  "hot-keys": "No key was sent twice in the last minute.",
  holds: "Nothing is held.",
  audit: "Nobody has acted yet.",
};

await script(async (browser) => {
  const timed = async (part) => {
    const begun = Date.now();
    await part(browser);
    console.log(`${part.name}: ${Date.now() - begun} ms`);
  };
  await timed(firstView);
  await Promise.all([timed(nothingYet), timed(waitingAndFailing), timed(full), timed(axe)]);
  console.log(JSON.stringify({ axe: findings }, null, 1));
});

async function nothingYet(browser) {
  const person = await Person.come(browser, { token: otto, admin: empty.admin });
  for (const [page, heading] of Object.entries(PAGES)) {
    await person.open(page);
    await person.heading(heading);
    if (EMPTY[page]) await person.sees(EMPTY[page], ".empty");
    await person.picture(`${page}-empty`);
    assert.match(await person.page.title(), new RegExp(`^${heading} · `));
    assert.equal(await person.page.locator(`#pages a[href="#/${page}"]`).getAttribute("aria-current"), "page");
    await person.fine(`${page}, empty`);
  }
  assert.deepEqual(person.foreign, [], "nothing is asked of another origin");
  await person.leave();
}

/** The first view is small: shell, style, script, icon, session and overview, with their headers. */
async function firstView(browser) {
  const person = await Person.come(browser, { token: otto, admin: empty.admin });
  const network = await person.context.newCDPSession(person.page);
  await network.send("Network.enable");
  const names = new Map();
  const sizes = {};
  network.on("Network.responseReceived", ({ requestId, response }) =>
    names.set(requestId, new URL(response.url).pathname),
  );
  network.on(
    "Network.loadingFinished",
    ({ requestId, encodedDataLength }) => (sizes[names.get(requestId)] = encodedDataLength),
  );
  await person.open("overview");
  const shown = await person.page.evaluate(() => Math.round(performance.now()));
  await person.page.waitForLoadState("networkidle");
  const total = Object.values(sizes).reduce((sum, size) => sum + size, 0);
  const paint = () => person.page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  console.log(JSON.stringify({ firstView: sizes, total, firstPaint: await paint(), shown }));
  assert.ok(total <= LARGEST_VIEW, `the first view has ${total} bytes`);
  // What does not change is not loaded again.
  await person.page.reload();
  await person.shown();
  console.log(
    JSON.stringify({
      again: await person.page.evaluate(() =>
        performance
          .getEntriesByType("resource")
          .map(({ name, transferSize }) => [new URL(name).pathname, transferSize]),
      ),
      firstPaint: await paint(),
    }),
  );
  const kept = await person.page.evaluate(() =>
    performance
      .getEntriesByType("resource")
      .filter(({ name }) => name.includes("/assets/"))
      .map(({ transferSize }) => transferSize),
  );
  assert.deepEqual(
    kept.filter((size) => size > 0),
    [],
    "assets are kept by the browser",
  );
  await person.leave();
}

/** A page that waits says so; one that cannot be shown says why, and can be tried again. */
async function waitingAndFailing(browser) {
  const person = await Person.come(browser, { token: otto });
  const { page } = person;
  await person.open("settings");
  const record = (await admin("/admin/v1/records?limit=1")).json.records[0].operationId;
  const pages = { ...PAGES, [`records/${record}`]: "payments.create" };
  for (const [hash, heading] of Object.entries(pages)) {
    const name = hash.split("/")[0];
    const fragment = `**/fragments/${name === "search" ? "records" : hash}`;
    // The page is left each time, since the same address is no new page.
    const aside = name === "settings" ? "holds" : "settings";
    await person.turn(aside);
    await person.shown();
    let release;
    const released = new Promise((resolve) => (release = resolve));
    await page.route(fragment, async (route) => {
      await released;
      await route.continue();
    });
    await person.turn(hash);
    await person.sees("Loading…", ".loading");
    await person.picture(`${name}-loading`);
    release();
    await person.heading(heading);
    await page.unroute(fragment);
    await person.turn(aside);
    await person.shown();

    const away = {
      status: 503,
      contentType: "application/problem+json",
      body: JSON.stringify({
        title: "Store unavailable",
        detail: "The store does not answer.",
        code: "STORE_UNAVAILABLE",
      }),
    };
    const broken = { status: 500, contentType: "text/html", body: "<h1>a proxy's own page</h1>" };
    for (const [kind, answer, told] of [
      ["503", away, "The store does not answer."],
      ["500", broken, "The gateway answered 500."],
      ["refused", undefined, "The gateway does not answer."],
    ]) {
      await page.route(fragment, (route) => (answer ? route.fulfill(answer) : route.abort("connectionrefused")));
      await person.turn(hash);
      await person.sees(told, "[role=alert]");
      if (kind !== "500") await person.picture(`${name}-error-${kind}`);
      assert.equal(await page.getByText("a proxy's own page").count(), 0);
      await page.unroute(fragment);
      await page.getByRole("button", { name: "Try again" }).press("Enter");
      await person.heading(heading);
      await person.turn(aside);
      await person.shown();
    }
    person.expected();
  }
  // A live page that fails keeps its numbers, and says that they are old.
  await page.clock.install();
  await page.reload();
  await person.turn("overview");
  await person.shown();
  await page.route("**/fragments/overview", (route) => route.abort("connectionrefused"));
  await page.clock.runFor(12_000);
  await person.sees("numbers are old", "#status");
  await person.heading("Overview");
  await person.picture("overview-stale");
  await page.unroute("**/fragments/overview");
  await page.clock.runFor(12_000);
  await page.locator("#status:empty").waitFor({ state: "attached" });
  person.expected();
  await person.leave();
}

/** Lists with more than a thousand rows, and every page with much on it. */
async function full(browser) {
  // Keys that are sent again and again.
  const busy = Array.from({ length: 60 }, (_, index) => index);
  await Promise.all(
    busy.map((index) => command({}, { key: `a-hot-key-of-a-script-${index}`, caller: `caller-${index}` })),
  );
  await Promise.all(
    busy.flatMap((index) =>
      [1, 2].map(() => command({}, { key: `a-hot-key-of-a-script-${index}`, caller: `caller-${index}` })),
    ),
  );

  const person = await Person.come(browser, { token: otto });
  const { page } = person;
  for (const [hash, heading] of Object.entries(PAGES)) {
    const begun = Date.now();
    await person.open(hash);
    await person.heading(heading);
    console.log(`${hash}: ${Date.now() - begun} ms with ${records} records`);
    await page.setViewportSize(NARROW);
    await person.fits(`${hash} at 400 px`);
    await person.picture(`${hash}-full-narrow`);
    await page.setViewportSize({ width: 1440, height: 900 });
    await person.fits(`${hash} at 1440 px`);
    await person.picture(`${hash}-full`);
    await person.fine(`${hash}, full`);
  }
  // Every digit of a number is there.
  await person.open("overview");
  const { json } = await admin("/admin/v1/status");
  const shown = (number) => new Intl.NumberFormat("en").format(number);
  const tile = (name) => page.locator(".tile", { has: page.locator("dt", { hasText: name }) }).innerText();
  assert.ok(json.records.unknown > 1000);
  assert.match(await tile("Unknown"), new RegExp(`\\b${shown(json.records.unknown)}\\b`));
  assert.match(await tile("Processing"), new RegExp(`\\b${shown(json.records.processing)}\\b`));
  assert.match(
    await tile("Outbox"),
    new RegExp(`\\b${shown(json.outbox.dead)} dead[\\s\\S]*\\b${shown(json.outbox.pending)} pending`),
  );
  for (const hash of LISTS) {
    await person.open(hash);
    const rows = page.locator("#rows tbody > tr");
    const more = page.locator("[data-more]");
    assert.equal(await rows.count(), 100, hash);
    for (let count = 100; count < 1000; count += 100) {
      await more.click();
      await page.waitForFunction(
        (count) => document.querySelectorAll("#rows tbody > tr").length === count,
        count + 100,
      );
    }
    const ids = await rows.evaluateAll((rows) => rows.map((row) => row.querySelector("a")?.hash ?? row.textContent));
    assert.equal(new Set(ids).size, 1000, `${hash}: each row once`);
    await person.fits(`${hash} with a thousand rows`);
    await page.screenshot({ path: `${stage.pictures}/${hash}-thousand.png` });
    await person.fine(`${hash}, a thousand rows`);
  }
  await person.leave();
}

/** Every page in light and dark, with and without content. */
async function axe(browser) {
  const unknown = (await admin("/admin/v1/records?state=unknown&limit=1")).json.records[0].operationId;
  const settled = (await admin("/admin/v1/records?state=succeeded&limit=1")).json.records[0].operationId;
  const message = (await admin("/admin/v1/outbox?state=dead&limit=1")).json.messages[0].eventId;
  const pages = {
    ...PAGES,
    [`records/${unknown}`]: "record-unknown",
    [`records/${settled}`]: "record-settled",
    [`outbox/${encodeURIComponent(message)}`]: "message",
  };
  for (const dark of [false, true]) {
    const look = dark ? "dark" : "light";
    const nobody = await Person.come(browser, { dark, forAxe: true });
    await nobody.page.goto(nobody.base);
    await nobody.page.getByLabel("Token").waitFor();
    await nobody.picture(`sign-in-${look}`);
    await accessible(nobody, `sign-in ${look}`);
    await nobody.leave();
    const person = await Person.come(browser, { token: otto, dark, forAxe: true });
    for (const [hash, title] of Object.entries(pages)) {
      await person.open(hash);
      // Everything is looked at that a person may open; of very many holds, the first.
      await person.page.evaluate(() => {
        [...document.querySelectorAll(".hold")].slice(20).forEach((hold) => hold.remove());
        document.querySelectorAll("main details").forEach((details) => (details.open = true));
      });
      const name = PAGES[hash] ? hash : title;
      if (dark || !PAGES[hash]) await person.picture(`${name}-${look}`);
      await accessible(person, `${name} ${look}`);
    }
    await person.leave();
    const visitor = await Person.come(browser, { token: otto, admin: empty.admin, dark, forAxe: true });
    for (const hash of ["overview", "unknown", "search"]) {
      await visitor.open(hash);
      await accessible(visitor, `${hash} empty ${look}`);
    }
    await visitor.page.route("**/fragments/unknown", (route) => route.abort());
    await visitor.turn("unknown");
    await visitor.heading("This page cannot be shown");
    await accessible(visitor, `error ${look}`);
    await visitor.leave();
  }
}
