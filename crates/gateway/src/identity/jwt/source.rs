//! Source of an issuer's keys, and its refresh. A source that cannot be read leaves the former keys.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING};
use http::{Method, StatusCode};
use http_body_util::Full;
use metrics::counter;
use semel_outgoing::Pool;
use semel_settings::{JwtSettings, KeySource};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::TokenVerifier;
use crate::service::tls_settings;

/// Largest key set in bytes.
const MAX_BYTES: usize = 256 * 1024;
/// Timeout of a fetch.
const FETCH_TIME: Duration = Duration::from_secs(10);
/// Interval between two reads of a file.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest interval between two fetches because of tokens with unknown keys.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(10);

/// Reads keys from their source.
pub(super) enum Reader {
    File(PathBuf),
    Url(Pool),
}

impl Reader {
    pub(super) fn new(settings: &JwtSettings) -> anyhow::Result<Reader> {
        Ok(match &settings.keys {
            KeySource::File(path) => Reader::File(path.clone()),
            KeySource::Url(address) => {
                let pool = Pool::new(address.address()?, tls_settings(&settings.tls))?;
                pool.check()?;
                Reader::Url(pool)
            }
        })
    }

    pub(super) async fn read(&self) -> anyhow::Result<Bytes> {
        match self {
            Reader::File(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || file(&path)).await?
            }
            Reader::Url(service) => fetch(service).await,
        }
    }
}

fn file(path: &Path) -> anyhow::Result<Bytes> {
    let file = std::fs::File::open(path).context("cannot open the file")?;
    ensure!(file.metadata()?.is_file(), "it is no file");
    let mut text = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text).context("cannot read the file")?;
    ensure!(text.len() <= MAX_BYTES, "it has more than {MAX_BYTES} bytes");
    Ok(text.into())
}

async fn fetch(service: &Pool) -> anyhow::Result<Bytes> {
    let question = service.question(Method::GET).header(ACCEPT, "application/jwk-set+json, application/json");
    let answer = service.ask(question.body(Full::default())?, MAX_BYTES, FETCH_TIME).await?;
    ensure!(answer.status() == StatusCode::OK, "it answers {}, and 200 is expected", answer.status());
    let coding = answer.headers().get(CONTENT_ENCODING);
    ensure!(
        coding.is_none_or(|coding| coding == "identity"),
        "it is sent with a Content-Encoding, and the request accepts none"
    );
    Ok(answer.into_body())
}

/// Reads the keys again and again until the verifier is dropped: a file every few seconds, an address once in
/// an interval, and soon after a token has named an unknown key, no matter how many tokens do. `text` is the
/// first read.
pub(super) async fn refresh(
    reader: Reader,
    mut text: Bytes,
    settings: JwtSettings,
    verifier: Weak<TokenVerifier>,
    unknown: Arc<Notify>,
) {
    let interval = match &reader {
        Reader::File(_) => LOOK_INTERVAL,
        Reader::Url(_) => settings.refresh,
    };
    let mut fetched_for_unknown: Option<Instant> = None;
    let mut complaint = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = unknown.notified() => {
                if let Some(fetched) = fetched_for_unknown {
                    sleep_until(fetched + UNKNOWN_PAUSE).await;
                }
                fetched_for_unknown = Some(Instant::now());
            }
        }
        let read = reader.read().await;
        let Some(verifier) = verifier.upgrade() else { return };
        let replaced = read.and_then(|read| verifier.replace(&mut text, read));
        let outcome = if replaced.is_ok() { "read" } else { "failed" };
        counter!("identity_keys_read_total", "outcome" => outcome).increment(1);
        let error = replaced.err().map(|error| format!("{error:#}"));
        // A file is read often: each fault is logged once.
        if let Some(error) = error.as_deref().filter(|_| error != complaint) {
            tracing::warn!(error, source = %settings.keys, "the keys for tokens could not be read again: the old ones stay");
        }
        complaint = error;
    }
}
