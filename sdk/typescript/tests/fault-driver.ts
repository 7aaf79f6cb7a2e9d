/**
 * Sends many commands, for a test with a fault proxy in front of a real server.
 *
 * `node fault-driver.js ORIGIN PATH COUNT JOURNAL` sends commands with the bodies `{"n": 0}`, `{"n": 1}` and so on, each
 * with the intent `command N`, sixteen at a time. It prints a line of JSON for each: `n`, `outcome` (`final`, `unknown`,
 * `accepted`, `unresolved` or `error:KIND`), `status`, `replayed`, `attempts`, `stopped`, `body`. The last line has
 * `pending`: the intents that the journal still has.
 */

import { semel, SemelError, type Outcome } from "@semel/client";
import { fileJournal } from "@semel/client/file";

const SIDE_BY_SIDE = 16;

const [origin = "", path = "", count = "0", place = ""] = process.argv.slice(2);
const journal = fileJournal(place);
const client = semel(fetch, {
  origins: [origin],
  profile: "semel",
  journal,
  baseMs: 10,
  deadlineMs: 60_000,
  maxAttempts: 30,
  budget: { tokens: 1_000_000 },
});
const lines: string[] = [];
let next = 0;

/** Returns the line of a command. */
async function shown(n: number, ended: Outcome | SemelError): Promise<string> {
  const { response, stopped, replayed } = ended as {
    response?: Response;
    stopped?: string;
    replayed?: boolean;
  };
  const outcome = ended instanceof SemelError ? `error:${ended.kind}` : ended.kind;
  const [status, body] = [response?.status ?? null, (await response?.text()) ?? null];
  const { attempts } = ended;
  return JSON.stringify({
    n,
    outcome,
    status,
    replayed: replayed ?? null,
    attempts,
    stopped: stopped ?? null,
    body,
  });
}

async function send(n: number): Promise<Outcome | SemelError> {
  const headers = { "content-type": "application/json" };
  try {
    const body = JSON.stringify({ n });
    return await client(origin + path, { method: "POST", headers, body, intent: `command ${String(n)}` });
  } catch (error) {
    if (error instanceof SemelError) return error;
    throw error;
  }
}

async function work(): Promise<void> {
  while (next < Number(count)) {
    const n = next;
    next += 1;
    lines[n] = await shown(n, await send(n));
  }
}

await Promise.all(Array.from({ length: SIDE_BY_SIDE }, work));
const pending = await client.pending();
for (const line of [...lines, JSON.stringify({ pending: pending.map(({ intent }) => intent) })])
  console.log(line);
await journal.close();
