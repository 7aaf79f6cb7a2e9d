import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it, mock } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

import { semel, SemelError, type JournalEntry } from "@semel/client";
import { fileJournal } from "@semel/client/file";

import { clientOf, done, ORIGIN, ScriptedFetch } from "./support.js";

const CHILD = fileURLToPath(new URL("./file.child.js", import.meta.url));
const PAYMENTS = `${ORIGIN}/payments`;

function entry(intent: string, key = `key of ${intent}`): JournalEntry {
  return { intent, key, digest: "00", origin: ORIGIN, caller: "", at: 1 };
}

async function inFolder(act: (path: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "semel-file-"));
  try {
    await act(join(folder, "journal"));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function kind(expected: string): (error: unknown) => boolean {
  return (error) => error instanceof SemelError && error.kind === expected;
}

async function intents(path: string): Promise<string[]> {
  return (await fileJournal(path).pending()).map(({ intent }) => intent);
}

await it("the entry is in the file before the command is sent, and nobody else may read it", async () => {
  await inFolder(async (path) => {
    const journal = fileJournal(path);
    const script = new ScriptedFetch((_url, init) => {
      const { begin } = JSON.parse(readFileSync(path, "utf8")) as { begin: JournalEntry };
      assert.equal(new Headers(init.headers).get("idempotency-key"), `"${begin.key}"`);
      assert.equal(begin.intent, "invoice 4711");
      return done();
    });
    const outcome = await clientOf(script.fetch, { journal })(PAYMENTS, {
      method: "POST",
      intent: "invoice 4711",
    });
    assert.equal(outcome.kind, "final");
    assert.deepEqual(readFileSync(path, "utf8").split("\n")[1], `{"clear":"invoice 4711"}`);
    if (process.platform !== "win32") assert.equal(statSync(path).mode & 0o777, 0o600);
    await journal.close();
    assert.ok(!existsSync(`${path}.lock`));
  });
});

await it("a journal whose disk does not confirm fails before anything is sent", async () => {
  await inFolder(async (path) => {
    const journal = fileJournal(path);
    await journal.begin(entry("a"));
    const handle = await open(path, "r");
    const prototype = Object.getPrototypeOf(handle) as FileHandle;
    await handle.close();
    const sync = mock.method(prototype, "sync", () => Promise.reject(new Error("EIO")));
    const script = new ScriptedFetch(done());
    const client = clientOf(script.fetch, { journal });
    const send = (): Promise<unknown> => client(PAYMENTS, { method: "POST", intent: "b" });
    await assert.rejects(send(), kind("journal_unavailable"));
    assert.equal(sync.mock.callCount(), 1);
    assert.equal(script.sent.length, 0);
    sync.mock.restore();
    assert.deepEqual(await intents(path), ["a"]);
    await send();
    assert.equal(script.sent.length, 1);
    await journal.close();
    assert.deepEqual(await intents(path), ["a"], "the line that was not confirmed is gone");
    await journal.close();
  });
});

await it("two journals of one file are one, and one of two callers gets an intent", async () => {
  await inFolder(async (path) => {
    const results = await Promise.allSettled([
      fileJournal(path).begin(entry("a", "key one")),
      fileJournal(path).begin(entry("a", "key two")),
    ]);
    assert.deepEqual(
      results.map(({ status }) => status),
      ["fulfilled", "rejected"],
    );
    assert.ok(results[1].status === "rejected" && kind("intent_pending")(results[1].reason));
    await fileJournal(path).clear("a", "key two");
    assert.deepEqual(await intents(path), ["a"], "an entry is cleared by its own key only");
    await fileJournal(path).close();
  });
});

await it("a torn line is cut off before the next one is written", async () => {
  await inFolder(async (path) => {
    const journal = fileJournal(path);
    await journal.begin(entry("a"));
    await journal.close();
    const whole = readFileSync(path, "utf8");
    // Longer than the line that comes after it.
    appendFileSync(path, `{"begin":{"intent":"b","key":"${"x".repeat(1000)}`);
    assert.deepEqual(await intents(path), ["a"]);
    await journal.begin(entry("c"));
    await journal.close();
    const text = readFileSync(path, "utf8");
    assert.ok(text.startsWith(`${whole}{"begin":{"intent":"c"`));
    assert.ok(text.endsWith("\n"), "nothing of the torn line is left");
    assert.deepEqual(await intents(path), ["a", "c"]);
    await journal.close();
  });
});

await it("a damaged file is refused, and left as it is", async () => {
  const line = (value: object): string => `${JSON.stringify(value)}\n`;
  const begun = line({ begin: entry("a") });
  const damaged = [
    `${begun}nonsense\n`,
    `\n${begun}`,
    `[]\n${begun}`,
    line({ begin: { ...entry("a"), key: 7 } }),
    line({ other: "a" }),
    begun + line({ begin: entry("a", "another key") }),
    '{"clear":"\xff"}\n',
  ];
  for (const text of damaged) {
    await inFolder(async (path) => {
      writeFileSync(path, text, "latin1");
      const journal = fileJournal(path);
      await assert.rejects(journal.pending(), kind("journal_unavailable"), text);
      await assert.rejects(journal.begin(entry("b")), kind("journal_unavailable"), text);
      assert.equal(readFileSync(path, "latin1"), text);
      await journal.close();
    });
  }
});

await it("a journal that cannot be a file fails before anything is sent", async () => {
  await inFolder(async (path) => {
    mkdirSync(path);
    const script = new ScriptedFetch();
    const client = clientOf(script.fetch, { journal: fileJournal(path) });
    await assert.rejects(client(PAYMENTS, { method: "POST", intent: "a" }), kind("journal_unavailable"));
    assert.equal(script.sent.length, 0);
    assert.ok(!existsSync(`${path}.lock`), "the lock does not stay");
  });
});

await it("a journal in a folder that does not exist works once the folder does", async () => {
  await inFolder(async (path) => {
    const journal = fileJournal(join(path, "journal"));
    await assert.rejects(journal.begin(entry("a")), kind("journal_unavailable"));
    mkdirSync(path);
    await journal.begin(entry("a"));
    assert.equal((await journal.pending()).length, 1);
    await journal.close();
  });
});

await it("a long file is written anew with the pending entries in their order", async () => {
  await inFolder(async (path) => {
    const journal = fileJournal(path);
    await journal.begin(entry("first"));
    for (let number = 0; number < 510; number += 1) {
      await journal.begin(entry(`passing ${String(number)}`));
      await journal.clear(`passing ${String(number)}`, `key of passing ${String(number)}`);
    }
    await journal.begin(entry("last"));
    const lines = readFileSync(path, "utf8").split("\n").length;
    assert.ok(lines < 100, `${String(lines)} lines`);
    assert.deepEqual(await intents(path), ["first", "last"]);
    await journal.close();
    assert.deepEqual(await intents(path), ["first", "last"]);
    await journal.close();
    assert.ok(!existsSync(`${path}.new`));
  });
});

await it("a file that another process uses is refused, and free once that process was killed", async () => {
  await inFolder(async (path) => {
    const child = fork(CHILD, [path]);
    const [begun] = (await once(child, "message")) as [unknown];
    assert.equal(begun, "begun");
    const journal = fileJournal(path);
    await assert.rejects(journal.pending(), kind("journal_unavailable"));
    child.kill("SIGKILL");
    await once(child, "exit");
    assert.ok(existsSync(`${path}.lock`), "a killed process leaves its lock");
    assert.deepEqual(await intents(path), ["of the child"]);
    await journal.close();
  });
});

await it("a lock is taken away only from a process that is proven to be gone", async () => {
  await inFolder(async (path) => {
    const journal = fileJournal(path);
    await journal.begin(entry("a"));
    const own = JSON.parse(readFileSync(`${path}.lock`, "utf8")) as Record<string, unknown>;
    await journal.close();
    const gone = fork(CHILD, [`${path}.other`]);
    gone.kill("SIGKILL");
    await once(gone, "exit");
    const hasProc = own["start"] !== "";
    const locks: [string | object, boolean][] = [
      [own, false],
      [{ ...own, host: "another host" }, false],
      [{ ...own, host: "another host", boot: "another", pid: gone.pid }, false],
      [{ ...own, space: "another", pid: gone.pid }, false],
      [String(process.pid), false],
      ["", false],
      [{ ...own, pid: gone.pid }, true],
      [{ ...own, pid: process.ppid }, !hasProc ? false : true],
      ...(hasProc ? ([[{ ...own, start: "1" }, true]] as [object, boolean][]) : []),
      ...(hasProc ? ([[{ ...own, boot: "an earlier one" }, true]] as [object, boolean][]) : []),
    ];
    for (const [content, isFree] of locks) {
      const text = typeof content === "string" ? content : JSON.stringify(content);
      writeFileSync(`${path}.lock`, text);
      if (isFree) {
        assert.deepEqual(await intents(path), ["a"], text);
        await journal.close();
        continue;
      }
      await assert.rejects(
        journal.pending(),
        (error) => kind("journal_unavailable")(error) && (error as Error).message.includes(`${path}.lock`),
        text,
      );
      assert.equal(readFileSync(`${path}.lock`, "utf8"), text);
      rmSync(`${path}.lock`);
    }
  });
});

await it("another thread of the process does not get the file", async () => {
  await inFolder(async (path) => {
    const journal = fileJournal(path);
    await journal.begin(entry("a"));
    const worker = new Worker(CHILD, { argv: [path] });
    const [error] = (await once(worker, "error")) as [Error];
    assert.match(error.message, /the journal cannot be used/);
    await journal.begin(entry("b"));
    assert.deepEqual(await intents(path), ["a", "b"]);
    await journal.close();
  });
});

await it("a command of a process that was killed while it waited goes on under its key", async () => {
  await inFolder(async (path) => {
    const keys: (string | string[] | undefined)[] = [];
    let isHanging = true;
    const server = createServer((request, response) => {
      keys.push(request.headers["idempotency-key"]);
      if (isHanging) server.emit("hanging");
      else
        response.writeHead(201, { "Idempotency-Operation-Id": "op_1", "Idempotency-Replayed": "true" }).end();
    });
    server.listen(0, "127.0.0.1");
    try {
      await once(server, "listening");
      const origin = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
      const hanging = once(server, "hanging");
      const child = fork(CHILD, [path, origin]);
      await hanging;
      child.kill("SIGKILL");
      await once(child, "exit");
      isHanging = false;

      const journal = fileJournal(path);
      const client = semel(fetch, { origins: [origin], profile: "semel", journal });
      const request = {
        method: "POST",
        body: `{"amount":5}`,
        headers: { "content-type": "application/json" },
      };
      const changed = { ...request, body: `{"amount":6}` };
      await assert.rejects(
        client.resume("of the child", `${origin}/payments`, changed),
        kind("request_changed"),
      );
      const outcome = await client.resume("of the child", `${origin}/payments`, request);
      assert.ok(outcome.kind === "final" && outcome.replayed);
      assert.equal(keys.length, 2);
      assert.equal(keys[0], keys[1]);
      assert.deepEqual(await client.pending(), []);
      await journal.close();
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});
