//! Exchange between a test and a process: files in a folder, made by one side and removed by the other.
//!
//! A test arms a point by making a file of its name. The first task or thread to arrive renames it to `NAME.reached`;
//! the rename succeeds once. It waits until that file is gone. A lever is a file with a value, removed once it was
//! pulled.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::VARIABLE;
use crate::point::{Lever, Point};

/// Polling interval of the folder.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest time a point holds a process, in case its test never releases it.
const LONGEST: Duration = Duration::from_secs(120);

fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| std::env::var_os(VARIABLE).map(PathBuf::from)).as_deref()
}

/// Takes the point if it is armed. Of several concurrent arrivals, exactly one takes it.
pub(crate) fn take(point: Point) -> Option<Held> {
    let armed = folder()?.join(point.name());
    let reached = armed.with_extension("reached");
    std::fs::rename(&armed, &reached).ok().map(|()| Held { reached })
}

/// Hold of a task or thread at a point. Dropping it removes the file `NAME.reached`.
pub(crate) struct Held {
    reached: PathBuf,
}

impl Held {
    pub(crate) fn wait(&self) {
        let begun = Instant::now();
        while self.reached.exists() && begun.elapsed() < LONGEST {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.reached);
    }
}

/// Future of a task held at a point. A thread watches the file; dropping the future leaves the point.
pub(crate) struct HeldFuture {
    held: Held,
    shared: Option<Arc<Mutex<HeldState>>>,
}

struct HeldState {
    done: bool,
    waker: Waker,
}

impl HeldFuture {
    pub(crate) fn new(held: Held) -> HeldFuture {
        HeldFuture { held, shared: None }
    }
}

impl Future for HeldFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(shared) = &self.shared {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.waker.clone_from(context.waker());
            return if shared.done { Poll::Ready(()) } else { Poll::Pending };
        }
        let shared = Arc::new(Mutex::new(HeldState { done: false, waker: context.waker().clone() }));
        self.shared = Some(shared.clone());
        let watched = Held { reached: self.held.reached.clone() };
        std::thread::spawn(move || {
            watched.wait();
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.done = true;
            shared.waker.wake_by_ref();
        });
        Poll::Pending
    }
}

/// Polls for levers until the process ends.
pub(crate) fn watch(pull: impl Fn(Lever) -> bool + Send + 'static) {
    let Some(folder) = folder() else { return };
    std::thread::spawn(move || {
        loop {
            for name in
                ["lever-clock", "lever-jump", "lever-lose-answer", "lever-read-only", "lever-lose-commit"]
            {
                let file = folder.join(name);
                if let Ok(value) = std::fs::read_to_string(&file)
                    && Lever::read(name, value.trim()).is_some_and(&pull)
                {
                    let _ = std::fs::remove_file(&file);
                }
            }
            std::thread::sleep(PAUSE);
        }
    });
}
