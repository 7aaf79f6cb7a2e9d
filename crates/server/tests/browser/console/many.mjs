// The pages with very many records behind them: node many.mjs FACTS
import assert from "node:assert/strict";
import { PAGES, Person, admin, script, stage } from "./console.mjs";

const { records } = stage.more;
/** Longest time that a page may take here. */
const LONGEST = 15_000;

await script(async (browser) => {
  const person = await Person.come(browser, { token: stage.tokens.otto });
  const { page } = person;
  page.setDefaultTimeout(LONGEST);
  const shows = async (hash) => {
    await person.turn("holds");
    await person.shown();
    const begun = Date.now();
    await person.turn(hash);
    await person.shown();
    console.log(`${hash}: ${Date.now() - begun} ms with ${records} records`);
    await person.picture(`${hash.split(/[/?]/)[0]}-${records}`);
  };
  await person.open("settings");
  for (const hash of Object.keys(PAGES)) if (hash !== "holds") await shows(hash);
  await shows("search?state=succeeded");
  await shows("search?tenant=tenant-7&state=unknown");
  await shows("search?tenant=nobody");
  await person.turn("search?state=succeeded");
  await person.shown();
  const ids = () => page.locator("#rows tbody .id").allTextContents();
  const more = page.locator("[data-more]");
  // A page reads so many records, and may add fewer rows or none.
  for (let pages = 0; pages < 100 && (await page.locator("#rows tbody > tr").count()) < 1000; pages += 1) {
    const before = await more.getAttribute("data-more");
    await more.click();
    await page.waitForFunction((before) => document.querySelector("[data-more]")?.dataset.more !== before, before);
  }
  const found = await ids();
  assert.ok(found.length >= 1000, `${found.length} rows`);
  assert.equal(new Set(found).size, found.length, "each row once");
  const { json } = await admin("/admin/v1/records?state=unknown&limit=1");
  await shows(`records/${json.records[0].operationId}`);
  await person.fine("very many records");
  await person.leave();
});
