/** The checks of requests. */

import assert from "node:assert/strict";

import type { Profile } from "@semel/client";

import type { Expectation } from "./format.js";
import type { Recorded } from "./transport.js";

/** A UUID of version 7. */
const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const SAFE_METHODS = ["GET", "HEAD", "OPTIONS", "TRACE"];

/** Compares the members that are expected. */
export function same(got: unknown, expected: Readonly<Record<string, unknown>>, what: string): void {
  for (const [name, value] of Object.entries(expected)) {
    const found = (got as Record<string, unknown> | undefined)?.[name];
    assert.deepEqual(found ?? null, value, `${what}: ${name}`);
  }
}

/** Checks what holds for the requests of each call. */
export function checkEveryRequest(
  requests: readonly Recorded[],
  origin: string,
  profile: Profile,
  isDrawn: boolean,
): void {
  const [first, ...others] = requests.filter(({ method }) => !SAFE_METHODS.includes(method));
  for (const { method, url, headers, body } of others) {
    assert.deepEqual([method, url, keyOf(headers)], [first?.method, first?.url, keyOf(first?.headers)]);
    assert.deepEqual(body, first?.body, "each send has the same body");
  }
  for (const { method, url, headers, body } of requests) {
    const key = keyOf(headers);
    if (new URL(url).origin === origin || key !== null) assert.equal(new URL(url).origin, origin);
    if (SAFE_METHODS.includes(method)) {
      assert.equal(key, null, "a request that is no command has no key");
      if (method === "GET") assert.equal(body.length, 0);
    }
    const deadline = headers.get("semel-deadline");
    if (profile === "semel" && key !== null) assert.match(deadline ?? "", /^[1-9]\d*$/);
    else assert.equal(deadline, null);
    if (isDrawn && key !== null) {
      const isQuoted = profile !== "stripe";
      const bare = isQuoted ? /^"(.*)"$/.exec(key)?.[1] : key;
      assert.match(bare ?? "", UUID_V7);
    }
  }
}

/** Checks the requests that a call expects; `keys` are those of the case so far. */
export function checkRequests(expect: Expectation, requests: readonly Recorded[], keys: string[]): void {
  if (expect.requests !== undefined) {
    const sent = requests.map(({ method, url }) => `${method} ${url}`).join(", ");
    assert.equal(requests.length, expect.requests.length, `requests: ${sent}`);
  }
  for (const [index, { method, url, headers, body }] of requests.entries()) {
    const what = `request ${String(index + 1)}`;
    const expected = expect.requests?.[index] ?? {};
    const key = keyOf(headers);
    if (expected.method !== undefined) assert.equal(method, expected.method, what);
    if (expected.path !== undefined) {
      const { pathname, search } = new URL(url);
      assert.equal(pathname + search, expected.path, what);
    }
    switch (expected.key) {
      case undefined:
        break;
      case "absent":
        assert.equal(key, null, what);
        break;
      case "same":
        assert.ok(key !== null && key === keys[0], `${what} has the first key`);
        break;
      case "new":
        assert.ok(key !== null && !keys.includes(key), `${what} has a new key`);
        break;
      default:
        assert.equal(key, expected.key.is, what);
    }
    if (key !== null) keys.push(key);
    for (const [name, value] of Object.entries(expected.headers ?? {})) {
      assert.equal(headers.get(name), value, `${what}: ${name}`);
    }
    if (expected.body === undefined) continue;
    const text = new TextDecoder().decode(body);
    if (typeof expected.body === "string") assert.equal(text, expected.body, what);
    else assert.deepEqual(text === "" ? null : JSON.parse(text), expected.body, what);
  }
}

function keyOf(headers: Headers | undefined): string | null {
  return headers?.get("idempotency-key") ?? null;
}
