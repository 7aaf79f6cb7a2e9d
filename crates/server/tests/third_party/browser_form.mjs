// Sends a form from a page in Chromium. `node browser_form.mjs CLIENT ADDRESS KEY NOTE` prints the answer's status, mark and problem
// code. CLIENT is browser-multipart or browser-urlencoded. SEMEL_TEST_BROWSER names the folder with the browser.
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const installed = process.env.SEMEL_TEST_BROWSER;
const { chromium } = createRequire(join(installed, "package.json"))("playwright-core");
const [client, address, key, note] = process.argv.slice(2);
const page = `<form><input name="note"><input name="file" type="file"></form>`;

// The form as the page's own script sends it.
async function send({ client, key }) {
  const form = new FormData(document.querySelector("form"));
  if (client === "browser-urlencoded") form.delete("file");
  const body = client === "browser-urlencoded" ? new URLSearchParams(form) : form;
  const answer = await fetch("/payments", { method: "POST", headers: { "Idempotency-Key": key }, body });
  const text = await answer.text();
  const code = answer.status >= 400 ? JSON.parse(text).code : null;
  return { status: answer.status, replayed: answer.headers.get("idempotency-replayed"), code };
}

const environment = {
  ...process.env,
  FONTCONFIG_FILE: join(installed, "fonts.conf"),
  LD_LIBRARY_PATH: join(installed, "libraries", "lib"),
  XDG_CACHE_HOME: tmpdir(),
};
const browser = await chromium.launch({ executablePath: join(installed, "chromium"), args: ["--no-zygote"], env: environment });
try {
  const tab = await browser.newPage();
  tab.setDefaultTimeout(20_000);
  // Only the form itself goes to the gateway.
  await tab.route((url) => url.pathname !== "/payments", (route) => route.fulfill({ contentType: "text/html", body: page }));
  await tab.goto(`http://${address}/`);
  await tab.fill("input[name=note]", note);
  await tab.setInputFiles("input[name=file]", { name: "ledger.csv", mimeType: "text/csv", buffer: Buffer.from("a,b\r\n1,2\r\n") });
  console.log(JSON.stringify(await tab.evaluate(send, { client, key })));
} finally {
  await browser.close();
}
