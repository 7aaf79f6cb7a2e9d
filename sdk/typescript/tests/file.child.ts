/** A process that is killed: it begins an entry, or sends a command to a server that never answers. */

import { semel } from "@semel/client";
import { fileJournal } from "@semel/client/file";

const [path = "", origin] = process.argv.slice(2);
const journal = fileJournal(path);
const intent = "of the child";
if (origin === undefined) {
  await journal.begin({ intent, key: "a key", digest: "00", origin: "", caller: "", at: 1 });
  process.send?.("begun");
  process.on("message", () => undefined);
} else {
  const client = semel(fetch, { origins: [origin], profile: "semel", journal });
  const headers = { "content-type": "application/json" };
  await client(`${origin}/payments`, { method: "POST", body: `{"amount":5}`, headers, intent });
}
