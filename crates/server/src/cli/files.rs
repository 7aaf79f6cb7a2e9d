//! Files and folders that commands write: always new, and for their owner only.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;

/// Mode of files and folders that only their owner may read.
const OWNERS_FILE: u32 = 0o600;
const OWNERS_FOLDER: u32 = 0o700;

/// Creates a file for its owner only. It must not exist.
pub(super) fn create(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(OWNERS_FILE).open(path);
    file.with_context(|| format!("cannot make {}, which must not exist yet", path.display()))
}

/// Creates a folder for its owner only. It must not exist.
pub(super) fn create_folder(path: &Path) -> anyhow::Result<()> {
    let folder = DirBuilder::new().mode(OWNERS_FOLDER).create(path);
    folder.with_context(|| format!("cannot make the folder {}, which must not exist yet", path.display()))
}
