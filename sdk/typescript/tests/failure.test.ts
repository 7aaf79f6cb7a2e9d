import assert from "node:assert/strict";
import { createServer as createHttpServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo, Server } from "node:net";
import { it } from "node:test";

import { classify } from "@semel/client";

import { selfSigned } from "./certificate.js";

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}

async function failureOf(url: string): Promise<string> {
  return fetch(url, { method: "POST", body: "x" }).then(
    () => "an answer",
    (error: unknown) => classify(error),
  );
}

await it("a closed port is a failed connection", async () => {
  const server = createHttpServer();
  const port = await listening(server);
  await new Promise((resolve) => server.close(resolve));
  assert.equal(await failureOf(`http://127.0.0.1:${String(port)}/`), "connect");
  assert.equal(await failureOf(`http://localhost:${String(port)}/`), "connect");
});

await it("a connection that is reset, closed or not HTTP is lost", async () => {
  for (const act of ["reset", "close", "garbage"]) {
    const server = createHttpServer();
    server.on("request", (request) => {
      request.resume().on("end", () => {
        if (act === "reset") request.socket.resetAndDestroy();
        else if (act === "close") request.socket.destroy();
        else request.socket.end("nonsense\r\n\r\n");
      });
    });
    const port = await listening(server);
    const failure = await failureOf(`http://127.0.0.1:${String(port)}/`);
    server.closeAllConnections();
    server.close();
    assert.equal(failure, "lost", act);
  }
});

await it("a certificate that nobody vouches for is refused as such", async () => {
  const server = createTlsServer(selfSigned(), (_request, response) => response.end("secret"));
  const port = await listening(server);
  const failure = await failureOf(`https://127.0.0.1:${String(port)}/`);
  server.close();
  assert.equal(failure, "certificate");
});

await it("a name that does not exist is a failed lookup", async () => {
  // A resolver that cannot be reached says that it does not know now.
  assert.ok(["unknown_host", "name"].includes(await failureOf("http://no-such-host.invalid/")));
});

await it("a system error counts as unsent only if the host was connecting", () => {
  const error = (code: string, syscall?: string): TypeError =>
    new TypeError("fetch failed", { cause: Object.assign(new Error(code), { code, syscall }) });
  assert.equal(classify(error("ETIMEDOUT", "connect")), "connect");
  assert.equal(classify(error("ETIMEDOUT", "read")), "lost");
  assert.equal(classify(error("EHOSTUNREACH", "write")), "lost");
  assert.equal(classify(error("ECONNRESET", "read")), "lost");
  assert.equal(classify(error("EPIPE", "write")), "lost");
  assert.equal(classify(error("UND_ERR_SOCKET")), "lost");
  assert.equal(classify(error("UND_ERR_HEADERS_TIMEOUT")), "lost");
  assert.equal(classify(error("UND_ERR_CONNECT_TIMEOUT")), "connect");
  assert.equal(classify(error("EAI_AGAIN", "getaddrinfo")), "name");
  assert.equal(classify(error("ENOTFOUND", "getaddrinfo")), "unknown_host");
  assert.equal(classify(error("CERT_HAS_EXPIRED")), "certificate");
  assert.equal(classify(error("ERR_TLS_CERT_ALTNAME_INVALID")), "certificate");
});

await it("several addresses of a host must fail alike to count as unsent", () => {
  const one = (code: string, syscall: string): Error => Object.assign(new Error(code), { code, syscall });
  const all = (...errors: Error[]): TypeError =>
    new TypeError("fetch failed", {
      cause: Object.assign(new AggregateError(errors), { code: "ECONNREFUSED" }),
    });
  assert.equal(classify(all(one("ECONNREFUSED", "connect"), one("EHOSTUNREACH", "connect"))), "connect");
  assert.equal(classify(all(one("ECONNREFUSED", "connect"), one("ECONNRESET", "read"))), "lost");
});

await it("errors of Deno are read from their text", () => {
  const error = (text: string): TypeError =>
    new TypeError(`error sending request for url (https://x/): ${text}`);
  assert.equal(
    classify(error("client error (Connect): tcp connect error: Connection refused (os error 111)")),
    "connect",
  );
  assert.equal(
    classify(
      error(
        "client error (Connect): dns error: failed to lookup address information: Name or service not known",
      ),
    ),
    "unknown_host",
  );
  assert.equal(
    classify(
      error(
        "client error (Connect): dns error: failed to lookup address information: Temporary failure in name resolution",
      ),
    ),
    "name",
  );
  assert.equal(
    classify(error("client error (Connect): invalid peer certificate: UnknownIssuer")),
    "certificate",
  );
  assert.equal(
    classify(error("client error (SendRequest): connection closed before message completed")),
    "lost",
  );
});

await it("an error that says nothing is lost", () => {
  assert.equal(classify(new TypeError("Failed to fetch")), "lost");
  assert.equal(classify("a text"), "lost");
  assert.equal(classify(undefined), "lost");
  const loop = new Error("a circle");
  loop.cause = loop;
  assert.equal(classify(loop), "lost");
});
