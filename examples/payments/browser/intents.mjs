// One effect for each intent, whatever happens to the page and its network: node intents.mjs ADDRESS PICTURE PROVIDER
import assert from "node:assert/strict";
import { complaintsOf, launch } from "../../../proof/testkit/browser/browser.mjs";

const [address, picture, provider] = process.argv.slice(2);
const headers = { "X-User": "alice" };
const payments = async () => (await fetch(`${address}/payments`, { headers })).json();
const charges = async () =>
  (await (await fetch(`${provider}/ledger`)).text()).split("\n").filter(Boolean).map(JSON.parse);
const bad = (switches) => fetch(`${provider}/switches`, { method: "PUT", body: JSON.stringify(switches) });

const shows = (page, state) => page.locator(`#outcome[data-state=${state}]`).waitFor();
const pay = (page) => page.locator("#send");
const order = (name) => `${address}/?order=${name}`;
let before = 0;

// There is one more payment, charged once, and both sides agree.
async function once() {
  const [ours, theirs] = [await payments(), await charges()];
  assert.deepEqual([ours.length, theirs.length], [before + 1, before + 1]);
  assert.deepEqual([ours[0].status, ours[0].charge], ["captured", theirs.at(-1).id]);
  before += 1;
}

// Keeps each POST of a payment, with its key, whether it arrives or not.
function watch(context) {
  const sent = [];
  context.on("request", (request) => {
    if (request.method() === "POST") sent.push(request.headers()["idempotency-key"]);
  });
  return sent;
}

const keys = (sent) => new Set(sent.splice(0));

// Faults of the network are complaints of the browser, and expected; those of a script are not.
const isExpected = (complaint) => complaint.startsWith("Failed to load resource");

async function steps(context, page) {
  const sent = watch(context);

  // A double click: the second one finds the lock taken in the event of the first.
  await page.goto(order("double-click"));
  await pay(page).dblclick();
  await shows(page, "captured");
  await once();
  assert.equal(keys(sent).size, 1);

  // Two clicks in one task of the page, before anything can be shown.
  await page.goto(order("two-clicks"));
  await page.evaluate(() => {
    const send = document.querySelector("#send");
    send.click();
    send.click();
    send.form.requestSubmit();
  });
  await shows(page, "captured");
  await once();
  assert.equal(keys(sent).size, 1);

  // Away and back, while it is under way: the same payment goes on.
  await bad({ slow: { ms: 1500, next: 1 } });
  await page.goto(order("back"));
  await pay(page).click();
  await shows(page, "waiting");
  await page.goto(order("elsewhere"));
  await shows(page, "open").catch(() => undefined);
  await page.goBack();
  await shows(page, "captured");
  await once();
  assert.equal(keys(sent).size, 1);

  // Reloaded before the answer: the request was sent, and the page that sent it is gone.
  let release;
  const released = new Promise((resolve) => (release = resolve));
  let arrive;
  const arrived = new Promise((resolve) => (arrive = resolve));
  await page.goto(order("reload"));
  await context.route("**/payments", async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    await route.fetch();
    arrive();
    await released;
    // The page that waited for it is gone.
    return route.abort().catch(() => undefined);
  });
  await pay(page).click();
  await arrived;
  await context.unroute("**/payments");
  await page.reload();
  release();
  await shows(page, "captured");
  await once();
  assert.equal(keys(sent).size, 1);
  await page.reload();
  await shows(page, "captured");
  assert.equal(keys(sent).size, 0, "a result is shown again, not asked for again");

  // Two tabs of one order, at once: both send under one key, and both have the outcome.
  const other = await context.newPage();
  await bad({ slow: { ms: 500, next: 1 } });
  await page.goto(order("two-tabs"));
  await other.goto(order("two-tabs"));
  await Promise.all([pay(page).click(), pay(other).click()]);
  await Promise.all([settled(page), settled(other)]);
  await once();
  assert.equal(keys(sent).size, 1);

  // A tab that was opened before, and pays after the other one.
  await page.goto(order("late-tab"));
  await other.goto(order("late-tab"));
  await pay(page).click();
  await shows(page, "captured");
  await pay(other).click();
  await shows(other, "elsewhere");
  await once();
  assert.equal(keys(sent).size, 1);
  await other.close();

  // A slow network: the answer takes longer than an attempt waits, and the client sends it again by itself.
  let slow = 1;
  await context.route("**/payments", async (route) => {
    if (route.request().method() !== "POST" || slow-- <= 0) return route.continue();
    await route.fetch();
    // It never comes.
  });
  await page.goto(order("slow"));
  await pay(page).click();
  await shows(page, "lost");
  await pay(page).click();
  await shows(page, "captured");
  await once();
  assert.equal(keys(sent).size, 1);
  await context.unroute("**/payments");

  // The network goes away, for longer than the page waits, and comes back: nobody has to press anything.
  await page.goto(order("offline"));
  await context.setOffline(true);
  await pay(page).click();
  await shows(page, "lost");
  assert.equal((await payments()).length, before, "nothing has arrived");
  await context.setOffline(false);
  await shows(page, "captured");
  await once();
  assert.equal(keys(sent).size, 1);

  // It goes away once the payment has arrived, the page is left, and another one of the order is opened later.
  await page.goto(order("left"));
  await context.route("**/payments", async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    await route.fetch();
    return route.abort();
  });
  await pay(page).click();
  await shows(page, "lost");
  await context.unroute("**/payments");
  await page.goto(order("another"));
  const later = await context.newPage();
  await later.goto(order("left"));
  await pay(later).click();
  await shows(later, "captured");
  await once();
  assert.equal(keys(sent).size, 1);
}

// Waits until the page has an outcome: its own, or the word that the other tab has it.
async function settled(page) {
  await page.locator("#outcome[data-state=captured], #outcome[data-state=elsewhere]").waitFor();
}

const browser = await launch();
try {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  const complaints = [complaintsOf(page)];
  context.on("page", (other) => complaints.push(complaintsOf(other)));
  try {
    await steps(context, page);
    const unexpected = complaints.flat().filter((complaint) => !isExpected(complaint));
    assert.deepEqual(unexpected, []);
  } finally {
    await page.screenshot({ path: picture, fullPage: true });
  }
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
}
