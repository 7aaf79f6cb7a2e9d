//! `semel support-bundle`: facts about a gateway and its store for those who help, without secrets.
//!
//! Invariant: no part has a key, a request, a response, a header value or a password. Every part is made of views that
//! viewers may see, and of settings as `config show` masks them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use http::StatusCode;
use semel_core::{Backend, Clock, Filter, StateName, SystemClock};
use semel_operations::operate::records::{exported, note_of, unreadable};
use semel_operations::operate::{holds, status};
use semel_settings::{Loaded, redact};
use semel_stores::Access;
use serde_json::{Value, json};

use super::admin_client::{self, AdminClient, AdminFlags};
use super::{
    CommandResult, SettingFlags, blocking, configuration, doctor, files, load, open_keyless, printable,
    runtime, say,
};

/// Largest number of unknown records, and of notes, in a bundle.
const MAX_RECORDS: usize = 1000;
const MAX_NOTES: usize = 1000;
/// Number of records or notes in one page of the store.
const PAGE: usize = 500;

/// Files from the store, and from the running gateway.
const STORE_FILES: [&str; 4] = ["status.json", "unknown.jsonl", "holds.json", "audit.jsonl"];
const GATEWAY_FILES: [&str; 4] = ["readyz.txt", "gateway-status.json", "log-level.json", "metrics.txt"];

/// The command line of `semel support-bundle`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Collect facts about a gateway and its store in a folder, without secrets",
    long_about = "Writes a new folder for those who help: version and build, the settings in force with passwords hidden, \
        the report of `doctor`, the number of records in each state, the first 1,000 unknown records, the holds, and the \
        last 1,000 notes of the audit log; and, from the admin listener, the status, the metrics, the readiness and the log \
        level of the running gateway. A file that cannot be made is named with its reason; the others are written.\n\n\
        No file has a key, a request, a response, a header value or a password. Names of tenants, callers and operators \
        are in it, and the reasons that operators gave: read it before you pass it on, such as with `tar -c FOLDER`.\n\n\
        Give it the flags that you give to `semel serve`, and run it as the same user on the same machine. It changes \
        nothing; the upstream gets the requests of `semel doctor`.",
    after_help = "Examples:\n  \
        semel support-bundle --output bundle\n  \
        semel support-bundle --config /etc/semel.toml --output bundle --token-file a.token\n\n\
        Exit codes: 0 collected, 1 collected without some files, such as those of a gateway that does not answer, 2 wrong use, or nothing can be collected."
)]
pub(super) struct SupportBundleArgs {
    #[arg(long, value_name = "FOLDER", help = "New folder for the files, for its owner only")]
    output: PathBuf,
    #[arg(
        long,
        value_name = "URL",
        help = "Admin listener of the running gateway; the configured `admin_listen` by default"
    )]
    admin: Option<String>,
    #[command(flatten)]
    flags: AdminFlags,
    #[command(flatten)]
    settings: SettingFlags,
}

pub(super) fn run(args: &SupportBundleArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let loaded = load(config, args.settings.flags())?;
    let address = args.admin.clone().unwrap_or_else(|| admin_client::configured(&loaded.config));
    let admin = AdminClient::new(&address, &args.flags)?;
    files::create_folder(&args.output)?;
    let mut bundle = Bundle { folder: &args.output, parts: Vec::new(), is_whole: true };
    bundle.add("config.json", Ok(settings(&loaded)))?;
    bundle.add("doctor.json", runtime().map(|runtime| text(&runtime.block_on(doctor::report(&loaded)))))?;
    bundle.add_store(&loaded)?;
    bundle.add_gateway(&admin, &address)?;
    bundle.end()
}

/// Folder whose files are being written.
struct Bundle<'a> {
    folder: &'a Path,
    parts: Vec<Value>,
    is_whole: bool,
}

