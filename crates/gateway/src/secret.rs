//! Secrets from the sources in the configuration, fetched once at startup.
//!
//! Invariant: no message reveals anything about a secret itself.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use semel_settings::{SecretSource, VariableName};
use tokio::io::AsyncReadExt;

/// Timeout for a program that prints a secret.
const PATIENCE: Duration = Duration::from_secs(10);

/// Largest number of bytes in a secret; one byte more is read from a longer one.
pub const MAX_BYTES: usize = 4096;

/// Returns the secret as its source has it.
pub async fn fetch(source: &SecretSource) -> anyhow::Result<Vec<u8>> {
    match source {
        SecretSource::File(path) => read_file(path),
        SecretSource::Variable(name) => read_variable(name.as_str()),
        SecretSource::Command(words) => run(words).await,
    }
}

/// Returns the secret, if it can be read without running a program.
pub fn look(source: &SecretSource) -> Option<anyhow::Result<Vec<u8>>> {
    match source {
        SecretSource::File(path) => Some(read_file(path)),
        SecretSource::Variable(name) => Some(read_variable(name.as_str())),
        SecretSource::Command(_) => None,
    }
}

/// Returns the value of a variable that is not blank.
///
/// # Errors
/// Fails if the variable is not set, or blank.
pub fn of_variable(name: &VariableName) -> anyhow::Result<String> {
    let name = name.as_str();
    let value = std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    value.with_context(|| {
        format!(
            "the environment variable {name} is not set, or is empty: set it to the secret before you start"
        )
    })
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).context("it cannot be read")?;
    Ok(bytes)
}

fn read_variable(name: &str) -> anyhow::Result<Vec<u8>> {
    let value = std::env::var_os(name).with_context(|| format!("the variable {name} is not set"))?;
    Ok(value.into_encoded_bytes())
}

/// Returns the output of a program. It gets no input, and its standard error is passed through.
async fn run(words: &[String]) -> anyhow::Result<Vec<u8>> {
    let (program, arguments) = words.split_first().context("there is no program")?;
    let running = async {
        let mut process = tokio::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {program}"))?;
        let mut bytes = Vec::new();
        if let Some(output) = process.stdout.take() {
            output.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
        }
        ensure!(bytes.len() <= MAX_BYTES, "{program} prints more than a secret");
        let status = process.wait().await?;
        ensure!(status.success(), "{program} failed ({status})");
        Ok(bytes)
    };
    match tokio::time::timeout(PATIENCE, running).await {
        Ok(read) => read,
        Err(_) => bail!("{program} did not end within {} s", PATIENCE.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> SecretSource {
        SecretSource::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[tokio::test]
    async fn a_secret_comes_from_a_file_or_a_program() {
        let folder = tempfile::TempDir::new().expect("there is room");
        let path = folder.path().join("secret");
        std::fs::write(&path, "a secret").expect("there is room");
        let file = SecretSource::File(path.clone());
        assert_eq!(fetch(&file).await.expect("it is there"), b"a secret");
        assert_eq!(look(&file).expect("it can be looked at").expect("it is there"), b"a secret");
        let cat = command(&["cat", path.to_str().expect("it is text")]);
        assert_eq!(fetch(&cat).await.expect("it runs"), b"a secret");
        assert!(look(&cat).is_none(), "nothing is run only to look");
        let shell = fetch(&command(&["printf", "%s;$(id)"])).await.expect("it runs");
        assert_eq!(shell, b";$(id)", "there is no shell");
    }

    #[tokio::test]
    async fn a_source_that_fails_is_named_and_bounded() {
        for (words, why) in [
            (&["/nowhere/program"][..], "cannot run /nowhere/program"),
            (&["false"], "false failed"),
            (&["yes"], "prints more than a secret"),
        ] {
            let said = format!("{:#}", fetch(&command(words)).await.expect_err("it fails"));
            assert!(said.contains(why), "{said}");
        }
        let said =
            format!("{:#}", fetch(&SecretSource::File("/nowhere/key".into())).await.expect_err("it fails"));
        assert!(said.contains("cannot read /nowhere/key"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_does_not_end_is_not_waited_for() {
        let said = fetch(&command(&["sleep", "600"])).await.expect_err("it takes too long").to_string();
        assert!(said.contains("did not end within 10 s"), "{said}");
    }
}
