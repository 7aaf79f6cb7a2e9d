/** Every case of sdk/cases, against a scripted server on loopback, with each journal. */

import { after, before, describe, it } from "node:test";

import { readCases, type Case } from "./cases/format.js";
import { JOURNALS } from "./cases/journals.js";
import { CaseRun } from "./cases/runner.js";
import { ScriptedServer } from "./cases/server.js";

const folder = process.env["SEMEL_CASES"];
if (folder === undefined) throw new Error("SEMEL_CASES is the folder of the shared cases");
const cases = readCases(folder);
if (cases.length === 0) throw new Error("there are no shared cases");

await describe("shared cases", async () => {
  let server: ScriptedServer;
  before(async () => {
    server = await ScriptedServer.start();
  });
  after(() => server.stop());

  for (const one of cases) {
    for (const kind of journalsOf(one)) {
      await it(kind === undefined ? one.name : `${one.name} (${kind})`, async () => {
        const journal = kind === undefined ? undefined : JOURNALS[kind]?.(one.journal !== "unwritable");
        try {
          await new CaseRun(one, server, journal).run();
        } finally {
          journal?.remove();
        }
      });
    }
  }
});

/** Returns the journals that a case runs with. */
function journalsOf(one: Case): (string | undefined)[] {
  if (one.journal === undefined || one.journal === false) return [undefined];
  const isTorn = one.calls.some((call) => call.do === "tear_journal");
  return isTorn ? ["file"] : Object.keys(JOURNALS);
}
