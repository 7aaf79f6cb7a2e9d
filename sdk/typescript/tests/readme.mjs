/** Writes the examples of the README into files, so that they are compiled and run. */

import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const [readme, folder] = process.argv.slice(2);
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder);
const text = readFileSync(readme, "utf8");
const examples = [...text.matchAll(/^```(tsx?)\n\/\/ (\S+)\n(.*?)^```$/gms)];
if (examples.length !== text.match(/^```\w/gm)?.length)
  throw new Error("an example has no name in its first line");
for (const [, language, name, code] of examples) {
  if (!name.endsWith(`.${language}`)) throw new Error(`${name} is no ${language}`);
  writeFileSync(`${folder}/${name}`, `${code}export {};\n`);
}