impl Bundle<'_> {
    /// Writes a part, or the reason for its absence.
    fn add(&mut self, name: &str, part: anyhow::Result<String>) -> anyhow::Result<()> {
        let why = match part {
            Ok(text) => {
                self.write(name, &text)?;
                None
            }
            Err(error) => {
                let why = printable(&format!("{error:#}"));
                eprintln!("{name} is missing: {why}");
                self.is_whole = false;
                Some(why)
            }
        };
        self.parts.push(json!({ "file": name, "missing": why }));
        Ok(())
    }

    /// Notes why none of these files can be made.
    fn miss(&mut self, names: &[&str], why: &str) -> anyhow::Result<()> {
        names.iter().try_for_each(|name| self.add(name, Err(anyhow::anyhow!("{why}"))))
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        let written = files::create(&path)?.write_all(text.as_bytes());
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    fn add_store(&mut self, loaded: &Loaded) -> anyhow::Result<()> {
        let store = match open_keyless(&loaded.config.store, Access::Read) {
            Ok(store) => store,
            Err(error) => {
                let why = format!("the store cannot be read: {error:#}");
                return self.miss(&STORE_FILES, &why);
            }
        };
        let counted = blocking(status::read(&*store, store.clone().outbox().as_deref()));
        self.add("status.json", counted.map(|status| text(&status)))?;
        self.add("unknown.jsonl", unknown(&store))?;
        let held = blocking(store.holds());
        self.add("holds.json", held.map(|held| text(&held.iter().map(holds::summary).collect())))?;
        self.add("audit.jsonl", notes(&store))
    }

    fn add_gateway(&mut self, admin: &AdminClient, address: &str) -> anyhow::Result<()> {
        // A gateway that does not answer at all is asked once, not for each file.
        let ready = match runtime()?.block_on(admin.get("/readyz")) {
            Ok((status, body)) => format!("{status}\n{}", String::from_utf8_lossy(&body)),
            Err(error) => {
                let why = format!(
                    "no gateway answers at {}: {error:#}; --admin names another address",
                    redact(address)
                );
                return self.miss(&GATEWAY_FILES, &why);
            }
        };
        self.add("readyz.txt", Ok(ready))?;
        for (name, path) in
            [("gateway-status.json", "/admin/v1/status"), ("log-level.json", "/admin/v1/log-level")]
        {
            let answer = runtime()?.block_on(admin.get_json(path));
            self.add(name, answer.map(|answer| text(&answer)))?;
        }
        let metrics = runtime()?.block_on(admin.get("/metrics")).and_then(|(status, body)| {
            ensure!(status == StatusCode::OK, "/metrics answers {status}");
            Ok(String::from_utf8_lossy(&body).into_owned())
        });
        self.add("metrics.txt", metrics)
    }

    /// Writes the list of the parts.
    fn end(self) -> anyhow::Result<CommandResult> {
        let list = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "build": if cfg!(debug_assertions) { "debug" } else { "optimised" },
            "system": std::env::consts::OS,
            "machine": std::env::consts::ARCH,
            "madeAt": SystemClock.now().to_rfc3339(),
            "parts": self.parts,
        });
        self.write("bundle.json", &text(&list))?;
        let made = self.parts.iter().filter(|part| part["missing"].is_null()).count();
        say(format!("{}: {} files", self.folder.display(), made + 1));
        Ok(if self.is_whole { CommandResult::Yes } else { CommandResult::No })
    }
}

fn text(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Returns the settings in force. Of a program that prints a secret only its name is shown.
fn settings(loaded: &Loaded) -> String {
    let mut rows = configuration::rows(loaded);
    for row in rows.as_array_mut().into_iter().flatten() {
        let is_program = row["name"].as_str().is_some_and(|name| name.ends_with("command"));
        if let Some(words) = row["value"].as_array_mut().filter(|_| is_program) {
            words.iter_mut().skip(1).for_each(|word| *word = "…".into());
        }
    }
    text(&rows)
}

/// Returns the first unknown records.
fn unknown(store: &Arc<dyn Backend>) -> anyhow::Result<String> {
    let mut filter = Filter { state: Some(StateName::Unknown), limit: PAGE, ..Filter::default() };
    let mut lines = Vec::new();
    loop {
        let page = blocking(store.list(&filter))?;
        lines.extend(page.records.iter().map(exported));
        lines.extend(page.unreadable.iter().map(unreadable));
        filter.after = page.next;
        if filter.after.is_none() || lines.len() >= MAX_RECORDS {
            return Ok(jsonl(&lines[..lines.len().min(MAX_RECORDS)]));
        }
    }
}

/// Returns the last notes, the newest first.
fn notes(store: &Arc<dyn Backend>) -> anyhow::Result<String> {
    let (mut lines, mut before) = (Vec::new(), None);
    while lines.len() < MAX_NOTES {
        let page = blocking(store.audit(before, PAGE))?;
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        lines.extend(page.iter().map(note_of));
    }
    Ok(jsonl(&lines))
}

fn jsonl(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
