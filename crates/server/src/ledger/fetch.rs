//! Reads a ledger from an address: one GET, bounded in time and size, read as it arrives.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use semel_flow::reconcile::ledger::{Ages, Columns, Format, Ledger, Reading};
use tokio::net::TcpStream;

use super::plan::Url;
use crate::forward;

/// The largest head of an answer.
const MAX_HEAD: usize = 64 * 1024;

/// What is asked for, where no format is configured.
const ANY: &str = "application/x-ndjson, text/csv, application/json";

/// Reads all of it, within the time that it has.
pub(super) async fn fetch(url: &Url, columns: &Columns, ages: Ages) -> anyhow::Result<Ledger> {
    match tokio::time::timeout(url.timeout, ask(url, columns, ages)).await {
        Ok(read) => read,
        Err(_) => bail!("not all of it arrived within {:?}, which is `timeout`", url.timeout),
    }
}

async fn ask(url: &Url, columns: &Columns, ages: Ages) -> anyhow::Result<Ledger> {
    let request = request(url)?;
    let authority = url.address.authority().context("the address has no host")?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream =
        TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await.context("cannot connect")?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await?;
    // In the same task, so that both end together.
    let answering = async {
        let (head, body) = sender.send_request(request).await.context("no answer")?.into_parts();
        ensure!(head.status == StatusCode::OK, "it answers {}, and 200 is expected", head.status);
        ensure!(
            body.size_hint().exact().is_some() || forward::is_chunked(&head.headers),
            "it has neither a Content-Length nor chunks: its end cannot be told from a connection that broke"
        );
        let reading = Reading::new(format(url, &head.headers)?, columns, ages)?;
        read_body(body, reading, url.max_size).await
    };
    tokio::pin!(connection);
    tokio::pin!(answering);
    tokio::select! {
        biased;
        read = &mut answering => read,
        ended = &mut connection => match ended {
            // The answer may have come before the end.
            Ok(()) => answering.await,
            Err(error) => Err(error).context("the connection broke"),
        },
    }
}

fn request(url: &Url) -> anyhow::Result<Request<Empty<Bytes>>> {
    let authority = url.address.authority().map_or("", |authority| authority.as_str());
    let path = url.address.path_and_query().map_or("/", |path| path.as_str());
    let accept = match url.format {
        Some(Format::Csv) => "text/csv",
        Some(Format::Ndjson) => "application/x-ndjson",
        Some(Format::Json) => "application/json",
        None => ANY,
    };
    let mut request = Request::get(path)
        .header(HOST, authority)
        .header(CONNECTION, "close")
        .header(USER_AGENT, concat!("semel/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, accept)
        .body(Empty::new())?;
    if let Some(authorization) = url.authorization()? {
        request.headers_mut().insert(AUTHORIZATION, authorization);
    }
    Ok(request)
}

/// How the answer is written: as configured, or as it says.
fn format(url: &Url, headers: &HeaderMap) -> anyhow::Result<Format> {
    if let Some(coding) = headers.get(CONTENT_ENCODING) {
        ensure!(
            coding == "identity",
            "it is sent with {coding:?} as Content-Encoding, and none was asked for"
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

async fn read_body(mut body: Incoming, mut reading: Reading, max_size: usize) -> anyhow::Result<Ledger> {
    let mut size: usize = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("it broke off")?;
        let Some(data) = frame.data_ref() else { continue };
        size = size.saturating_add(data.len());
        ensure!(size <= max_size, "it is larger than {max_size} bytes, which is `max_size`");
        reading.feed(data)?;
    }
    Ok(reading.finish()?)
}
