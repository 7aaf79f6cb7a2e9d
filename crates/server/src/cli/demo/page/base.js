// What the parts of the page share: the service as it was last seen, what a reload keeps, and small means.

// The service as it was last seen. Its ledger is not current while it cannot be read: what it had before says nothing
// about the payment now.
export const service = { shop: null, isCurrent: false };
// What a reload keeps: the demo that was met, the payment of this page, and the payments that are left to be settled.
export const page = { demo: null, payment: begun(), left: [], ...JSON.parse(sessionStorage.getItem("page")) };

export function begun() {
  const chance = crypto.getRandomValues(new Uint8Array(10));
  const digits = Array.from(chance, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { key: `demo-${digits}`, operation: null, amount: "50", tries: 0, charged: 0, unclear: 0, answer: null };
}

export function keep(changes) {
  Object.assign(page, changes);
  sessionStorage.setItem("page", JSON.stringify(page));
}

export const element = (id) => document.getElementById(id);
export const keepPayment = (changes) => keep({ payment: { ...page.payment, ...changes } });
export const around = () => service.shop?.introduction ?? null;
// The page of the service itself, past the gateway, has the port of the service.
export const isPastSemel = () => around() !== null && around().service.split(":").pop() === location.port;
export const consolePage = (path) => `http://${around().admin}/console/#/${path}`;
export const chargeOf = (operation) =>
  service.shop?.charges.find((charge) => charge.operation && charge.operation === operation);
export const ask = (path, options = {}, limit = 3000) =>
  fetch(path, { cache: "no-store", signal: AbortSignal.timeout(limit), ...options });

export function part(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

export function write(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

export function recordLink(operation, text) {
  const link = part("a", "", text);
  link.href = consolePage(`records/${encodeURIComponent(operation)}`);
  link.target = "_blank";
  link.rel = "noreferrer";
  return link;
}
