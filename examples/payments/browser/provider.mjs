// The provider's page: node provider.mjs ADDRESS PICTURE
import assert from "node:assert/strict";
import { visit } from "../../../proof/testkit/browser/browser.mjs";

const [address, picture] = process.argv.slice(2);
const ask = async (path, options) => (await fetch(address + path, options)).json();
const json = (method, body) => ({ method, body: JSON.stringify(body) });

await visit(address, picture, async (page, complaints) => {
  // Whatever a client sent is text.
  const reference = `<script>document.title = "taken over"</script>`;
  const rows = page.locator("#ledger tbody tr");
  assert.equal(await rows.first().locator("td").nth(1).textContent(), reference);
  assert.equal(await page.locator("#ledger script").count(), 0);
  assert.equal(await page.title(), "Payment provider");

  // A box that is checked is a bad day, and the other way round.
  await page.getByRole("checkbox", { name: "refuse" }).check();
  await page.getByText("refuse is now true").waitFor();
  assert.equal((await ask("/switches")).refuse, true);
  await page.getByRole("checkbox", { name: "refuse" }).uncheck();
  await page.getByText("refuse is now false").waitFor();
  assert.equal((await ask("/switches")).refuse, false);

  // For the next request only; the page sees by itself what came of it.
  const decline = page.locator("[data-switch=decline]");
  await decline.getByRole("spinbutton").fill("1");
  await decline.getByRole("checkbox").check();
  await page.getByText("decline is now 1").waitFor();
  const order = { reference: "order-2", amount: 4999, currency: "EUR", card: "4242424242424242" };
  assert.equal((await ask("/charges", json("POST", order))).status, "declined");
  await rows.filter({ hasText: "order-2" }).getByText("declined").waitFor();
  await page.locator("[data-switch=decline] input[type=checkbox]:not(:checked)").waitFor();

  // What the provider refuses is said.
  const slow = page.locator("[data-switch=slow]");
  await slow.getByRole("checkbox").check();
  await page.getByText("slow is now 2000").waitFor();
  const complaint = page.waitForEvent("console");
  await slow.getByRole("spinbutton", { name: "ms" }).fill("30001");
  await slow.getByRole("spinbutton", { name: "ms" }).blur();
  await page.getByText("up to 30000").waitFor();
  await complaint;
  assert.match(complaints.pop(), /status of 400/);
  assert.equal((await ask("/switches")).slow, 2000);
}).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
