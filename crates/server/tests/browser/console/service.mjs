// The service behind the gateway, in a process of its own: node service.mjs [PORT]
//
// The header `X-Do` of a command has its instructions as JSON: `status`, `headers`, `body`, `outcome`; `hang` to say nothing;
// `charge` to be found by a look-up of the reconciler.
import { createServer } from "node:http";

const charges = new Set();
let count = 0;

const json = (response, status, value, type = "application/json") => {
  if (!response.hasHeader("Content-Type")) response.setHeader("Content-Type", type);
  response.writeHead(status);
  response.end(typeof value === "string" ? value : JSON.stringify(value));
};

const server = createServer((request, response) => {
  const url = new URL(request.url, "http://service");
  if (url.pathname === "/charges") {
    const id = url.searchParams.get("reference");
    return json(response, 200, charges.has(id) ? [{ reference: id, status: "captured", amount: 1200 }] : []);
  }
  if (url.pathname === "/ledger.ndjson") {
    const lines = Array.from({ length: 150 }, (_, index) => `{"key":"charge-${index}"}\n`);
    return json(response, 200, lines.join(""), "application/x-ndjson");
  }
  const id = request.headers["semel-operation-id"];
  const what = JSON.parse(request.headers["x-do"] || "{}");
  request.resume().on("end", () => {
    if (what.charge) charges.add(id);
    if (what.hang) return;
    count += 1;
    for (const [name, value] of Object.entries(what.headers ?? {})) response.setHeader(name, value);
    if (what.outcome) response.setHeader("Semel-Outcome", what.outcome);
    json(response, what.status ?? 201, what.body ?? { payment: count });
  });
});
server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => console.log(`127.0.0.1:${server.address().port}`));
