// @node-idempotency/nestjs around the Node peers' handler, on the adapter that STORE names.
// LEASE_MS sets `cacheTTLMS`, the only time that it has: of a claim, and of an answer.
"use strict";

const { Idempotent, NodeIdempotencyModule } = require("@node-idempotency/nestjs");
const { serve } = require("./handler");

const options = { enforceIdempotency: true };
if (process.env.LEASE_MS) options.cacheTTLMS = Number(process.env.LEASE_MS);
const storage =
  process.env.STORE === "redis"
    ? { adapter: "redis", options: { url: process.env.REDIS_URL } }
    : { adapter: "memory" };

serve([Idempotent()], [NodeIdempotencyModule.forRootAsync({ storage, ...options })]);
