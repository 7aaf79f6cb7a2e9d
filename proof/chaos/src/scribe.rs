//! Writer of the history: one event per line, each with the time at which it was written, in that order.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use semel_checker::Event;
use semel_core::{Clock, SystemClock};

/// Writer of the history.
pub struct Scribe(Mutex<Pen>);

struct Pen {
    path: PathBuf,
    file: BufWriter<File>,
    /// First error: after it the history is worthless.
    trouble: Option<String>,
}

impl Scribe {
    /// Creates the history in this file.
    pub fn create(path: &Path) -> Result<Scribe, String> {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scribe(Mutex::new(Pen { path: path.to_owned(), file: BufWriter::new(file), trouble: None })))
    }

    /// Writes an event with the current time, and returns the time.
    pub fn note(&self, event: impl FnOnce(i64) -> Event) -> i64 {
        // The time is taken under the lock, so that the order of lines is the order of times.
        let mut pen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = now();
        let event = event(at);
        let written = serde_json::to_writer(&mut pen.file, &event)
            .map_err(|error| error.to_string())
            .and_then(|()| pen.file.write_all(b"\n").map_err(|error| error.to_string()));
        if let (Err(error), None) = (written, &pen.trouble) {
            pen.trouble = Some(error);
        }
        at
    }

    /// Returns the lines that were written so far, each of them whole.
    pub fn written(&self) -> Result<Vec<u8>, String> {
        let mut pen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pen.file.flush().map_err(|error| error.to_string())?;
        std::fs::read(&pen.path).map_err(|error| error.to_string())
    }

    /// Flushes the history to its file. Returns the first error, if there was one.
    pub fn finish(&self) -> Result<(), String> {
        let mut pen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pen.file.flush().map_err(|error| error.to_string())?;
        pen.trouble
            .clone()
            .map_or(Ok(()), |trouble| Err(format!("the history could not be written: {trouble}")))
    }
}

/// Returns the machine's time in milliseconds.
pub fn now() -> i64 {
    SystemClock.now().as_millis()
}
