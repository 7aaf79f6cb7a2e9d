//! A journal in one file: a line of JSON for each change, synchronised to the disk before the next step.
//!
//! A last line without its newline was torn by a crash before it counted. Any other line that cannot be read means that
//! the file is damaged, and nothing is sent.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::{IntentJournal, JournalEntry, JournalError};
use crate::key::CommandKey;

/// Lines after which the file is written anew, if most of them are of entries that were cleared.
const COMPACT_LINES: usize = 1024;

/// Journal in a file of one process. The file holds keys: only its owner may read it.
pub struct FileJournal {
    path: PathBuf,
    open: Mutex<Option<OpenedJournal>>,
}

/// The open file, and the entries that are in it.
struct OpenedJournal {
    file: File,
    entries: HashMap<String, (usize, JournalEntry)>,
    lines: usize,
}

/// One line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum JournalLine {
    Begin(EntryMembers),
    Clear(String),
}

/// Members of an entry in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryMembers {
    intent: String,
    key: String,
    digest: String,
    origin: String,
    caller: String,
    at: u64,
}

impl FileJournal {
    /// Makes a journal on this file, which is opened or made by the first call.
    pub fn new(path: impl Into<PathBuf>) -> FileJournal {
        FileJournal { path: path.into(), open: Mutex::new(None) }
    }

    /// Lends the open file. A failure closes it: its content is read again by the next call.
    fn with<T>(&self, work: impl FnOnce(&mut OpenedJournal) -> io::Result<T>) -> Result<T, JournalError> {
        let mut place = self.lock();
        let mut opened = match place.take() {
            Some(opened) => opened,
            None => OpenedJournal::open(&self.path).map_err(JournalError::unavailable)?,
        };
        let done = work(&mut opened).map_err(JournalError::unavailable)?;
        if opened.is_mostly_cleared() {
            // A failure leaves the old file as it is. The next call opens the one that is there by then.
            if let Err(error) = opened.compact(&self.path) {
                tracing::warn!(%error, "the journal could not be written anew");
            }
        } else {
            *place = Some(opened);
        }
        Ok(done)
    }

    fn lock(&self) -> MutexGuard<'_, Option<OpenedJournal>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenedJournal {
    fn open(path: &Path) -> io::Result<OpenedJournal> {
        let mut file = open_private(OpenOptions::new().create(true).truncate(false), path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::Error::other("it is in use by another process")),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        check_same(&file, path)?;
        sync_folder(path)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        let whole = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        if whole < content.len() {
            file.set_len(whole as u64)?;
            file.sync_all()?;
        }
        file.seek(SeekFrom::End(0))?;
        let mut opened = OpenedJournal { file, entries: HashMap::new(), lines: 0 };
        for line in content[..whole].split_inclusive(|byte| *byte == b'\n') {
            opened.read_line(line)?;
        }
        Ok(opened)
    }

    fn read_line(&mut self, line: &[u8]) -> io::Result<()> {
        // The error of the parser is not shown: it could repeat a part of a key.
        let damaged =
            || io::Error::new(io::ErrorKind::InvalidData, format!("line {} is damaged", self.lines + 1));
        match serde_json::from_slice(line).map_err(|_| damaged())? {
            // A second key for an intent would hide the first, which may have been sent.
            JournalLine::Begin(members) if self.entries.contains_key(&members.intent) => {
                return Err(damaged());
            }
            JournalLine::Begin(members) => self.insert(members.into()),
            JournalLine::Clear(intent) => {
                self.entries.remove(&intent);
            }
        }
        self.lines += 1;
        Ok(())
    }

    fn insert(&mut self, entry: JournalEntry) {
        self.entries.insert(entry.intent.clone(), (self.lines, entry));
    }

    /// Writes a line, which is on the disk on return. A partial write leaves a torn line, which does not count.
    fn append(&mut self, line: &JournalLine) -> io::Result<()> {
        self.file.write_all(&bytes_of(line)?)?;
        self.file.sync_all()?;
        self.lines += 1;
        Ok(())
    }

    fn is_mostly_cleared(&self) -> bool {
        self.lines > COMPACT_LINES && self.lines > 4 * self.entries.len()
    }

    fn pending(&self) -> Vec<JournalEntry> {
        let mut entries: Vec<_> = self.entries.values().collect();
        entries.sort_by_key(|(line, _)| *line);
        entries.into_iter().map(|(_, entry)| entry.clone()).collect()
    }

    /// Writes the file anew, with the entries that are left.
    fn compact(&self, path: &Path) -> io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".draft");
        let draft = path.with_file_name(name);
        let mut file = open_private(OpenOptions::new().create(true).truncate(true), &draft)?;
        for entry in self.pending() {
            file.write_all(&bytes_of(&JournalLine::Begin(entry.into()))?)?;
        }
        file.sync_all()?;
        std::fs::rename(&draft, path)?;
        sync_folder(path)
    }
}

impl IntentJournal for FileJournal {
    fn begin(&self, entry: &JournalEntry) -> Result<(), JournalError> {
        let is_new = self.with(|opened| {
            if opened.entries.contains_key(&entry.intent) {
                return Ok(false);
            }
            opened.append(&JournalLine::Begin(entry.clone().into()))?;
            opened.insert(entry.clone());
            Ok(true)
        })?;
        if is_new { Ok(()) } else { Err(JournalError::IntentPending) }
    }

    fn clear(&self, intent: &str, key: &CommandKey) -> Result<(), JournalError> {
        self.with(|opened| {
            if opened.entries.get(intent).is_some_and(|(_, entry)| entry.key == *key) {
                opened.append(&JournalLine::Clear(intent.to_owned()))?;
                opened.entries.remove(intent);
            }
            Ok(())
        })
    }

    fn pending(&self) -> Result<Vec<JournalEntry>, JournalError> {
        self.with(|opened| Ok(opened.pending()))
    }
}

impl fmt::Debug for FileJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileJournal").field("path", &self.path).finish_non_exhaustive()
    }
}

impl From<EntryMembers> for JournalEntry {
    fn from(members: EntryMembers) -> JournalEntry {
        let EntryMembers { intent, key, digest, origin, caller, at } = members;
        JournalEntry { intent, key: CommandKey::new(key), digest, origin, caller, at }
    }
}

impl From<JournalEntry> for EntryMembers {
    fn from(entry: JournalEntry) -> EntryMembers {
        let JournalEntry { intent, key, digest, origin, caller, at } = entry;
        EntryMembers { intent, key: key.as_str().to_owned(), digest, origin, caller, at }
    }
}

fn bytes_of(line: &JournalLine) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Opens a file for reading and writing. If it is made, only its owner may read it.
pub(super) fn open_private(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.read(true).write(true).open(path)
}

/// Fails if the path leads to another file by now: a process that wrote the journal anew has replaced it.
#[cfg(unix)]
fn check_same(file: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;

    let (opened, found) = (file.metadata()?, std::fs::metadata(path)?);
    let is_same = opened.dev() == found.dev() && opened.ino() == found.ino();
    if is_same { Ok(()) } else { Err(io::Error::other("it is in use by another process")) }
}

#[cfg(not(unix))]
fn check_same(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
}

/// Makes the name of a file durable. Folders cannot be opened on every system.
fn sync_folder(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
