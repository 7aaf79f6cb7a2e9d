//! Reads one ledger: from the store, a file, the standard input or an address.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use semel_core::{Filter, Records, StateName};
use semel_flow::reconcile::ledger::{Ages, Format, Ledger, LedgerColumns, LedgerReader};
use semel_settings::{LedgerSide, LedgerSource};

use super::fetch::fetch;

/// Number of records in one page of the store.
const PAGE: usize = 500;
/// Number of bytes in one read of a file.
const PIECE: usize = 64 * 1024;

/// Reads the whole ledger.
pub(super) async fn read(
    side: &LedgerSide,
    ages: Ages,
    store: Option<&Arc<dyn Records>>,
) -> anyhow::Result<Ledger> {
    match &side.source {
        LedgerSource::Store { operation } => {
            let store = store.context("there is no store to read")?;
            records(&**store, operation.as_deref(), ages).await
        }
        LedgerSource::File(path, format) => {
            let (path, format, columns) = (path.clone(), *format, side.columns.clone());
            tokio::task::spawn_blocking(move || file(&path, format, &columns, ages)).await?
        }
        LedgerSource::Input(format) => {
            let (format, columns) = (*format, side.columns.clone());
            let reading = move || all(&mut std::io::stdin().lock(), format, &columns, ages);
            tokio::task::spawn_blocking(reading).await?.context("the standard input")
        }
        LedgerSource::Url(url) => {
            let reading = fetch(url, &side.columns, ages).await;
            // The query of an address may hold secrets.
            let address = url.address.uri();
            let scheme = address.scheme_str().unwrap_or_default();
            reading.with_context(|| format!("{scheme}://{}{}", url.address.authority(), address.path()))
        }
    }
}

/// Returns the operation ids of succeeded commands, each with its time.
async fn records(store: &dyn Records, operation: Option<&str>, ages: Ages) -> anyhow::Result<Ledger> {
    let mut ledger = Ledger::new(0);
    let mut filter = Filter {
        state: Some(StateName::Succeeded),
        operation: operation.map(str::to_owned),
        limit: PAGE,
        ..Filter::default()
    };
    loop {
        let page = store.list(&filter).await?;
        for record in &page.records {
            let added = ledger.add(0, ages.of(record.updated_at), &record.operation_id.to_string(), &[]);
            added.map_err(anyhow::Error::msg)?;
        }
        match page.next {
            None => return Ok(ledger),
            next => filter.after = next,
        }
    }
}

fn file(path: &Path, format: Format, columns: &LedgerColumns, ages: Ages) -> anyhow::Result<Ledger> {
    let opened = File::open(path).with_context(|| format!("cannot open {}", path.display()));
    all(&mut opened?, format, columns, ages).with_context(|| path.display().to_string())
}

fn all(input: &mut dyn Read, format: Format, columns: &LedgerColumns, ages: Ages) -> anyhow::Result<Ledger> {
    let mut reading = LedgerReader::new(format, columns, ages)?;
    let mut piece = vec![0; PIECE];
    loop {
        match input.read(&mut piece) {
            Ok(0) => return Ok(reading.finish()?),
            Ok(length) => reading.feed(&piece[..length])?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("it cannot be read to its end"),
        }
    }
}
