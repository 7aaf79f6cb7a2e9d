//! A real browser: runs a script in Node, which drives Chromium through `browser/browser.mjs`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Variable with the folder of the browser, which `cargo xtask browser` installs.
pub const VARIABLE: &str = "SEMEL_TEST_BROWSER";

/// Interval at which a running script is looked at.
const PAUSE: Duration = Duration::from_millis(20);

fn installed() -> Result<PathBuf, String> {
    let folder = std::env::var_os(VARIABLE).map(PathBuf::from).ok_or_else(|| {
        format!(
            "no browser: {VARIABLE} is not set. Run the tests with `cargo xtask test`, which installs one, or set it \
             with `eval \"$(cargo xtask browser)\"`."
        )
    })?;
    let is_there = folder.join("chromium").is_file();
    let absent =
        || format!("{VARIABLE}: {} has no browser; `cargo xtask browser` installs one", folder.display());
    if is_there { Ok(folder.clone()) } else { Err(absent()) }
}

/// Runs a script with these arguments. Blocks until it ends, and returns its output.
///
/// # Errors
/// Fails with the whole output of a script that fails, or that takes longer than `limit`.
pub fn run(script: &Path, arguments: &[&str], limit: Duration) -> Result<String, String> {
    let browser = installed()?;
    // The browser's profile is deleted with it.
    let folder = tempfile::TempDir::new().map_err(|error| error.to_string())?;
    let printed = folder.path().join("printed");
    let output = std::fs::File::create(&printed).map_err(|error| error.to_string())?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let mut process = Command::new("node")
        .arg(script)
        .args(arguments)
        .env(VARIABLE, browser)
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("`node` does not run: {error}; `cargo xtask browser` installs it"))?;
    let begun = Instant::now();
    let ended = loop {
        match process.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => break Ok(()),
            Some(status) => break Err(status.to_string()),
            None if begun.elapsed() > limit => {
                let _ = process.kill();
                let _ = process.wait();
                break Err(format!("not done after {} s", limit.as_secs()));
            }
            None => std::thread::sleep(PAUSE),
        }
    };
    let said = std::fs::read_to_string(&printed).unwrap_or_default();
    match ended {
        Ok(()) => Ok(said),
        Err(why) => Err(format!("{}: {why}; it printed:\n{said}", script.display())),
    }
}
