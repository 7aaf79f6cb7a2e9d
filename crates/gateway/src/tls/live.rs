//! Products of files, made again when the files change: new connections use the new product, open ones the
//! old.
//!
//! Unusable contents change nothing: the log reports them once, and a metric counts them.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use metrics::counter;

/// Interval between two reads of the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Makes a product from files.
pub trait Recipe: Send + Sync + 'static {
    /// Contents of the files.
    type Contents: PartialEq + Send + Sync;
    /// Product of the contents.
    type Product: Send + Sync;

    /// Returns the settings table that names the files.
    fn table(&self) -> &'static str;

    /// Reads the files.
    fn read(&self) -> anyhow::Result<Self::Contents>;

    /// Makes the product of these contents.
    fn make(&self, contents: &Self::Contents) -> anyhow::Result<Self::Product>;
}

/// Makes the product of the current files.
pub fn make<R: Recipe>(recipe: &R) -> anyhow::Result<R::Product> {
    recipe.make(&recipe.read()?)
}

/// Product of files, from their last usable contents.
pub struct Live<R: Recipe> {
    recipe: R,
    current: RwLock<Arc<R::Product>>,
    last: Mutex<LastRead<R::Contents>>,
}

/// Result of the last read.
struct LastRead<C> {
    contents: C,
    /// True if the product in force is made of these contents.
    is_used: bool,
    complaint: Option<String>,
}

impl<R: Recipe> Live<R> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// Fails if the files cannot be used.
    pub fn new(recipe: R) -> anyhow::Result<Arc<Live<R>>> {
        let contents = recipe.read()?;
        let current = RwLock::new(Arc::new(recipe.make(&contents)?));
        let last = Mutex::new(LastRead { contents, is_used: true, complaint: None });
        Ok(Arc::new(Live { recipe, current, last }))
    }

    /// Returns the product in force.
    pub fn current(&self) -> Arc<R::Product> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Result of reading files again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadResult {
    /// The contents have not changed.
    Unchanged,
    /// New connections use the new contents.
    Used,
    /// The new contents cannot be used: the old ones stay.
    Refused,
}

impl ReloadResult {
    /// Returns the word for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            ReloadResult::Unchanged => "unchanged",
            ReloadResult::Used => "used",
            ReloadResult::Refused => "refused",
        }
    }
}

/// Product whose files can be read again.
pub trait Reload: Send + Sync {
    /// Returns the settings table that names the files.
    fn table(&self) -> &'static str;

    /// Reads the files, and uses their contents from now on if they are new and usable. May block.
    fn look(&self) -> ReloadResult;
}

impl<R: Recipe> Reload for Live<R> {
    fn table(&self) -> &'static str {
        self.recipe.table()
    }

    fn look(&self) -> ReloadResult {
        let table = self.recipe.table();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match self.recipe.read() {
            // Unusable contents were reported before.
            Ok(contents) if contents == last.contents => {
                return if last.is_used { ReloadResult::Unchanged } else { ReloadResult::Refused };
            }
            Ok(contents) => {
                let made = self.recipe.make(&contents);
                last.contents = contents;
                last.is_used = made.is_ok();
                made
            }
            Err(error) => Err(error),
        };
        match made {
            Ok(made) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(made);
                last.complaint = None;
                counter!("tls_reloads_total", "table" => table, "outcome" => "done").increment(1);
                tracing::info!(table, "the files for TLS have changed: new connections use the new ones");
                ReloadResult::Used
            }
            Err(error) => {
                let complaint = Some(format!("{error:#}"));
                if last.complaint != complaint {
                    counter!("tls_reloads_total", "table" => table, "outcome" => "failed").increment(1);
                    tracing::error!(
                        error = complaint,
                        table,
                        "the files for TLS have changed and cannot be used: the old ones stay in force"
                    );
                }
                last.complaint = complaint;
                ReloadResult::Refused
            }
        }
    }
}

/// Reads the files every few seconds.
pub async fn watch(all: Arc<[Arc<dyn Reload>]>) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        look_at(&all).await;
    }
}

/// Reads all files now, and returns the result for each table.
pub async fn look_at(all: &[Arc<dyn Reload>]) -> Vec<(&'static str, ReloadResult)> {
    let mut looked = Vec::new();
    for one in all {
        let (table, one) = (one.table(), one.clone());
        // A panic while reading is a bug; the contents before it stay.
        let result = tokio::task::spawn_blocking(move || one.look()).await.unwrap_or(ReloadResult::Refused);
        looked.push((table, result));
    }
    looked
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Number in a file.
    struct Number(PathBuf);

    impl Recipe for Number {
        type Contents = String;
        type Product = u32;

        fn table(&self) -> &'static str {
            "test"
        }

        fn read(&self) -> anyhow::Result<String> {
            Ok(std::fs::read_to_string(&self.0)?)
        }

        fn make(&self, contents: &String) -> anyhow::Result<u32> {
            Ok(contents.parse()?)
        }
    }

    #[test]
    fn a_reload_keeps_the_old_value_if_the_file_is_unusable() {
        let folder = tempfile::TempDir::new().expect("there is room for a test");
        let path = folder.path().join("number");
        let write = |text: &str| std::fs::write(&path, text).expect("there is room");
        assert!(Live::new(Number(path.clone())).is_err(), "there is no file yet");
        write("1");
        let live = Live::new(Number(path.clone())).expect("it is a number");
        let held = live.current();
        let now = || (live.look(), *live.current());
        assert_eq!(now(), (ReloadResult::Unchanged, 1));
        assert!(Arc::ptr_eq(&held, &live.current()), "what has not changed is not made again");
        write("2");
        assert_eq!(now(), (ReloadResult::Used, 2));
        assert_eq!(*held, 1, "whoever has the old keeps it");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(now(), (ReloadResult::Refused, 2));
        write("2");
        assert_eq!(now(), (ReloadResult::Unchanged, 2));
        write("two");
        assert_eq!(now(), (ReloadResult::Refused, 2));
        assert_eq!(now(), (ReloadResult::Refused, 2), "it is still not in force");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(now(), (ReloadResult::Refused, 2));
        write("two");
        assert_eq!(now(), (ReloadResult::Refused, 2));
        write("2");
        assert_eq!(now(), (ReloadResult::Used, 2));
        write("3");
        assert_eq!(now(), (ReloadResult::Used, 3));
    }
}
