//! Reads a ledger from an address: one GET, bounded in time and size, read as it arrives.

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use semel_flow::reconcile::ledger::{Ages, Format, Ledger, LedgerColumns, LedgerReader};
use semel_gateway::service::tls_settings;
use semel_outgoing::{Client, Error, ServiceAnswer};
use semel_settings::LedgerUrl;

/// Value of `Accept` if no format is configured.
const ANY: &str = "application/x-ndjson, text/csv, application/json";

/// Reads the whole ledger within its timeout.
pub(super) async fn fetch(url: &LedgerUrl, columns: &LedgerColumns, ages: Ages) -> anyhow::Result<Ledger> {
    ask(url, columns, ages).await.map_err(|error| match error.downcast_ref() {
        Some(Error::TimedOut(timeout)) => {
            anyhow::anyhow!("not all of it arrived within {timeout:?}, which is `timeout`")
        }
        _ => error,
    })
}

async fn ask(url: &LedgerUrl, columns: &LedgerColumns, ages: Ages) -> anyhow::Result<Ledger> {
    let client = self::client(url)?;
    let answer = client.send(request(&client, url)?).await?;
    let head = &answer.head;
    ensure!(head.status == StatusCode::OK, "it answers {}, and 200 is expected", head.status);
    ensure!(
        answer.is_delimited(),
        "it has neither a Content-Length nor chunks: its end cannot be told from a connection that broke"
    );
    let reading = LedgerReader::new(format(url, &head.headers)?, columns, ages)?;
    read_body(answer, reading, url.max_size).await
}

fn request(client: &Client, url: &LedgerUrl) -> anyhow::Result<Request<Full<Bytes>>> {
    let accept = match url.format {
        Some(Format::Csv) => "text/csv",
        Some(Format::Ndjson) => "application/x-ndjson",
        Some(Format::Json) => "application/json",
        None => ANY,
    };
    let request = client.request(Method::GET, client.address().target()).header(ACCEPT, accept);
    let mut request = request.body(Full::default())?;
    if let Some(authorization) = authorization(url)? {
        request.headers_mut().insert(AUTHORIZATION, authorization);
    }
    Ok(request)
}

/// Returns the format of the answer: the configured one, or that of `Content-Type`.
fn format(url: &LedgerUrl, headers: &HeaderMap) -> anyhow::Result<Format> {
    if let Some(coding) = headers.get(CONTENT_ENCODING) {
        ensure!(
            coding == "identity",
            "it is sent with {coding:?} as Content-Encoding, and the request accepts none"
        );
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let said = url.format.or_else(|| Format::of_content_type(content_type));
    said.with_context(|| {
        format!(
            "its Content-Type {content_type:?} is not a known one: set `their_format` to csv, ndjson or json"
        )
    })
}

async fn read_body(
    mut answer: ServiceAnswer,
    mut reading: LedgerReader,
    max_size: usize,
) -> anyhow::Result<Ledger> {
    let mut size: usize = 0;
    while let Some(data) = answer.chunk().await? {
        size = size.saturating_add(data.len());
        ensure!(size <= max_size, "it is larger than {max_size} bytes, which is `max_size`");
        reading.feed(&data)?;
    }
    Ok(reading.finish()?)
}

/// Makes the client that reads a ledger.
///
/// # Errors
/// Fails if no certificate can be for the host.
pub(super) fn client(url: &LedgerUrl) -> anyhow::Result<Client> {
    Ok(Client::new(url.address.address()?, tls_settings(&url.tls))?
        .connect_timeout(url.timeout)
        .timeout(url.timeout))
}

/// Returns the value of `Authorization`, if the settings name a variable for it.
///
/// # Errors
/// Fails if the variable is not set, or cannot be in a header.
pub(super) fn authorization(url: &LedgerUrl) -> anyhow::Result<Option<HeaderValue>> {
    let Some(name) = &url.authorization_env else { return Ok(None) };
    let value = std::env::var(name)
        .map_err(|_| anyhow::anyhow!("the variable {name}, which holds the credential, is not set"))?;
    // The value itself is never shown.
    let mut value = HeaderValue::from_str(&value)
        .map_err(|_| anyhow::anyhow!("the variable {name} holds a character that no header can carry"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}
