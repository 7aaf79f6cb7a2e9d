/** The retry budget: a bucket of tokens that all calls of a client share, so that an outage does not become a storm. */
/** Tokens of a full bucket. */
export const BUDGET_TOKENS = 500;
/** Tokens that a retry costs. */
export const RETRY_COST = 14;
/** Tokens that a final answer gives back. */
export const FINAL_REFUND = 1;
/** A bucket of tokens. */
export class RetryBudget {
    #tokens;
    #full;
    #refund;
    /** Makes a full bucket. */
    constructor(tokens = BUDGET_TOKENS, refund = FINAL_REFUND) {
        this.#full = tokens;
        this.#tokens = tokens;
        this.#refund = refund;
    }
    /** The tokens that are left. */
    get tokens() {
        return this.#tokens;
    }
    /** Takes these tokens, which a decision has found there. */
    take(tokens) {
        this.#tokens -= tokens;
    }
    /** Puts the tokens of a final answer back. */
    refund() {
        this.#tokens = Math.min(this.#full, this.#tokens + this.#refund);
    }
}
