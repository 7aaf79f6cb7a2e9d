//! Run of one driver: starts the upstream, the gateway and the proxy, runs the driver to its end, and gathers what all of
//! them say.
//!
//! Everything is on the loopback address and in one temporary folder. Whatever a run started has ended when it returns.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use semel_testkit::breaking;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::book::{Book, Number, Pages};
use crate::gateway;
use crate::journal;
use crate::judge::{Violation, judge};
use crate::line::Printed;
use crate::proxy::Proxy;
use crate::upstream::{PATH, Upstream};

/// Place of the four arguments in the words of a driver.
pub(crate) const PLACE: &str = "{}";
/// Longest time of a driver: a call has a deadline of a minute, and some calls use it up.
const LONGEST: Duration = Duration::from_secs(240);
const LONGEST_EACH: Duration = Duration::from_millis(100);
/// Lines of the driver's errors that are shown.
const SHOWN: usize = 20;

/// Settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Name of the client in the output.
    pub(crate) name: String,
    /// Program of the driver and its arguments.
    pub(crate) driver: Vec<String>,
    pub(crate) commands: Number,
    pub(crate) seed: u64,
    /// Path of the gateway's program.
    pub(crate) program: PathBuf,
}

/// Result of a run.
pub(crate) struct Outcome {
    pub(crate) pages: Pages,
    pub(crate) printed: Printed,
    pub(crate) violations: Vec<Violation>,
    pub(crate) took: Duration,
}

/// Runs the driver, and judges what it did.
///
/// # Errors
/// Says what could not be run: then nothing is proven.
pub(crate) async fn run(options: &Options, folder: &Path) -> Result<Outcome, String> {
    let book = Arc::new(Book::default());
    let listen = || TcpListener::bind("127.0.0.1:0");
    let (upstream, proxy) = (listen().await.map_err(said)?, listen().await.map_err(said)?);
    let (ledger, front) = (upstream.local_addr().map_err(said)?, proxy.local_addr().map_err(said)?);
    let service = Arc::new(Upstream { seed: options.seed, book: book.clone() });
    let service = tokio::spawn(breaking::serve(upstream, move |request| service.clone().answer(request)));
    let (program, place) = (options.program.clone(), folder.to_owned());
    let started = tokio::task::spawn_blocking(move || gateway::start(&program, &place, ledger)).await;
    let mut semel = started.map_err(said)??;
    let address = *semel.addresses().first().ok_or("the gateway has no address")?;
    let broken = Arc::new(Proxy { seed: options.seed, gateway: address, book: book.clone() });
    let broken = tokio::spawn(broken.serve(proxy));

    let begun = Instant::now();
    let journal = folder.join("journal");
    let output = drive(options, folder, &format!("http://{front}"), &journal).await;
    let took = begun.elapsed();
    broken.abort();
    let ended = semel.exit_status()?;
    tokio::task::spawn_blocking(move || drop(semel)).await.map_err(said)?;
    service.abort();
    if let Some(status) = ended {
        return Err(format!("the gateway has ended by itself: {status}"));
    }
    let printed = Printed::read(&output?)?;
    let kept = journal::pending(&journal)?;
    let pages = book.pages().clone();
    let violations = judge(options.commands, &printed, &kept, &pages);
    Ok(Outcome { pages, printed, violations, took })
}

/// Runs the driver to its end. Returns its output.
async fn drive(options: &Options, folder: &Path, origin: &str, journal: &Path) -> Result<String, String> {
    let count = options.commands.to_string();
    let four = [origin, PATH, &count, journal.to_str().ok_or("the temporary folder is no text")?];
    let mut words = Vec::new();
    for word in &options.driver {
        match word.as_str() {
            PLACE => words.extend(four.map(str::to_owned)),
            _ => words.push(word.clone()),
        }
    }
    if !options.driver.iter().any(|word| word == PLACE) {
        words.extend(four.map(str::to_owned));
    }
    let (program, arguments) = words.split_first().ok_or("no program of a driver is named")?;
    let log = folder.join("driver.log");
    let errors = std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true);
    // Proxies of the environment are no part of this run.
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let driver = command.spawn().map_err(|error| format!("{program} cannot be run: {error}"))?;
    let limit = LONGEST + LONGEST_EACH * u32::try_from(options.commands).unwrap_or(u32::MAX);
    let ended = tokio::time::timeout(limit, driver.wait_with_output()).await;
    let said_last = || last_lines(&std::fs::read_to_string(&log).unwrap_or_default(), SHOWN);
    let output = ended
        .map_err(|_| {
            format!("{program} has not ended after {} s; its errors:\n{}", limit.as_secs(), said_last())
        })?
        .map_err(said)?;
    if !output.status.success() {
        return Err(format!("{program} ended with {}; its errors:\n{}", output.status, said_last()));
    }
    String::from_utf8(output.stdout).map_err(said)
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns the last lines of a text.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
