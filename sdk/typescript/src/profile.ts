/** What kind of server a client talks to. */

/**
 * The rules of a server about keys.
 *
 * - `semel`: Semel's gateway or library, with all its header fields and codes.
 * - `ietf`: any other server that follows the IETF draft.
 * - `stripe`: Stripe, or a server that answers as Stripe does.
 */
export type Profile = "semel" | "ietf" | "stripe";
