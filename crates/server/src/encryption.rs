//! The encryption keys, fetched from where the configuration says that they come from: once, when a store is opened.
//!
//! Invariant: no message says anything about a key but its id, its setting and its length.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use semel_stores::encryption::AesVault;
use tokio::io::AsyncReadExt;

use crate::config::{Encryption, EncryptionKey, KeySource};

/// How long a program may take to print a key.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most that is read in search of a key.
const MAX_BYTES: usize = 4096;

/// The length of a key.
const KEY_BYTES: usize = 32;

/// The keys, ready to be used.
pub(crate) async fn vault(encryption: &Encryption) -> anyhow::Result<Arc<AesVault>> {
    let mut keys = Vec::with_capacity(encryption.keys.len());
    for key in &encryption.keys {
        keys.push((key.id.clone(), fetch(key).await.with_context(|| format!("`{}`", key.setting()))?));
    }
    Ok(Arc::new(AesVault::new(&encryption.current, keys)?))
}

/// Whether the keys are there that can be looked at without running anything.
pub(crate) fn look(encryption: &Encryption) -> anyhow::Result<()> {
    for key in &encryption.keys {
        let text = match &key.source {
            KeySource::File(path) => read_file(path),
            KeySource::Variable(name) => read_variable(name.as_str()),
            KeySource::Command(_) => continue,
        };
        text.and_then(|text| parse(&text)).with_context(|| format!("`{}`", key.setting()))?;
    }
    Ok(())
}

async fn fetch(key: &EncryptionKey) -> anyhow::Result<[u8; KEY_BYTES]> {
    parse(&match &key.source {
        KeySource::File(path) => read_file(path)?,
        KeySource::Variable(name) => read_variable(name.as_str())?,
        KeySource::Command(words) => run(words).await?,
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

/// What a program prints. It gets no input, and what it says on its standard error is shown as it comes.
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
        ensure!(bytes.len() <= MAX_BYTES, "{program} prints more than a key");
        let status = process.wait().await?;
        ensure!(status.success(), "{program} failed ({status})");
        Ok(bytes)
    };
    match tokio::time::timeout(PATIENCE, running).await {
        Ok(read) => read,
        Err(_) => bail!("{program} did not end within {} s", PATIENCE.as_secs()),
    }
}

/// A key as it is written: 64 hexadecimal digits, or base64 with or without its padding, and nothing else but a line's end.
fn parse(text: &[u8]) -> anyhow::Result<[u8; KEY_BYTES]> {
    const EXPECTED: &str = "expected 32 bytes, as 64 hexadecimal digits or 44 characters of base64";
    let text = text.trim_ascii();
    ensure!(!text.is_empty(), "it is empty: {EXPECTED}");
    ensure!(text.len() <= MAX_BYTES, "it is too long for a key: {EXPECTED}");
    let bytes = decode_hex(text).or_else(|| decode_base64(text));
    let bytes = bytes.with_context(|| format!("it is neither hexadecimal nor base64: {EXPECTED}"))?;
    let length = bytes.len();
    bytes.try_into().ok().with_context(|| format!("it has {length} bytes: {EXPECTED}"))
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = text.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    // The padding is all there, or none is.
    let digits = match text.len() % 4 {
        0 => text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text),
        _ => text,
    };
    [&alphabet::STANDARD, &alphabet::URL_SAFE]
        .iter()
        .find_map(|alphabet| GeneralPurpose::new(alphabet, NO_PAD).decode(digits).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn a_key_is_read_in_either_spelling() {
        let key: [u8; 32] = std::array::from_fn(|index| index as u8);
        for text in [HEX, &HEX.to_uppercase(), &format!("{HEX}\n"), BASE64, &format!(" {BASE64}\r\n")] {
            assert_eq!(parse(text.as_bytes()).expect("it is a key"), key, "{text}");
        }
        assert_eq!(parse(BASE64.trim_end_matches('=').as_bytes()).expect("it is a key"), key);
        let url_safe = "-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_8=";
        assert!(parse(url_safe.as_bytes()).is_ok());
        assert!(parse(url_safe.replace('-', "+").replace('_', "/").as_bytes()).is_ok());
    }

    #[test]
    fn what_is_no_key_says_why_and_is_not_repeated() {
        for (text, why) in [
            ("", "it is empty"),
            ("\n", "it is empty"),
            (&HEX[..62], "it has 31 bytes"),
            (&format!("{HEX}00"), "it has 33 bytes"),
            ("c2VjcmV0", "it has 6 bytes"),
            ("not a key at all", "neither"),
            (&BASE64.replace('=', "=="), "neither"),
            (&BASE64.replace("AAEC", "+_EC"), "neither"),
            (&HEX.replace('0', "é"), "neither"),
            (&"0".repeat(5000), "too long"),
        ] {
            let said = parse(text.as_bytes()).expect_err("it is no key").to_string();
            assert!(said.contains(why), "{text}: {said}");
            assert!(text.trim().is_empty() || !said.contains(text.trim()), "{said}");
            assert!(said.contains("expected 32 bytes"), "{said}");
        }
    }

    fn key(source: KeySource) -> EncryptionKey {
        EncryptionKey { id: "a".to_owned(), source }
    }

    fn command(words: &[&str]) -> EncryptionKey {
        key(KeySource::Command(words.iter().map(|word| (*word).to_owned()).collect()))
    }

    #[tokio::test]
    async fn a_key_comes_from_a_file_or_a_program() {
        let folder = tempfile::TempDir::new().expect("there is room");
        let path = folder.path().join("key");
        std::fs::write(&path, HEX).expect("there is room");
        assert!(fetch(&key(KeySource::File(path.clone()))).await.is_ok());
        assert!(fetch(&command(&["cat", path.to_str().expect("it is text")])).await.is_ok());
        assert!(fetch(&command(&["printf", "%s;rm -r /", HEX])).await.is_err(), "there is no shell");
    }

    #[tokio::test]
    async fn a_source_that_fails_is_named_and_bounded() {
        for (words, why) in [
            (&["/nowhere/program"][..], "cannot run /nowhere/program"),
            (&["false"], "false failed"),
            (&["true"], "it is empty"),
            (&["yes"], "prints more than a key"),
        ] {
            let said = format!("{:#}", fetch(&command(words)).await.expect_err("it fails"));
            assert!(said.contains(why), "{said}");
        }
        let said =
            format!("{:#}", fetch(&key(KeySource::File("/nowhere/key".into()))).await.expect_err("it fails"));
        assert!(said.contains("cannot read /nowhere/key"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_does_not_end_is_not_waited_for() {
        let said = fetch(&command(&["sleep", "600"])).await.expect_err("it takes too long").to_string();
        assert!(said.contains("did not end within 10 s"), "{said}");
    }
}
