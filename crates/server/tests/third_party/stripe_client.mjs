// Creates a charge with stripe-node. `node stripe_client.mjs ADDRESS CALL` prints what the SDK returned or raised; CALL is JSON with
// `parameters`, `key` (null: the SDK draws one) and `retries`.
import Stripe from "stripe";

const [host, port] = process.argv[2].split(":");
const { parameters, key, retries } = JSON.parse(process.argv[3]);
const stripe = new Stripe("sk_test_local", { host, port, protocol: "http", maxNetworkRetries: retries });
try {
  const charge = await stripe.charges.create(parameters, key ? { idempotencyKey: key } : {});
  const { statusCode, headers } = charge.lastResponse;
  console.log(JSON.stringify({ id: charge.id, status: statusCode, replayed: headers["idempotent-replayed"] ?? null }));
} catch (error) {
  if (!(error instanceof Stripe.errors.StripeError)) throw error;
  const classes = Object.entries(Stripe.errors).filter(([, type]) => typeof type === "function" && type.prototype instanceof Error);
  const raised = classes.filter(([, type]) => error.constructor === type).map(([name]) => name)[0];
  console.log(JSON.stringify({ raised, type: error.rawType, code: error.code, status: error.statusCode }));
}
