import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { it } from "node:test";
import { fileURLToPath } from "node:url";

const index = fileURLToPath(import.meta.resolve("@semel/client"));
const folder = dirname(dirname(index));
const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as {
  dependencies?: object;
  exports: Record<string, { types: string; default: string }>;
};

/** Returns the modules that a module of the package imports, its own files included. */
function imports(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  for (const [, name = ""] of readFileSync(file, "utf8").matchAll(
    /^(?:import|export) .*?from "([^"]+)";$/gms,
  )) {
    if (name.startsWith(".")) imports(join(dirname(file), name), seen);
    else seen.add(name);
  }
  return seen;
}

await it("the package that is tested is the packed one", () => {
  assert.match(relative(process.cwd(), index), /^tests\/node_modules\/@semel\/client\/dist\/index\.js$/);
  assert.deepEqual(readdirSync(folder).sort(), [
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "dist",
    "package.json",
  ]);
});

await it("the package has no dependencies", () => {
  assert.equal(manifest.dependencies, undefined);
});

await it("only the journal in a file imports modules of Node, and only the hook imports React", () => {
  for (const [name, { default: file }] of Object.entries(manifest.exports)) {
    const foreign = [...imports(join(folder, file))].filter((one) => !one.startsWith("/"));
    if (name === "./file")
      assert.ok(foreign.length > 0 && foreign.every((one) => one.startsWith("node:")), name);
    else assert.deepEqual(foreign, name === "./react" ? ["react"] : [], name);
  }
});

await it("each entry point can be loaded, and has types", async () => {
  for (const [name, { types }] of Object.entries(manifest.exports)) {
    const loaded = (await import(name.replace(".", "@semel/client"))) as object;
    assert.ok(Object.keys(loaded).length > 0, name);
    assert.ok(readFileSync(join(folder, types), "utf8").length > 0, name);
  }
});

await it("modules of the package form no import cycle", () => {
  const dist = join(folder, "dist");
  const files = (readdirSync(dist, { recursive: true }) as string[]).filter((name) => name.endsWith(".d.ts"));
  const edges = new Map<string, string[]>();
  for (const name of files) {
    const text = readFileSync(join(dist, name), "utf8");
    const targets = [...text.matchAll(/from "(\.[^"]+)\.js"/g)].map(([, to = ""]) => join(dirname(name), to));
    edges.set(name.replace(/\.d\.ts$/, ""), targets);
  }
  const open: string[] = [];
  const closed = new Set<string>();
  const visit = (name: string): void => {
    assert.ok(!open.includes(name), `${open.join(" → ")} → ${name}`);
    if (closed.has(name)) return;
    open.push(name);
    for (const target of edges.get(name) ?? []) visit(target);
    open.pop();
    closed.add(name);
  };
  for (const name of edges.keys()) visit(name);
  assert.ok(closed.size > 10);
});
