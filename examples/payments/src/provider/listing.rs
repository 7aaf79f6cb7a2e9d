//! The whole ledger and all events, sent page by page: as lines of JSON, and the ledger as CSV.

use std::fmt::Write;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Provider;
use super::ledger::Broken;

const LINES: &str = "application/x-ndjson";
const CSV: &str = "text/csv; charset=utf-8";

/// Text of a page, and the position of the next one; `None` after the last.
type Page = Result<Option<(String, i64)>, Broken>;

pub(super) async fn lines(State(provider): State<Provider>) -> Response {
    let page = move |after| {
        let ledger = provider.ledger.clone();
        async move {
            let charges = ledger.page(after).await?;
            json_lines(&charges, charges.last().map(|last| last.position))
        }
    };
    stream(LINES, "", page)
}

pub(super) async fn events(State(provider): State<Provider>) -> Response {
    let page = move |after| {
        let ledger = provider.ledger.clone();
        async move {
            let events = ledger.events(after).await?;
            json_lines(&events, events.last().map(|last| last.position))
        }
    };
    stream(LINES, "", page)
}

pub(super) async fn csv(State(provider): State<Provider>) -> Response {
    let page = move |after| {
        let ledger = provider.ledger.clone();
        async move {
            let charges = ledger.page(after).await?;
            let mut text = String::new();
            for charge in &charges {
                let (reference, status) = (quoted(&charge.reference), charge.status.name());
                let (id, amount, currency) = (&charge.id, charge.amount, &charge.currency);
                let _ = writeln!(text, "{reference},{id},{amount},{currency},{status},{}", charge.created_at);
            }
            Ok(charges.last().map(|last| (text, last.position)))
        }
    };
    stream(CSV, "reference,id,amount,currency,status,createdAt\n", page)
}

fn json_lines(all: &[impl Serialize], last: Option<i64>) -> Page {
    let mut text = String::new();
    for one in all {
        text.push_str(&serde_json::to_string(one)?);
        text.push('\n');
    }
    Ok(last.map(|last| (text, last)))
}

/// Streams pages as the client takes them. If one cannot be read, the connection breaks off.
fn stream<F, R>(content_type: &'static str, head: &'static str, page: F) -> Response
where
    F: Fn(i64) -> R + Clone + Send + 'static,
    R: Future<Output = Page> + Send + 'static,
{
    let pages = futures_util::stream::try_unfold(None, move |after: Option<i64>| {
        let page = page.clone();
        async move {
            let Some(after) = after else { return Ok(Some((Bytes::from_static(head.as_bytes()), Some(0)))) };
            let page = page(after).await.map_err(|broken| broken.to_string())?;
            Ok::<_, String>(page.map(|(text, last)| (Bytes::from(text), Some(last))))
        }
    });
    ([(CONTENT_TYPE, content_type)], Body::from_stream(pages)).into_response()
}

/// Quotes a CSV field if needed.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
