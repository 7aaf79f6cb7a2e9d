import assert from "node:assert/strict";
import { it } from "node:test";

import { SpanStatusCode, trace } from "@opentelemetry/api";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";

import { clientOf, done, lost, ORIGIN, ScriptedFetch } from "./support.js";

const KEY = "the-secret-key-of-order-17";

await it("each attempt has a span where OpenTelemetry is present, without the key", async () => {
  const exporter = new InMemorySpanExporter();
  trace.setGlobalTracerProvider(
    new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
  );
  try {
    const script = new ScriptedFetch(lost(), new Response(null, { status: 503 }), done());
    await clientOf(script.fetch)(`${ORIGIN}/payments/4711`, { method: "POST", key: KEY });
  } finally {
    trace.disable();
  }
  const spans = exporter.getFinishedSpans();
  const common = { "http.request.method": "POST", "server.address": "api.example.com" };
  const rest = (count: number, waitMs: number, reason: string): object => ({
    "http.request.resend_count": count,
    "semel.attempt.wait_ms": waitMs,
    "semel.attempt.reason": reason,
  });
  assert.deepEqual(
    spans.map(({ attributes, status }) => ({ ...attributes, failed: status.code === SpanStatusCode.ERROR })),
    [
      { ...common, ...rest(0, 0, "first"), "error.type": "lost", failed: true },
      { ...common, ...rest(1, 50, "lost"), "http.response.status_code": 503, failed: true },
      { ...common, ...rest(2, 100, "answer"), "http.response.status_code": 201, failed: false },
    ],
  );
  assert.ok(!JSON.stringify(spans.map(({ name, attributes }) => [name, attributes])).includes("4711"));
});

await it("telemetry that fails does not stop a command", async () => {
  trace.setGlobalTracerProvider({
    getTracer() {
      throw new Error("the tracer is broken");
    },
  });
  try {
    const outcome = await clientOf(new ScriptedFetch(done()).fetch)(`${ORIGIN}/payments`, { method: "POST" });
    assert.equal(outcome.kind, "final");
  } finally {
    trace.disable();
  }
});
