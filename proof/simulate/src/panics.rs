//! Panics in tasks of a node, which its runtime would pass over in silence.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// From here on, panics are written down, each on the thread that it happens on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A thread that is about to end has nobody left to tell.
            let _ = SEEN.try_with(|seen| seen.borrow_mut().push(panic.to_string().replace('\n', " ")));
            before(panic);
        }));
    });
    take();
}

/// The panics on this thread since the last time.
pub(crate) fn take() -> Vec<String> {
    SEEN.with(|seen| std::mem::take(&mut *seen.borrow_mut()))
}
