/** Time comes in through here, so that tests need not sleep. */
/** Longest time that hosts can wait for at once: beyond it, they do not wait at all. */
const MAX_TIMER_MS = 2 ** 31 - 1;
/** The clock of the host. */
export const systemClock = {
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
            const end = () => {
                clearTimeout(id);
                signal?.removeEventListener("abort", end);
                resolve();
            };
            const id = setTimeout(end, Math.min(ms, MAX_TIMER_MS));
            signal?.addEventListener("abort", end);
        });
    },
};
