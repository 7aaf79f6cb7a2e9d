//! Counts the records of a store, in milliseconds however many there are: records whose outcome is open come from their
//! partial indexes; the others are counted while their table is small, and estimated from a sample of its pages when it
//! is large.

use semel_core::{Census, CensusGroup, StateName, Timestamp};

use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};

/// Number of pages of the table up to which settled records are counted one by one.
const MAX_COUNTED_PAGES: i64 = 2_000;

/// Number of pages of a larger table that the estimate reads, on average.
const SAMPLED_PAGES: i64 = 1_000;

/// Selects the number of pages of the table of records, and the size of all tables of Semel in the same schema, with
/// their indexes. Another schema may have such tables, too: the search path decides.
const SIZES: &str = "
    SELECT pg_relation_size(records.oid) / current_setting('block_size')::bigint, (
        SELECT sum(pg_total_relation_size(part.oid))::bigint FROM pg_class AS part
        WHERE part.relnamespace = records.relnamespace AND part.relkind = 'r' AND left(part.relname::text, 6) = 'semel_')
    FROM pg_class AS records WHERE records.oid = to_regclass('semel_records')";

/// Counts records whose outcome is open. Each half has the condition of a partial index.
pub(super) const COUNT_OPEN: &str = "
    SELECT operation, state, count(*), min(state_since) FROM semel_records
    WHERE due_at IS NOT NULL GROUP BY operation, state
    UNION ALL
    SELECT operation, state, count(*), min(state_since) FROM semel_records
    WHERE reconcile_after IS NOT NULL GROUP BY operation, state";

/// Counts settled records. Reads the whole table.
const COUNT_SETTLED: &str = "
    SELECT operation, state, count(*), min(state_since) FROM semel_records
    WHERE due_at IS NULL AND reconcile_after IS NULL GROUP BY operation, state";

/// Counts settled records on `$1` of the table's `$2` pages. The pages are the same every time, so that an estimate
/// changes only with the records.
const SAMPLE_SETTLED: &str = "
    SELECT operation, state, count(*), NULL::bigint FROM semel_records TABLESAMPLE SYSTEM (100.0 * $1 / $2) REPEATABLE (0)
    WHERE due_at IS NULL AND reconcile_after IS NULL GROUP BY operation, state";

/// Returns the number of records of each operation in each state, and the size of the store.
pub(super) async fn census(db: &mut impl Executor) -> Result<Census, DbError> {
    let sizes = db.query(SIZES, &[]).await?;
    let size = |column| sizes.first().and_then(|row| row.int(column));
    let pages = size(0).ok_or_else(|| DbError::unreadable("semel_records", "there is no such table"))?;
    let mut groups = Vec::new();
    for row in db.query(COUNT_OPEN, &[]).await? {
        groups.push(group(&row)?);
    }
    if pages <= MAX_COUNTED_PAGES {
        for row in db.query(COUNT_SETTLED, &[]).await? {
            groups.push(group(&row)?);
        }
    } else {
        let sample = [SqlValue::Int(Some(SAMPLED_PAGES)), SqlValue::Int(Some(pages))];
        for row in db.query(SAMPLE_SETTLED, &sample).await? {
            let sampled = group(&row)?;
            groups.push(CensusGroup { count: scaled(sampled.count, pages), is_estimate: true, ..sampled });
        }
    }
    let bytes = size(1).and_then(|bytes| u64::try_from(bytes).ok());
    Ok(Census { groups, bytes, is_estimate: pages > MAX_COUNTED_PAGES })
}

/// Returns the group of a row: operation, state, count, and the oldest time.
fn group(row: &SqlRow) -> Result<CensusGroup, DbError> {
    let state = row.text(1).and_then(StateName::parse);
    Ok(CensusGroup {
        operation: row.text(0).unwrap_or_default().to_owned(),
        state: state.ok_or_else(|| DbError::unreadable("state", "it is not a state"))?,
        count: row.int(2).and_then(|count| u64::try_from(count).ok()).unwrap_or(0),
        is_estimate: false,
        oldest: row.int(3).map(Timestamp::from_millis),
    })
}

/// Returns the number of records on all pages, given the number on the sampled ones.
fn scaled(sampled: u64, pages: i64) -> u64 {
    let all =
        u128::from(sampled) * u128::from(pages.unsigned_abs()) / u128::from(SAMPLED_PAGES.unsigned_abs());
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_scaled_by_its_share_of_the_pages() {
        assert_eq!(scaled(13_000, 750_000), 9_750_000);
        assert_eq!(scaled(1, 2_500), 2);
        assert_eq!(scaled(0, i64::MAX), 0);
        assert_eq!(scaled(u64::MAX, i64::MAX), u64::MAX);
    }
}
