//! Bytes of a record on PostgreSQL's disk: heap, each index, TOAST; dense, and as commands leave it before a vacuum.

use super::server::Server;
use super::{Extent, print, rounded, send};
use crate::Result;

/// Responses: name, and bytes of the body.
const RESPONSES: [(&str, usize); 3] = [("empty", 0), ("1 KiB", 1024), ("8 KiB", 8192)];

const SIZES: &str = "
    SELECT 'heap', pg_relation_size('semel_records')
    UNION ALL SELECT 'TOAST', pg_total_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'semel_records'::regclass
    UNION ALL SELECT relname, pg_relation_size(indexrelid) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = 'semel_records'::regclass";

/// Measures records that were copied, and records of real commands.
pub(super) async fn run(extent: Extent) -> Result<()> {
    let mut rows = Vec::new();
    for (name, length) in RESPONSES {
        for count in [100_000, 1_000_000].map(|count| extent.of(count)) {
            if length == 8192 && count > extent.of(100_000) {
                continue;
            }
            let server = Server::start().await?;
            let store = server.open().await?;
            send(&store, 1, 1, length).await?;
            drop(store);
            server.fill(count - 1, 86_400_000)?;
            server.database.sql("VACUUM ANALYZE semel_records")?;
            add(&mut rows, &server, &format!("{name}, copied"), count)?;
        }
    }
    for (name, length) in &RESPONSES[..2] {
        let (server, count) = (Server::start().await?, extent.of(100_000));
        let store = server.open().await?;
        send(&store, count, 256, *length).await?;
        drop(store);
        add(&mut rows, &server, &format!("{name}, by commands, never vacuumed"), count)?;
        server.database.sql("VACUUM semel_records")?;
        let store = server.open().await?;
        send(&store, count, 256, *length).await?;
        drop(store);
        add(&mut rows, &server, &format!("{name}, vacuumed once on the way"), count * 2)?;
    }
    print(
        "Bytes of a record on PostgreSQL",
        &["response", "records", "all", "heap", "TOAST", "primary key", "operation_id", "expiry", "others"],
        &rows,
    );
    Ok(())
}

fn add(rows: &mut Vec<Vec<String>>, server: &Server, name: &str, count: u64) -> Result<()> {
    let sizes = server.database.sql(SIZES)?;
    let size_of = |wanted: &dyn Fn(&str) -> bool| -> f64 {
        let parts = sizes.lines().filter_map(|line| line.split_once('|'));
        let bytes = parts.filter(|(part, _)| wanted(part)).filter_map(|(_, bytes)| bytes.parse::<f64>().ok());
        bytes.sum::<f64>() / count as f64
    };
    const NAMED: [&str; 5] =
        ["heap", "TOAST", "semel_records_pkey", "semel_records_operation_id", "semel_records_expiry"];
    let mut row = vec![name.to_owned(), crate::chart::count(count), rounded(size_of(&|_| true))];
    row.extend(NAMED.map(|named| rounded(size_of(&|part| part == named))));
    row.push(rounded(size_of(&|part| !NAMED.contains(&part))));
    rows.push(row);
    println!("   {}", rows.last().map_or(String::new(), |row| row.join(", ")));
    Ok(())
}
