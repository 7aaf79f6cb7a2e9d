//! Client of a running gateway's admin listener, for commands that are about that process.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::Full;
use semel_outgoing::{Address, AddressError, Client, TlsSettings, Trust};
use semel_settings::{Config, redact};
use serde_json::Value;

use super::doctor::from_here;
use super::printable;

/// Time for a request.
const PATIENCE: Duration = Duration::from_secs(15);
/// Largest number of bytes of an answer.
pub(super) const MAX_ANSWER: usize = 64 << 20;
/// Largest number of bytes of a token file.
const MAX_TOKEN_FILE: u64 = 4096;

/// The credentials at an admin listener.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AdminFlags {
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        help = "File with the token for the admin listener, if it needs one"
    )]
    token_file: Option<PathBuf>,
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        help = "With an https:// address: the authorities to trust, in PEM, instead of the system's"
    )]
    ca: Option<PathBuf>,
}

/// Returns the address of the configured gateway's admin listener, from this machine.
pub(super) fn configured(config: &Config) -> String {
    let scheme = if config.admin_tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", from_here(config.admin_listen))
}

/// Client of one admin listener.
pub(super) struct AdminClient {
    client: Client,
    token: Option<HeaderValue>,
}

impl AdminClient {
    /// Makes a client of the listener at this address.
    pub(super) fn new(url: &str, flags: &AdminFlags) -> anyhow::Result<AdminClient> {
        let address: Address = url.parse().map_err(|error| match error {
            AddressError::Credentials => anyhow::anyhow!("--admin: give the token with --token-file"),
            error => anyhow::anyhow!("--admin {:?}: {error}", redact(url)),
        })?;
        if !matches!(address.target(), "" | "/") {
            bail!("--admin is the address of the listener, without a path: {}", redact(url));
        }
        let token = flags.token_file.as_ref().map(token).transpose()?;
        if token.is_some() && address.is_exposed() {
            eprintln!(
                "warning: the token for {} crosses the network unencrypted: use https",
                address.authority()
            );
        }
        let client = Client::new(address, TlsSettings { trust: Trust::from(flags.ca.clone()), own: None })?;
        Ok(AdminClient { client: client.timeout(PATIENCE), token })
    }

    /// Sends a GET, and returns status and body.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// Sends a GET, and returns the JSON of the answer.
    pub(super) async fn get_json(&self, path: &str) -> anyhow::Result<Value> {
        self.answered(self.get(path).await?)
    }

    /// Sends a POST, and returns the JSON of the answer.
    pub(super) async fn post_json(&self, path: &str, members: &Value) -> anyhow::Result<Value> {
        self.answered(self.send(Method::POST, path, members.to_string().into()).await?)
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = self.client.request(method, path).body(Full::new(body))?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        let answer = self.client.send(request).await?.bytes(MAX_ANSWER).await?;
        Ok((answer.status(), answer.into_body()))
    }

    /// Returns the JSON of an answer.
    ///
    /// # Errors
    /// Fails if the gateway refuses, with its reason.
    fn answered(&self, (status, body): (StatusCode, Bytes)) -> anyhow::Result<Value> {
        let place = self.client.address().authority();
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        if status == StatusCode::OK {
            return answer.with_context(|| format!("{place} answers with no JSON: is it an admin listener?"));
        }
        let detail = answer.as_ref().and_then(|answer| answer["detail"].as_str());
        match (status, detail) {
            (StatusCode::UNAUTHORIZED, Some(_)) => {
                bail!("{place} needs a token that it knows: give one with --token-file")
            }
            (status, Some(detail)) => bail!("{place} answers {status}: {}", printable(detail)),
            (status, None) => bail!("{place} answers {status}: is it an admin listener?"),
        }
    }
}

/// Reads the token. It is never shown.
fn token(file: &PathBuf) -> anyhow::Result<HeaderValue> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|open| open.take(MAX_TOKEN_FILE).read_to_string(&mut text));
    read.with_context(|| format!("--token-file: cannot read {}", file.display()))?;
    let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
    let mut value = value.map_err(|_| anyhow::anyhow!("--token-file: {} holds no token", file.display()))?;
    value.set_sensitive(true);
    Ok(value)
}
