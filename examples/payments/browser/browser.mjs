// A real browser for a test: opens a page, takes the test's steps, and fails if the page itself had anything to
// complain about. Scripts that use it are run by `tests/it/browser.rs`.
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

// Longer than a page should take for one step; the whole script has a bound of its own.
const patience = 20_000;

const installed = process.env.SEMEL_TEST_BROWSER;
const { chromium } = createRequire(join(installed, "package.json"))("playwright-core");

/**
 * Opens the address, runs `steps(page, complaints)`, and keeps a picture of how it ended in `picture`. A complaint
 * that the steps expect they take away.
 */
export async function visit(address, picture, steps) {
  const browser = await chromium.launch({
    executablePath: join(installed, "chromium"),
    args: ["--no-zygote"],
    env: {
      ...process.env,
      FONTCONFIG_FILE: join(installed, "fonts.conf"),
      LD_LIBRARY_PATH: join(installed, "libraries", "lib"),
      XDG_CACHE_HOME: tmpdir(),
    },
  });
  try {
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    page.setDefaultTimeout(patience);
    const complaints = [];
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("console", (message) => {
      if (message.type() === "error") complaints.push(message.text());
    });
    try {
      await page.goto(address);
      await steps(page, complaints);
      if (complaints.length > 0) throw new Error(`the page complained: ${complaints.join("; ")}`);
    } finally {
      await page.screenshot({ path: picture, fullPage: true });
    }
  } finally {
    await browser.close();
  }
}
