//! The file of a witness: a few lines of text, replaced as a whole.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use semel_core::{Ids, RandomIds, StoreId, StorePoint, Witness, WitnessId};

use super::WitnessError;

/// First line of a file in this format.
const FORMAT: &str = "semel-witness 1";
/// Largest part of a file that is read, in bytes.
const MAX_BYTES: u64 = 4096;

/// Reads the memory of this store; `None` if there is no file.
pub(super) fn read(path: &Path, found: StoreId) -> Result<Option<Witness>, WitnessError> {
    let mut text = String::new();
    match File::open(path) {
        Ok(file) => file.take(MAX_BYTES).read_to_string(&mut text),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(error),
    }
    .map_err(|error| unusable(path, &format!("it cannot be read: {error}")))?;
    let no_witness = || {
        let why = "it is no witness in a format that this version reads. If it was damaged, fence the store with `semel restore \
                   --fence`, and delete the file";
        unusable(path, why)
    };
    let (store, witness) = parse(&text).ok_or_else(no_witness)?;
    if store != found {
        return Err(WitnessError::OtherStore { path: path.to_owned(), remembered: store, found });
    }
    Ok(Some(witness))
}

/// Checks that the file can be replaced: a folder that is missing is better known at the start.
pub(super) fn check_writable(path: &Path) -> Result<(), WitnessError> {
    let trial = beside(path);
    let written = File::create(&trial).and_then(|_| fs::remove_file(&trial));
    written.map_err(|error| {
        unusable(
            path,
            &format!(
                "no file can be written beside it: {error}; create the folder, and let this user write there"
            ),
        )
    })
}

/// Replaces the file, and flushes it to disk.
pub(super) fn write(path: &Path, store: StoreId, witness: Witness) -> std::io::Result<()> {
    let unfinished = beside(path);
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(render(store, witness).as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// Returns the name of a file beside it, which no other process uses: several may share one witness.
fn beside(path: &Path) -> PathBuf {
    let own = u128::from_be_bytes(*RandomIds.attempt_token().as_bytes());
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{own:032x}"));
    PathBuf::from(name)
}

fn unusable(path: &Path, why: &str) -> WitnessError {
    WitnessError::File { path: path.to_owned(), why: why.to_owned() }
}

fn render(store: StoreId, witness: Witness) -> String {
    let id = StoreId::from_bytes(*witness.id.as_bytes());
    let StorePoint { generation, beat } = witness.seen;
    format!(
        "{FORMAT}\nstore {store}\nwitness {id}\ngeneration {generation}\nbeat {beat}\n\n\
         How far a Semel store had come. A store that is behind this was restored from a backup, and is fenced. Keep the file\n\
         where a restore of the store does not restore it, too.\n"
    )
}

fn parse(text: &str) -> Option<(StoreId, Witness)> {
    let mut lines = text.lines();
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    if value("semel-witness")? != "1" {
        return None;
    }
    let store = value("store")?.parse().ok()?;
    let id: StoreId = value("witness")?.parse().ok()?;
    let seen =
        StorePoint { generation: value("generation")?.parse().ok()?, beat: value("beat")?.parse().ok()? };
    Some((store, Witness { id: WitnessId::from_bytes(*id.as_bytes()), seen }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (StoreId, Witness) {
        let seen = StorePoint { generation: 1_795_000_000_000, beat: 77 };
        (StoreId::from_bytes([1; 16]), Witness { id: WitnessId::from_bytes([2; 16]), seen })
    }

    #[test]
    fn a_witness_round_trips_through_its_file() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("witness");
        let (store, witness) = sample();
        assert!(matches!(read(&path, store), Ok(None)));
        check_writable(&path).expect("the folder is there");
        for beat in [1, 2] {
            let witness = Witness { seen: StorePoint { beat, ..witness.seen }, ..witness };
            write(&path, store, witness).expect("it is written");
            assert_eq!(read(&path, store).ok().flatten(), Some(witness));
        }
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1, "nothing is left beside it");
    }

    #[test]
    fn processes_that_share_a_witness_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("witness");
        let (store, witness) = sample();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        check_writable(&path).expect("the folder is there");
                        write(&path, store, witness).expect("it is written");
                        assert_eq!(read(&path, store).ok().flatten(), Some(witness));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1, "nothing is left beside it");
    }

    #[test]
    fn damaged_foreign_and_later_files_are_refused_with_advice() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("witness");
        let (store, witness) = sample();
        let whole = render(store, witness);
        let later = whole.replace("semel-witness 1", "semel-witness 2");
        let halves = (0..whole.find("\n\n").expect("a note follows")).map(|end| &whole[..end]);
        for text in halves.chain([later.as_str(), "", "\u{0}"]) {
            // A number may be cut off, and is a smaller one then: that is safe.
            if text.contains("beat ") && text.ends_with(|end: char| end.is_ascii_digit()) {
                continue;
            }
            fs::write(&path, text).expect("it is written");
            let refused = read(&path, store).expect_err("it is no witness").to_string();
            assert!(refused.contains("semel restore --fence"), "{text:?}: {refused}");
        }
        fs::write(&path, &whole).expect("it is written");
        let other = read(&path, StoreId::from_bytes([9; 16])).expect_err("it is of another").to_string();
        assert!(other.contains("open the store that belongs to it"), "{other}");
        let nowhere = check_writable(&folder.path().join("absent/witness")).expect_err("there is no folder");
        assert!(nowhere.to_string().contains("create the folder"), "{nowhere}");
    }
}
