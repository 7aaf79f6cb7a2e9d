// The handler that every Node peer stands in front of: one payment, one row, one answer; and the NestJS
// application around it, which is handed the decorators that protect `POST /payments`.
//
// What it does is told by the environment, the same for the peers in all languages: PORT, WORK (insert or none),
// DATABASE_URL, and SLEEP_BEFORE_MS and SLEEP_AFTER_MS around the INSERT.
"use strict";

require("reflect-metadata");
const { randomUUID } = require("node:crypto");
const { setTimeout: sleep } = require("node:timers/promises");
const { Body, Controller, Get, Headers, HttpCode, Module, Post, Res } = require("@nestjs/common");
const { NestFactory } = require("@nestjs/core");
const { Pool } = require("pg");

const CONNECTIONS = 16;
const INSERT = "INSERT INTO payments (id, amount, currency, idempotency_key) VALUES ($1, $2, $3, $4)";

const work = process.env.WORK;
if (work !== "insert" && work !== "none") throw new Error(`WORK is ${work}; it must be insert or none`);
const before = Number(process.env.SLEEP_BEFORE_MS ?? 0);
const after = Number(process.env.SLEEP_AFTER_MS ?? 0);
const pool =
  work === "insert" ? new Pool({ connectionString: process.env.DATABASE_URL, max: CONNECTIONS }) : undefined;
// A connection that is lost while nobody uses it must not end the process.
pool?.on("error", (error) => console.error(`a connection was lost: ${error.message}`));

let runs = 0;
let inserted = 0;

class Payments {
  async pay(payment, key, response) {
    runs += 1;
    if (before) await sleep(before);
    const id = randomUUID();
    if (pool) {
      const values = [id, payment.amount, payment.currency, key ?? ""];
      await pool.query({ name: "insert", text: INSERT, values });
    }
    inserted += 1;
    if (after) await sleep(after);
    response.header("Location", `/payments/${id}`);
    return { id, amount: payment.amount };
  }

  count() {
    return String(runs);
  }

  rows() {
    return String(inserted);
  }
}

// What TypeScript would make of the decorators.
function decorate(decorators, name) {
  const descriptor = Object.getOwnPropertyDescriptor(Payments.prototype, name);
  for (const decorator of decorators.reverse()) decorator(Payments.prototype, name, descriptor);
}

async function serve(protection, imports) {
  Reflect.defineMetadata("design:paramtypes", [Object, String, Object], Payments.prototype, "pay");
  Body()(Payments.prototype, "pay", 0);
  Headers("idempotency-key")(Payments.prototype, "pay", 1);
  Res({ passthrough: true })(Payments.prototype, "pay", 2);
  decorate([...protection, Post("payments"), HttpCode(201)], "pay");
  decorate([Get("count")], "count");
  decorate([Get("inserted")], "rows");
  Controller()(Payments);
  class Application {}
  Module({ imports, controllers: [Payments] })(Application);
  const application = await NestFactory.create(Application, { logger: ["error", "warn"] });
  await application.listen(Number(process.env.PORT), "127.0.0.1");
}

module.exports = { serve };
