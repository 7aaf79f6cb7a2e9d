/** A server on loopback that answers as its script says. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { Profile } from "@semel/client";

import type { ServerItem } from "./format.js";

/** Bytes of the beginning of a body that is cut. */
const CUT_BODY = "x".repeat(10);

/** A scripted server. */
export class ScriptedServer {
  /** The item that answers the next request. */
  next: ServerItem | undefined;
  /** The profile whose problem documents it writes. */
  profile: Profile = "semel";
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      request.resume().on("end", () => {
        this.#answer(request, response);
      });
      request.on("error", () => undefined);
    });
  }

  static async start(): Promise<ScriptedServer> {
    const scripted = new ScriptedServer();
    await new Promise<void>((resolve) => scripted.#server.listen(0, "127.0.0.1", resolve));
    return scripted;
  }

  get origin(): string {
    return `http://127.0.0.1:${String((this.#server.address() as AddressInfo).port)}`;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const item = this.next ?? { status: 599, body: "no item is left" };
    this.next = undefined;
    const { socket } = request;
    switch (item.fault) {
      case "reset":
      case "cancel":
        socket.resetAndDestroy();
        return;
      case "close":
        socket.destroy();
        return;
      case "garbage":
        socket.end("this is not HTTP\r\n\r\n");
        return;
      case "cut":
        this.#head(response, item, { "Content-Length": "100" });
        response.write(CUT_BODY, () => socket.end());
        return;
      case undefined:
        break;
      default:
        throw new Error(`the server cannot make the fault ${item.fault}`);
    }
    const { type, body } = this.#body(item);
    const headers = type === undefined ? {} : { "Content-Type": type };
    this.#head(response, item, { ...headers, "Content-Length": String(Buffer.byteLength(body)) });
    response.end(item.status === 204 ? undefined : body);
  }

  #head(response: ServerResponse, item: ServerItem, fields: Readonly<Record<string, string>>): void {
    response.statusCode = item.status ?? 200;
    for (const [name, value] of Object.entries(fields)) response.setHeader(name, value);
    for (const [name, value] of Object.entries(item.headers ?? {})) {
      const values = typeof value === "string" ? [value] : value;
      response.setHeader(
        name,
        values.map((one) => one.replaceAll("$origin", this.origin)),
      );
    }
  }

  #body(item: ServerItem): { type: string | undefined; body: string } {
    if (item.problem !== undefined) return this.#problem(item, item.problem);
    if (item.bodySize !== undefined) return { type: undefined, body: "x".repeat(item.bodySize) };
    if (item.body === undefined) return { type: undefined, body: "" };
    if (typeof item.body === "string") return { type: undefined, body: item.body };
    return { type: "application/json", body: JSON.stringify(item.body).replaceAll("$origin", this.origin) };
  }

  #problem(item: ServerItem, code: string): { type: string; body: string } {
    const { operation } = item;
    const url = item.operationUrl?.replaceAll("$origin", this.origin);
    const about = operation && {
      operationId: operation,
      operationUrl: url ?? `/.well-known/semel/operations/${operation}`,
    };
    if (this.profile === "stripe") {
      const error = { type: "api_error", code: code.toLowerCase(), message: "…", ...(about ?? {}) };
      return { type: "application/json", body: JSON.stringify({ error }) };
    }
    const slug = code.toLowerCase().replaceAll("_", "-");
    const problem = { type: `urn:semel:problem:${slug}`, title: "…", status: item.status, detail: "…", code };
    return { type: "application/problem+json", body: JSON.stringify({ ...problem, ...(about ?? {}) }) };
  }
}
