//! Records the items of a bulk request.

use semel_core::{Event, Item, OperationId};

use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, SqlValue};
use super::link::Link;
use super::queries::{lock_command, tell};

const ANNOUNCE: &str = concat!(
    "INSERT INTO semel_phases (operation_id, position, name, kind, item_id, began_at)
     SELECT $2, i.position, i.name, 'item', i.id, n.now
     FROM unnest($3::bigint[], $4::text[], $5::bytea[]) AS i (position, name, id), ",
    now!(),
    " ON CONFLICT DO NOTHING"
);

/// Records the items of a command, and marks that parts of it may be done from now on.
pub(super) async fn announce(
    link: &mut Link,
    id: OperationId,
    items: &[Item],
    offset: i64,
) -> Result<(), DbError> {
    let positions = 0..i64::try_from(items.len()).unwrap_or(0);
    let values = [
        SqlValue::Int(Some(offset)),
        SqlValue::Uuid(*id.as_bytes()),
        SqlValue::IntList(positions.map(Some).collect()),
        SqlValue::TextList(items.iter().map(|item| Some(item.name.as_str())).collect()),
        SqlValue::BytesList(items.iter().map(|item| Some(&item.record.as_bytes()[..])).collect()),
    ];
    link.run("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    let announced = async {
        if let Some((record, _)) = lock_command(link, id, offset).await?
            && !record.head.partly_done
        {
            tell(link, &record.id, &Event::Advance, offset).await?;
        }
        link.query(ANNOUNCE, &values).await.map(|_| ())
    }
    .await;
    link.run(if announced.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    announced
}
