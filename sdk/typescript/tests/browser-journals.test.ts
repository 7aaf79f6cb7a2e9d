import assert from "node:assert/strict";
import { it } from "node:test";

import { SemelError, storageJournal, type JournalEntry } from "@semel/client";
import { indexedDbJournal } from "@semel/client/indexeddb";
import { IDBFactory } from "fake-indexeddb";

function entry(intent: string, key: string): JournalEntry {
  return { intent, key, digest: "00", origin: "https://api.example.com", caller: "", at: 1 };
}

function kind(expected: string): (error: unknown) => boolean {
  return (error) => error instanceof SemelError && error.kind === expected;
}

await it("one of two tabs gets an intent, and both see its key", async () => {
  const factory = new IDBFactory();
  const [one, two] = [indexedDbJournal("journal", factory), indexedDbJournal("journal", factory)];
  const results = await Promise.allSettled([
    one.begin(entry("a", "key one")),
    two.begin(entry("a", "key two")),
  ]);
  assert.deepEqual(results.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
  const refused = results.find((result) => result.status === "rejected");
  assert.ok(kind("intent_pending")(refused?.reason));
  assert.deepEqual(await one.pending(), await two.pending());
  assert.equal((await one.pending()).length, 1);
});

await it("an entry of IndexedDB is cleared by its own key only", async () => {
  const factory = new IDBFactory();
  const journal = indexedDbJournal("journal", factory);
  await journal.begin(entry("a", "key one"));
  await journal.begin(entry("b", "key two"));
  await journal.clear("a", "an older key");
  await journal.clear("c", "key one");
  assert.equal((await journal.pending()).length, 2);
  await journal.clear("a", "key one");
  assert.deepEqual(await journal.pending(), [entry("b", "key two")]);
  await journal.close();
  assert.deepEqual(await journal.pending(), [entry("b", "key two")], "a closed journal opens again");
});

await it("a database that cannot be opened is unavailable", async () => {
  const factory = new IDBFactory();
  const newer = factory.open("journal", 7);
  await new Promise((resolve) => {
    newer.onsuccess = resolve;
  });
  newer.result.close();
  await assert.rejects(indexedDbJournal("journal", factory).pending(), kind("journal_unavailable"));
  const absent = indexedDbJournal("journal", undefined);
  await assert.rejects(absent.pending(), kind("journal_unavailable"));
});

await it("a damaged item of the storage is refused, and left as it is", async () => {
  for (const text of ["nonsense", "{}", "null", "[7]", `[{"intent":"a"}]`]) {
    const items = new Map([["semel:journal", text]]);
    const journal = storageJournal({
      getItem: (name) => items.get(name) ?? null,
      setItem: (name, value) => void items.set(name, value),
    });
    await assert.rejects(journal.pending(), kind("journal_unavailable"), text);
    await assert.rejects(journal.begin(entry("b", "key")), kind("journal_unavailable"), text);
    assert.equal(items.get("semel:journal"), text);
  }
});
