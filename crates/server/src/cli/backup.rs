//! `semel backup` and `semel restore`: copies of a store, and the fence of a store that was put back.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use semel_core::{HoldTarget, Note};
use semel_operations::operate::Acted;
use semel_operations::operate::holds::{self, HoldAction};
use semel_settings::StoreLocation;
use semel_stores::Access;
use semel_stores::sqlite::{self, BackupContent};
use serde_json::json;

use super::records::{reason, who};
use super::{CommandResult, OutputFlags, StoreFlag, blocking, existing, load, open_keyless, printable, say};

/// The command line of `semel backup`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Copy the SQLite store to a file, beside running gateways",
    long_about = "Copies a SQLite store to a new file, as it is at one moment, while gateways go on. The copy is checked, and flushed \
        to disk, before it gets its name. No file is overwritten. Sealed data stays sealed: keep its keys elsewhere.\n\n\
        PostgreSQL has its own tools: take a base backup and archive its log, which loses nothing up to the last archived \
        segment.\n\n\
        A restored backup lacks every command since it was taken. Put it back with `semel restore --fence`.",
    after_help = "Example:\n  \
        semel backup --to /backups/semel-2026-11-20.db\n\n\
        Exit codes: 0 copied, 2 wrong use, the file exists, or the store cannot be copied."
)]
pub(super) struct BackupArgs {
    #[arg(long, value_name = "FILE", help = "File of the copy, which must not exist")]
    to: PathBuf,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

/// The command line of `semel restore`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Put a backup in the place of the store, or fence a restored one",
    long_about = "Fences a store that was restored, before a gateway uses it: the store lacks the commands since its backup, cannot \
        tell them from new ones, and would run their retries again. Under the fence, known commands are answered, and every \
        other is refused; workers, messages and look-ups wait. `semel hold lift --store-fence` lifts it.\n\n\
        With --from, a backup of `semel backup` is put in the place of the SQLite store first: checked, fenced, and then \
        renamed. Stop every process that uses the store. With --replace, a store that is there is moved aside, and kept.\n\n\
        Without --from, the store that is there is fenced: after PostgreSQL's own restore, or that of a volume. A gateway with \
        a witness notices such a restore by itself; a fresh one cannot.",
    after_help = "Examples:\n  \
        semel restore --fence --from /backups/semel-2026-11-20.db --replace --reason 'disk failure, ticket 9'\n  \
        semel restore --fence --store postgres://owner@db.internal/semel --reason 'restored to 03:00'\n\n\
        Exit codes: 0 restored and fenced, 1 it is fenced already, 2 wrong use, or it cannot be restored."
)]
pub(super) struct RestoreArgs {
    #[arg(long, help = "Fence the store; a restore without a fence would run commands twice")]
    fence: bool,
    #[arg(long, value_name = "FILE", help = "Backup to put in the place of the SQLite store")]
    from: Option<PathBuf>,
    #[arg(long, requires = "from", help = "Move a store that is there aside")]
    replace: bool,
    #[arg(long, value_name = "TEXT", help = "Reason for the restore, which is kept for good")]
    reason: String,
    #[command(flatten)]
    store: StoreFlag,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn back_up(args: &BackupArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let location = load(config, args.store.flags())?.config.store;
    let StoreLocation::Sqlite(path) = existing(&location)? else {
        bail!(
            "PostgreSQL is backed up by its own tools: `pg_basebackup` with an archive of its log, or `pg_dump --format=custom`; \
             after a restore, run `semel restore --fence` before a gateway starts"
        );
    };
    let is_quiet = args.output.json;
    let content = sqlite::back_up(&path, &args.to, move |bytes| {
        if !is_quiet {
            eprintln!("… {} copied", size(bytes));
        }
    })?;
    let BackupContent { bytes, records, schema } = content;
    match args.output.json {
        true => say(
            json!({ "file": args.to.display().to_string(), "bytes": bytes, "records": records, "schema": schema }),
        ),
        false => say(format!("{}: {records} records, {}, checked", args.to.display(), size(bytes))),
    }
    Ok(CommandResult::Yes)
}

pub(super) fn restore(args: &RestoreArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let why = reason(&args.reason)?;
    ensure!(
        args.fence,
        "say --fence: a restored store lacks the commands since its backup, and would run their retries again; the fence stops \
         that until `semel hold lift --store-fence`"
    );
    let config = load(config, args.store.flags())?.config;
    let note = Note { who: who(), action: format!("hold {}", HoldTarget::Store), why };
    match &args.from {
        Some(backup) => put_back(args, &config.store, backup, &note),
        None => fence(args, &config.store, note),
    }
}

/// Puts a backup in the place of a SQLite store.
fn put_back(
    args: &RestoreArgs,
    location: &StoreLocation,
    backup: &Path,
    note: &Note,
) -> anyhow::Result<CommandResult> {
    let StoreLocation::Sqlite(path) = location else {
        bail!(
            "only a SQLite store is put back from a file: restore PostgreSQL by its own tools, and then run `semel restore --fence` \
             without --from"
        );
    };
    let (content, aside) = sqlite::restore(backup, path, args.replace, note)?;
    if args.output.json {
        say(json!({
            "store": path.display().to_string(),
            "records": content.records,
            "replaced": aside.map(|aside| aside.display().to_string()),
            "fenced": true,
        }));
        return Ok(CommandResult::Yes);
    }
    say(format!("{}: {} records restored, and fenced", path.display(), content.records));
    if let Some(aside) = aside {
        say(format!("the store that was there is {}", aside.display()));
    }
    tell_next();
    Ok(CommandResult::Yes)
}

/// Fences the store that is there.
fn fence(args: &RestoreArgs, location: &StoreLocation, note: Note) -> anyhow::Result<CommandResult> {
    let store = open_keyless(location, Access::Write)?;
    let acted = blocking(holds::act(&*store, &*store, &HoldTarget::Store, HoldAction::Add, note))?;
    if let Acted::Refused(why) | Acted::Absent(why) = acted {
        eprintln!("{}", printable(&why));
        return Ok(CommandResult::No);
    }
    match args.output.json {
        true => say(json!({ "store": location.to_string(), "fenced": true })),
        false => {
            say(format!("{location}: fenced"));
            tell_next();
        }
    }
    Ok(CommandResult::Yes)
}

fn tell_next() {
    super::show(
        "known commands are answered, every other gets 503 IDEMPOTENCY_HELD, and workers, messages and look-ups wait. Next: settle \
         what was lost, choose `semel hold add --look-up-first NAME` or `--younger-keys NAME` for operations that may go on, and \
         lift the fence with `semel hold lift --store-fence`",
    );
}

/// Returns a size for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
