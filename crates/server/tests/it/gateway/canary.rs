//! Search for canaries in everything that is stored.

use rusqlite::types::ValueRef;

use super::lab::Site;

/// Returns everything that is stored: every row of every table, and for a file its bytes and those of its
/// log.
pub(crate) fn dump(site: &Site) -> Vec<u8> {
    if site.is_postgres() {
        let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'";
        let rows = |table: &String| site.column(&format!("SELECT t::text FROM \"{table}\" AS t")).join("\n");
        return site.column(tables).iter().map(rows).collect::<Vec<_>>().join("\n").into_bytes();
    }
    let database = site.database();
    let beside = |end: &str| std::fs::read(format!("{}{end}", database.display())).unwrap_or_default();
    [beside(""), beside("-wal"), beside("-shm"), rows(site)].concat()
}

/// Returns every row of every table of a file: long values are not contiguous in its bytes.
pub(crate) fn rows(site: &Site) -> Vec<u8> {
    let file = rusqlite::Connection::open(site.database()).expect("the file opens");
    let mut all = Vec::new();
    for table in site.column("SELECT name FROM sqlite_schema WHERE type = 'table'") {
        let mut query = file.prepare(&format!("SELECT * FROM \"{table}\"")).expect("it is there");
        let columns = query.column_count();
        let mut rows = query.query([]).expect("it reads");
        while let Some(row) = rows.next().expect("it reads") {
            for column in 0..columns {
                match row.get_ref(column).expect("it is there") {
                    ValueRef::Text(bytes) | ValueRef::Blob(bytes) => all.extend_from_slice(bytes),
                    ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => {}
                }
                all.push(b'\n');
            }
        }
    }
    all
}

/// Returns true if these bytes contain this text: as it is, or in hexadecimal, like PostgreSQL shows bytes.
pub(crate) fn shows(bytes: &[u8], text: &str) -> bool {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    [text, &hex].iter().any(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}
