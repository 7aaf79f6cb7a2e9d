import assert from "node:assert/strict";
import { it } from "node:test";

import { storageJournal, type Client } from "@semel/client";
import { Window } from "happy-dom";
import { StrictMode, type ReactNode } from "react";

import { clientOf, done, lost, ORIGIN, ScriptedFetch, signal } from "./support.js";

// React looks for its page when it is loaded.
const window = new Window({ url: `${ORIGIN}/orders/17` });
Object.assign(globalThis, { window, document: window.document, IS_REACT_ACT_ENVIRONMENT: true });
Object.defineProperty(globalThis, "navigator", { value: window.navigator, configurable: true });
const { act } = await import("react");
const { createRoot } = await import("react-dom/client");
const { renderToString } = await import("react-dom/server");
const { useOnce } = await import("@semel/client/react");

interface Props {
  readonly client: Client;
  readonly intent?: string;
}

function Pay({ client, intent = "order 17" }: Props): ReactNode {
  const { status, outcome, submit } = useOnce(client, intent);
  const pay = (): void => {
    void submit(`${ORIGIN}/payments`, { method: "POST", body: "5" });
  };
  return <button onClick={pay}>{outcome === undefined ? status : `${status} ${outcome.kind}`}</button>;
}

/** Renders a component, and returns its page and how to leave it. */
function render(node: ReactNode): { page: HTMLElement; leave: () => void } {
  const page = window.document.createElement("div") as unknown as HTMLElement;
  const root = createRoot(page);
  act(() => {
    root.render(<StrictMode>{node}</StrictMode>);
  });
  return {
    page,
    leave() {
      act(() => {
        root.unmount();
      });
    },
  };
}

function button(page: HTMLElement): HTMLButtonElement {
  const found = page.querySelector("button");
  assert.ok(found !== null);
  return found;
}

function client(script: ScriptedFetch): Client {
  const items = new Map<string, string>();
  const journal = storageJournal({
    getItem: (name) => items.get(name) ?? null,
    setItem: (name, value) => void items.set(name, value),
  });
  return clientOf(script.fetch, { journal, maxAttempts: 1 });
}

/** Clicks twice before React renders again. */
async function doubleClick(page: HTMLElement): Promise<void> {
  const pay = (button(page) as unknown as Record<string, { onClick: () => void }>)[propsName(page)];
  await act(async () => {
    pay?.onClick();
    pay?.onClick();
    await Promise.resolve();
  });
}

function propsName(page: HTMLElement): string {
  return Object.keys(button(page)).find((name) => name.startsWith("__reactProps")) ?? "";
}

async function settled(page: HTMLElement, text: string): Promise<void> {
  for (let turn = 0; turn < 1000 && page.textContent !== text; turn += 1) {
    await act(() => new Promise<void>((resolve) => setImmediate(resolve)));
  }
  assert.equal(page.textContent, text);
}

await it("two clicks before the next rendering send one command", async () => {
  const answer = signal<Response>();
  const script = new ScriptedFetch(() => answer.promise);
  const { page, leave } = render(<Pay client={client(script)} />);
  assert.equal(page.textContent, "idle");
  await doubleClick(page);
  await settled(page, "sending");
  answer.give(done());
  await settled(page, "done final");
  await doubleClick(page);
  assert.equal(script.sent.length, 1);
  leave();
});

await it("a component that is mounted again finds its command under way", async () => {
  const answer = signal<Response>();
  const script = new ScriptedFetch(() => answer.promise);
  const shared = client(script);
  const first = render(<Pay client={shared} />);
  await doubleClick(first.page);
  first.leave();
  const second = render(<Pay client={shared} />);
  assert.equal(second.page.textContent, "sending");
  await doubleClick(second.page);
  answer.give(done());
  await settled(second.page, "done final");
  assert.equal(script.sent.length, 1);
  second.leave();
});

await it("two components of one intent show one command, and another intent is another", async () => {
  const script = new ScriptedFetch(done(), done());
  const shared = client(script);
  const { page, leave } = render(
    <>
      <Pay client={shared} />
      <Pay client={shared} />
      <Pay client={shared} intent="order 18" />
    </>,
  );
  await doubleClick(page);
  await settled(page, "done finaldone finalidle");
  assert.equal(script.sent.length, 1);
  leave();
});

await it("a command whose outcome is open goes on under its key", async () => {
  const script = new ScriptedFetch(lost(), done());
  const { page, leave } = render(<Pay client={client(script)} />);
  await doubleClick(page);
  await settled(page, "open unresolved");
  await doubleClick(page);
  await settled(page, "done final");
  assert.equal(new Set(script.fields("idempotency-key")).size, 1);
  leave();
});

await it("the hook renders on a server", () => {
  assert.equal(renderToString(<Pay client={client(new ScriptedFetch())} />), "<button>idle</button>");
});
