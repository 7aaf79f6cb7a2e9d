// The form that pays: node pay.mjs ADDRESS PICTURE PROVIDER
import assert from "node:assert/strict";
import { visit } from "../../../proof/testkit/browser/browser.mjs";

const [address, picture, provider] = process.argv.slice(2);
const headers = { "X-User": "alice" };
const payments = async () => (await fetch(`${address}/payments`, { headers })).json();
const charges = async () =>
  (await (await fetch(`${provider}/ledger`)).text()).split("\n").filter(Boolean).map(JSON.parse);
const bad = (switches) => fetch(`${provider}/switches`, { method: "PUT", body: JSON.stringify(switches) });

await visit(address, picture, async (page, complaints) => {
  const pay = page.locator("#send");
  const outcome = page.locator("#outcome");
  const shows = (state) => page.locator(`#outcome[data-state=${state}]`).waitFor();
  const intent = () => page.locator("#intent").textContent();
  const photo = (name) => page.screenshot({ path: picture.replace(".png", `-${name}.png`), fullPage: true });
  let before = 0;

  // Since the last time, there is one more payment, charged once, and they agree.
  async function once(status) {
    const [ours, theirs] = [await payments(), await charges()];
    assert.deepEqual([ours.length, theirs.length], [before + 1, before + 1]);
    assert.deepEqual([ours[0].status, ours[0].charge], [status, theirs.at(-1).id]);
    assert.equal(await page.locator("#payments li").count(), before + 1);
    before += 1;
  }

  async function anew() {
    const old = await intent();
    await page.getByRole("button", { name: "New payment" }).click();
    assert.notEqual(await intent(), old, "a new form is another payment");
    assert.equal(await page.evaluate(() => document.activeElement.name), "amount");
  }

  // What is typed wrong is said, at its field, and nothing is sent.
  await photo("open");
  await page.getByLabel("Amount").fill("twelve");
  await pay.click();
  await page.getByText("An amount looks like 12.00.").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.name), "amount");
  await page.getByLabel("Amount").fill("12,50");
  assert.equal(await pay.textContent(), "Pay 12,50 EUR");

  // Twice is once.
  await pay.dblclick();
  await shows("captured");
  assert.match(await outcome.textContent(), /Paid.*12\.50 were charged to card …4242/s);
  assert.equal(await page.evaluate(() => document.activeElement.id), "anew", "the focus is not lost");
  await photo("captured");
  await once("captured");
  await page.reload();
  await shows("captured");
  assert.equal((await payments()).length, before, "a result is shown again, not made again");
  await anew();

  // By the keyboard alone; reloaded while it waits, it goes on where it was.
  await bad({ slow: { ms: 1500, next: 1 } });
  await page.getByLabel("Reference, if there is one").fill(`<img src=x onerror="document.title='taken over'">`);
  await page.getByLabel("Amount").fill("99");
  await page.keyboard.press("Enter");
  await shows("waiting");
  const waited = await intent();
  await photo("waiting");
  await page.reload();
  await shows("waiting");
  assert.deepEqual([await intent(), await page.getByLabel("Amount").inputValue()], [waited, "99"]);
  assert.equal(await pay.getAttribute("aria-disabled"), "true");
  await pay.click({ force: true });
  await shows("captured");
  await once("captured");
  assert.equal(await page.title(), "Pay once", "a reference is text");
  await anew();

  // The service has it, and the answer is lost; the same again is a replay.
  await page.route("**/payments", async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    await route.fetch();
    return route.abort();
  });
  await pay.click();
  await shows("lost");
  complaints.length = 0;
  await photo("lost");
  await page.unroute("**/payments");
  const sent = await intent();
  await page.waitForFunction(
    async (headers) => (await (await fetch("/payments", { headers })).json())[0].status === "captured",
    headers,
  );
  await page.getByRole("button", { name: "Try again" }).click();
  await shows("captured");
  assert.match(await outcome.textContent(), /given again/);
  assert.equal(await intent(), sent);
  await photo("replay");
  await once("captured");
  await anew();

  // The network fails before anything was sent, and once more after a reload.
  await page.route("**/payments", (route) => (route.request().method() === "POST" ? route.abort() : route.continue()));
  await pay.click();
  await shows("lost");
  await page.reload();
  await shows("lost");
  complaints.length = 0;
  assert.equal((await payments()).length, before);
  await page.unroute("**/payments");
  await page.getByRole("button", { name: "Try again" }).click();
  await shows("captured");
  await once("captured");
  await anew();

  // Declined is said; a new try is a new payment.
  await page.getByLabel("Card number").fill("4000 0000 0000 0002");
  await pay.click();
  await shows("declined");
  await photo("declined");
  await once("declined");
  await anew();

  // The same reference again is paid before.
  await page.getByLabel("Reference, if there is one").fill("invoice 7");
  await pay.click();
  await shows("captured");
  await once("captured");
  await anew();
  await page.getByLabel("Reference, if there is one").fill("invoice 7");
  await pay.click();
  await shows("duplicate");
  complaints.length = 0;
  assert.equal((await charges()).length, before);
  await anew();

  // Nobody knows, and nobody can pay again, until it is known.
  await bad({ refuse: true });
  await pay.click();
  await shows("unknown");
  await photo("unknown");
  assert.equal(await pay.getAttribute("aria-disabled"), "true");
  assert.equal(await page.getByRole("button", { name: "New payment" }).count(), 0);
  await bad({ refuse: false });
  await shows("captured");
  // The browser complains of each 409.
  complaints.length = 0;
  await once("captured");
  await page.setViewportSize({ width: 390, height: 844 });
  await photo("phone");
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  assert.equal(wide, false, "it fits on a phone");
}).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
