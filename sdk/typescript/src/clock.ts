/** Time comes in through here, so that tests need not sleep. */

/** A source of time. */
export interface Clock {
  /** Returns the wall clock in milliseconds since 1970, for keys and journal entries. It may jump. */
  now(): number;
  /** Returns milliseconds that never jump, for deadlines. */
  monotonic(): number;
  /** Calls `fire` after `ms` milliseconds, unless the function that it returns is called before. */
  timer(ms: number, fire: () => void): () => void;
  /** Resolves after `ms` milliseconds, or as soon as `signal` aborts. Never rejects. */
  wait(ms: number, signal: AbortSignal | undefined): Promise<void>;
}

/** Longest time that hosts can wait for at once: beyond it, they do not wait at all. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The clock of the host. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  timer(ms, fire) {
    const id = setTimeout(fire, Math.min(ms, MAX_TIMER_MS));
    return () => {
      clearTimeout(id);
    };
  },
  wait(ms, signal) {
    return new Promise((resolve) => {
      if (signal?.aborted === true) {
        resolve();
        return;
      }
      const end = (): void => {
        clearTimeout(id);
        signal?.removeEventListener("abort", end);
        resolve();
      };
      const id = setTimeout(end, Math.min(ms, MAX_TIMER_MS));
      signal?.addEventListener("abort", end);
    });
  },
};
