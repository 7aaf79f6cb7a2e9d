//! Runs a script of `browser/` in Node, with a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Environment variable with the browser's folder, which `cargo xtask browser` installs.
const VARIABLE: &str = "SEMEL_TEST_BROWSER";

/// Timeout of a script.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

fn installed() -> PathBuf {
    let folder = std::env::var_os(VARIABLE).map(PathBuf::from).unwrap_or_else(|| {
        panic!(
            "no browser: {VARIABLE} is not set. Run the tests with `cargo xtask test`, which installs one, or set it \
             with `eval \"$(cargo xtask browser)\"`."
        )
    });
    let is_there = folder.join("chromium").is_file();
    assert!(is_there, "{VARIABLE}: {} has no browser; `cargo xtask browser` installs one", folder.display());
    folder
}

/// Runs `browser/SCRIPT ADDRESS PICTURE MORE`, and fails with all that it printed unless it succeeds. Returns the picture.
pub(crate) fn run(script: &str, address: &str, more: &[&str]) -> PathBuf {
    let browser = installed();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser").join(script);
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(script.with_extension("png").file_name().expect("it has one"));
    let _ = std::fs::remove_file(&picture);
    // The browser's profile is deleted with it.
    let folder = crate::process::folder();
    let printed = folder.path().join("printed");
    let output = std::fs::File::create(&printed).expect("it can be made");
    let mut process = Command::new("node")
        .arg(&script)
        .args([address, &picture.to_string_lossy()])
        .args(more)
        .env(VARIABLE, browser)
        .env("TMPDIR", folder.path())
        .stderr(output.try_clone().expect("it is a file"))
        .stdout(output)
        .spawn()
        .expect("`node` runs; `cargo xtask browser` installs it");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait().expect("it is ours") {
            break status.to_string();
        }
        if begun.elapsed() > LIMIT {
            let _ = process.kill();
            let _ = process.wait();
            break format!("not done after {} s", LIMIT.as_secs());
        }
        std::thread::sleep(PAUSE);
    };
    let said = std::fs::read_to_string(&printed).unwrap_or_default();
    let (script, seen) = (script.display(), picture.display());
    assert_eq!(status, "exit status: 0", "{script}; how it looked: {seen}; what it printed:\n{said}");
    picture
}
