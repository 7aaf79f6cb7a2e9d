// A real browser for a test: opens a page, takes the test's steps, and fails if the page itself had anything to
// complain about. `semel_testkit::browser` runs the scripts that use it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

// Longer than a page should take for one step; the whole script has a bound of its own.
const patience = 20_000;

const installed = process.env.SEMEL_TEST_BROWSER;
const { chromium } = createRequire(join(installed, "package.json"))("playwright-core");

/** Starts a browser, which brings its own libraries and font. */
export function launch() {
  return chromium.launch({
    executablePath: join(installed, "chromium"),
    args: ["--no-zygote"],
    env: {
      ...process.env,
      FONTCONFIG_FILE: join(installed, "fonts.conf"),
      LD_LIBRARY_PATH: join(installed, "libraries", "lib"),
      XDG_CACHE_HOME: tmpdir(),
    },
  });
}

/** Returns a list that grows with each error that the page or its scripts report. */
export function complaintsOf(page) {
  const complaints = [];
  page.setDefaultTimeout(patience);
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  return complaints;
}

/**
 * Opens the address, runs `steps(page, complaints)`, and keeps a picture of how it ended in `picture`. A complaint
 * that the steps expect they take away.
 */
export async function visit(address, picture, steps) {
  const browser = await launch();
  try {
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    const complaints = complaintsOf(page);
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

/** Source of axe-core. It needs a context with `bypassCSP`, since it is no script of the page. */
export const axeSource = () => readFileSync(join(installed, "node_modules/axe-core/axe.min.js"), "utf8");

/** Returns what axe finds on the page against WCAG 2.1, levels A and AA: rule, impact and the elements. */
export async function audit(page) {
  const { violations } = await page.evaluate(() =>
    globalThis.axe.run(document, {
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
      resultTypes: ["violations"],
    }),
  );
  return violations.map(({ id, impact, nodes }) => ({
    id,
    impact,
    nodes: nodes
      .slice(0, 5)
      .map((node) => `${node.target.join(" ")}: ${node.failureSummary?.split("\n").slice(1, 3).join(" ")}`),
  }));
}
