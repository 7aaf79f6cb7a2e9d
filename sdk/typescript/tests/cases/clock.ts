/** A clock that tests move: no test waits for time. */

import type { Clock } from "@semel/client";

interface Timer {
  readonly ms: number;
  readonly fire: () => void;
}

/** A clock of which each wait returns at once. */
export class ManualClock implements Clock {
  /** The waits that were asked for, in milliseconds. */
  waits: number[] = [];
  /** Is called as a wait begins, with its number from 1. */
  onWait: ((number: number) => void) | undefined;
  #wall: number;
  #monotonic = 0;
  readonly #timers = new Set<Timer>();

  constructor(wall: number) {
    this.#wall = wall;
  }

  now(): number {
    return this.#wall;
  }

  monotonic(): number {
    return this.#monotonic;
  }

  timer(ms: number, fire: () => void): () => void {
    const timer = { ms, fire };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
    this.waits.push(ms);
    this.onWait?.(this.waits.length);
    if (signal?.aborted !== true) this.advance(ms);
    return Promise.resolve();
  }

  /** Moves both clocks on. */
  advance(ms: number): void {
    this.#wall += ms;
    this.#monotonic += ms;
  }

  /** Moves the wall clock only. */
  jump(ms: number): void {
    this.#wall += ms;
  }

  /** Moves both clocks on by the attempt's timeout, without telling the attempt. */
  passTimeout(): Timer {
    const [timer] = this.#timers;
    if (timer === undefined) throw new Error("the attempt has no timeout");
    this.advance(timer.ms);
    return timer;
  }

  /** Lets the attempt's timeout end it. */
  fireTimeout(): void {
    this.passTimeout().fire();
  }
}
