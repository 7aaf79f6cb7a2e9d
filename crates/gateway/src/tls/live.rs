//! What is made of files, and made again when they change: new connections get the new, open ones keep the old.
//!
//! What cannot be used changes nothing: the log says once what is wrong with it, and a metric counts it.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use metrics::counter;

/// How often files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// How something is made of files.
pub trait Recipe: Send + Sync + 'static {
    /// What the files hold.
    type Contents: PartialEq + Send + Sync;
    /// What is made of that.
    type Product: Send + Sync;

    /// The table of settings that names the files.
    fn table(&self) -> &'static str;

    /// Reads the files.
    fn read(&self) -> anyhow::Result<Self::Contents>;

    /// Makes something of what they hold.
    fn make(&self, contents: &Self::Contents) -> anyhow::Result<Self::Product>;
}

/// What is made of the files as they are now.
pub fn make<R: Recipe>(recipe: &R) -> anyhow::Result<R::Product> {
    recipe.make(&recipe.read()?)
}

/// Something that is made of files, as they were when they could last be used.
pub struct Live<R: Recipe> {
    recipe: R,
    current: RwLock<Arc<R::Product>>,
    last: Mutex<Last<R::Contents>>,
}

/// What the last look has found.
struct Last<C> {
    contents: C,
    /// Whether these contents are in force.
    is_used: bool,
    complaint: Option<String>,
}

impl<R: Recipe> Live<R> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn new(recipe: R) -> anyhow::Result<Arc<Live<R>>> {
        let contents = recipe.read()?;
        let current = RwLock::new(Arc::new(recipe.make(&contents)?));
        let last = Mutex::new(Last { contents, is_used: true, complaint: None });
        Ok(Arc::new(Live { recipe, current, last }))
    }

    /// What is in force now.
    pub fn current(&self) -> Arc<R::Product> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The result of reading files again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The files hold what they held before.
    Unchanged,
    /// New connections get the new contents.
    Used,
    /// The new contents cannot be used: the old ones stay.
    Refused,
}

impl Looked {
    /// The word for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Looked::Unchanged => "unchanged",
            Looked::Used => "used",
            Looked::Refused => "refused",
        }
    }
}

/// Something whose files can be looked at again.
pub trait Look: Send + Sync {
    /// The table of settings that names the files.
    fn table(&self) -> &'static str;

    /// Looks at the files, and uses what they hold from now on if that is new and can be used. May block.
    fn look(&self) -> Looked;
}

impl<R: Recipe> Look for Live<R> {
    fn table(&self) -> &'static str {
        self.recipe.table()
    }

    fn look(&self) -> Looked {
        let table = self.recipe.table();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match self.recipe.read() {
            // Of what could not be used, that has been said.
            Ok(contents) if contents == last.contents => {
                return if last.is_used { Looked::Unchanged } else { Looked::Refused };
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
                tracing::info!(
                    table,
                    "the files for TLS have changed: new connections get what they hold now"
                );
                Looked::Used
            }
            Err(error) => {
                let complaint = Some(format!("{error:#}"));
                if last.complaint != complaint {
                    counter!("tls_reloads_total", "table" => table, "outcome" => "failed").increment(1);
                    tracing::error!(
                        error = complaint,
                        table,
                        "the files for TLS have changed and cannot be used: what they held before stays"
                    );
                }
                last.complaint = complaint;
                Looked::Refused
            }
        }
    }
}

/// Looks at the files every few seconds.
pub async fn watch(all: Arc<[Arc<dyn Look>]>) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        look_at(&all).await;
    }
}

/// Looks at all files now, and returns the result for each table.
pub async fn look_at(all: &[Arc<dyn Look>]) -> Vec<(&'static str, Looked)> {
    let mut looked = Vec::new();
    for one in all {
        let (table, one) = (one.table(), one.clone());
        // A panic while reading is a bug; the contents before it stay.
        let result = tokio::task::spawn_blocking(move || one.look()).await.unwrap_or(Looked::Refused);
        looked.push((table, result));
    }
    looked
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A number in a file.
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
    fn what_can_be_used_replaces_what_was_there_and_nothing_else_does() {
        let folder = tempfile::TempDir::new().expect("there is room for a test");
        let path = folder.path().join("number");
        let write = |text: &str| std::fs::write(&path, text).expect("there is room");
        assert!(Live::new(Number(path.clone())).is_err(), "there is no file yet");
        write("1");
        let live = Live::new(Number(path.clone())).expect("it is a number");
        let held = live.current();
        let now = || (live.look(), *live.current());
        assert_eq!(now(), (Looked::Unchanged, 1));
        assert!(Arc::ptr_eq(&held, &live.current()), "what has not changed is not made again");
        write("2");
        assert_eq!(now(), (Looked::Used, 2));
        assert_eq!(*held, 1, "whoever has the old keeps it");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(now(), (Looked::Refused, 2));
        write("2");
        assert_eq!(now(), (Looked::Unchanged, 2));
        write("two");
        assert_eq!(now(), (Looked::Refused, 2));
        assert_eq!(now(), (Looked::Refused, 2), "it is still not in force");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(now(), (Looked::Refused, 2));
        write("two");
        assert_eq!(now(), (Looked::Refused, 2));
        write("2");
        assert_eq!(now(), (Looked::Used, 2));
        write("3");
        assert_eq!(now(), (Looked::Used, 3));
    }
}
