//! Time and chance of a case: waits return at once, and attempts expire only where the script says so.

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use semel_client::{Cancellation, ClientClock, ClientFuture, RandomSource};

/// Clock whose waits return at once. Clones are one clock.
#[derive(Clone)]
pub(crate) struct ManualClock(Arc<Mutex<Hands>>);

struct Hands {
    wall: u64,
    monotonic: u64,
    waits: Vec<u64>,
    cancel_in_wait: Option<(usize, Cancellation)>,
    expires: bool,
}

impl ManualClock {
    pub(crate) fn new(wall: u64) -> ManualClock {
        let hands = Hands { wall, monotonic: 5000, waits: Vec::new(), cancel_in_wait: None, expires: false };
        ManualClock(Arc::new(Mutex::new(hands)))
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().unwrap()
    }

    /// Adds to both clocks.
    pub(crate) fn advance(&self, milliseconds: u64) {
        let mut hands = self.hands();
        hands.wall += milliseconds;
        hands.monotonic += milliseconds;
    }

    /// Adds to the wall clock only.
    pub(crate) fn jump(&self, milliseconds: i64) {
        let mut hands = self.hands();
        hands.wall = hands.wall.checked_add_signed(milliseconds).expect("after 1970");
    }

    /// Begins a call: forgets the waits, and cancels in the wait of this number.
    pub(crate) fn begin(&self, cancel_in_wait: Option<(usize, Cancellation)>) {
        let mut hands = self.hands();
        hands.waits.clear();
        hands.cancel_in_wait = cancel_in_wait;
    }

    pub(crate) fn waits(&self) -> Vec<u64> {
        self.hands().waits.clone()
    }

    /// Lets the attempt that is under way expire.
    pub(crate) fn expire_now(&self) {
        self.hands().expires = true;
    }
}

impl ClientClock for ManualClock {
    fn wall(&self) -> u64 {
        self.hands().wall
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.hands().monotonic)
    }

    fn sleep(&self, wait: Duration) -> ClientFuture<'_, ()> {
        Box::pin(async move {
            let milliseconds = u64::try_from(wait.as_millis()).expect("a short wait");
            let mut hands = self.hands();
            hands.waits.push(milliseconds);
            let number = hands.waits.len();
            match hands.cancel_in_wait.take_if(|(wanted, _)| *wanted == number) {
                Some((_, cancellation)) => cancellation.cancel(),
                None => {
                    hands.wall += milliseconds;
                    hands.monotonic += milliseconds;
                }
            }
        })
    }

    fn expire(&self, timeout: Duration) -> ClientFuture<'_, ()> {
        Box::pin(async move {
            let expires = std::mem::take(&mut self.hands().expires);
            if !expires {
                pending::<()>().await;
            }
            self.advance(u64::try_from(timeout.as_millis()).expect("a short timeout"));
            ready(()).await;
        })
    }
}

/// Draws of a case. After the last one, the last repeats.
pub(crate) struct ScriptedDraws(Mutex<VecDeque<f64>>);

impl ScriptedDraws {
    pub(crate) fn new(draws: impl IntoIterator<Item = f64>) -> ScriptedDraws {
        ScriptedDraws(Mutex::new(draws.into_iter().collect()))
    }
}

impl RandomSource for ScriptedDraws {
    fn fraction(&self) -> f64 {
        let mut draws = self.0.lock().unwrap();
        if draws.len() > 1 { draws.pop_front().unwrap() } else { draws[0] }
    }
}
