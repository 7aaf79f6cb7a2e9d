//! Panics in the tasks of a node, which its runtime would swallow.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records panics from now on, each on its own thread.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A thread that is about to end keeps no list.
            let _ = SEEN.try_with(|seen| seen.borrow_mut().push(panic.to_string().replace('\n', " ")));
            before(panic);
        }));
    });
    take();
}

/// Returns the panics on this thread since the last call.
pub(crate) fn take() -> Vec<String> {
    SEEN.with(|seen| std::mem::take(&mut *seen.borrow_mut()))
}
