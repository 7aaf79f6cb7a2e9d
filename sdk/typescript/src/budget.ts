/** The retry budget: a bucket of tokens that all calls of a client share, so that an outage does not become a storm. */

/** Tokens of a full bucket. */
export const BUDGET_TOKENS = 500;
/** Tokens that a retry costs. */
export const RETRY_COST = 14;
/** Tokens that a final answer gives back. */
export const FINAL_REFUND = 1;

/** A bucket of tokens. */
export class RetryBudget {
  #tokens: number;
  readonly #full: number;
  readonly #refund: number;

  /** Makes a full bucket. */
  constructor(tokens: number = BUDGET_TOKENS, refund: number = FINAL_REFUND) {
    this.#full = tokens;
    this.#tokens = tokens;
    this.#refund = refund;
  }

  /** The tokens that are left. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Takes these tokens, which a decision has found there. */
  take(tokens: number): void {
    this.#tokens -= tokens;
  }

  /** Puts the tokens of a final answer back. */
  refund(): void {
    this.#tokens = Math.min(this.#full, this.#tokens + this.#refund);
  }
}
