//! Removing what a statement proved absent, and keeping what was removed.
//!
//! Rows are deleted and copied in one statement, so no copy is without its removal, nor the reverse. A copy is a JSON
//! object of each column's *text form*, as PostgreSQL's own output function writes it under the sink's settings: that
//! form reads back to the same value for every type, where JSON's own numbers would lose scales, infinities and bytes.

use sink_api::{ErrorClass, LaneId, Removal, RemovalBudget, SinkError, SourceName, TableName};
use sqlx::{Arguments, AssertSqlSafe, Row, SqlSafeStr, postgres::PgArguments};

use crate::{
    connect::Session,
    errors::classify,
    frontier::uuid,
    identifier::quote_literal,
    keyed::{self, delete_text, key_arguments, key_array, key_parts, keys_per_statement},
    stream,
    table::{KeyPart, Table},
};

/// Why a row was removed, in `sink_repair.removed`.
const REASON: &str = "absent at the source";

/// Up to so many pages rows are counted instead of estimated: 8 MiB take milliseconds.
const COUNTED_PAGES: i64 = 1_000;

/// Where counting the rows of a table without statistics ends.
const COUNTED_ROWS: i64 = 1_000_000;

/// Removes the rows of `removal.keys`. Returns how many there were; [`count`] is the caller's.
pub(crate) async fn remove(
    session: &mut Session,
    table: &Table,
    lane: &LaneId,
    removal: &Removal<'_>,
) -> Result<u64, SinkError> {
    let parts = key_parts(table)?;
    if removal.keys.is_empty() {
        return Ok(0);
    }
    let doing = table.doing("remove orphans from");
    let sql = AssertSqlSafe(removal_text(table, parts)).into_sql_str();
    let keys: Vec<&[u8]> = removal.keys.iter().collect();
    let mut removed = 0;
    for keys in keys.chunks(keys_per_statement(parts)) {
        let mut arguments = key_arguments(table, parts, keys.iter().copied(), "remove orphans from")?;
        let _ = arguments.add(&table.shape.name.schema);
        let _ = arguments.add(&table.shape.name.name);
        let _ = arguments.add(&removal.read_id.0);
        let _ = arguments.add(REASON);
        let _ = arguments.add(&lane.name);
        let _ = arguments.add(&lane.topic);
        let _ = arguments.add(uuid(&lane.topic_id));
        let _ = arguments.add(lane.partition.0);
        let _ = arguments.add(removal.offset.0);
        let gone = session.execute_kept(&sql, arguments).await.map_err(|error| classify(&doing, &error))?;
        // A trigger may keep a row, or put it back.
        if gone < keys.len() as u64 || !table.shape.removal_hazards.is_empty() {
            check_gone(session, table, keys).await?;
        }
        removed += gone;
    }
    Ok(removed)
}

/// Makes sure that rows are not there any more.
async fn check_gone(session: &mut Session, table: &Table, keys: &[&[u8]]) -> Result<(), SinkError> {
    let verb = "remove orphans from";
    let doing = table.doing(verb);
    let kept = keyed::count(session, table, keys, verb).await?;
    if kept == 0 {
        return Ok(());
    }
    let message =
        format!("{doing}: the table kept {kept} of {} rows: {}", keys.len(), table.shape.removal_hazards.join(", "));
    Err(SinkError::new(ErrorClass::Data, message))
}

fn removal_text(table: &Table, parts: &[KeyPart]) -> String {
    let delete = match parts {
        // The subquery hides from the planner how many keys there are: one plan fits all, and is kept.
        [part] => format!(
            "DELETE FROM {} AS t\nWHERE t.{} = ANY(ARRAY(SELECT unnest({})))",
            table.sql,
            part.sql,
            key_array(part, 1)
        ),
        _ => delete_text(table, parts),
    };
    let (names, values): (Vec<String>, Vec<String>) = table
        .shape
        .columns
        .iter()
        .zip(&table.columns)
        .map(|(shape, column)| (quote_literal(&shape.name), format!("t.{}{}", column.sql, column.to_text)))
        .unzip();
    let place = |after: usize| parts.len() + after;
    format!(
        "WITH gone AS (\n{delete}\nRETURNING jsonb_object(ARRAY[{}]::pg_catalog.text[], ARRAY[{}]::pg_catalog.text[]) AS row_text\n)\n\
         INSERT INTO sink_repair.removed\n    (table_schema, table_name, read_id, reason, name, topic, topic_id, partition, position, row_text)\n\
         SELECT ${}::text, ${}::text, ${}::text, ${}::text, ${}::text, ${}::text, ${}::uuid, ${}::int4, ${}::int8, gone.row_text FROM gone",
        names.join(", "),
        values.join(", "),
        place(1),
        place(2),
        place(3),
        place(4),
        place(5),
        place(6),
        place(7),
        place(8),
        place(9),
    )
}

/// Counts what was removed. The count outlives the copies, whose retention is the operator's.
pub(crate) async fn count(
    session: &mut Session,
    table: &TableName,
    lane: &LaneId,
    removed: u64,
) -> Result<(), SinkError> {
    let mut arguments = PgArguments::default();
    let _ = arguments.add(&table.schema);
    let _ = arguments.add(&table.name);
    let _ = arguments.add(&lane.name);
    let _ = arguments.add(uuid(&lane.topic_id));
    let _ = arguments.add(lane.partition.0);
    let _ = arguments.add(i64::try_from(removed).unwrap_or(i64::MAX));
    let counted = session.own(COUNT, arguments).await;
    counted.map(drop).map_err(|error| classify(&format!("count the removals of {table}"), &error))
}

/// Returns what the caps need, but for removals that are not counted yet.
pub(crate) async fn budget(
    session: &mut Session,
    table: &Table,
    source: &SourceName,
    lane: &LaneId,
) -> Result<RemovalBudget, SinkError> {
    let fail = |error: sqlx::Error| classify(&table.doing("look up the removals of"), &error);
    let mut arguments = PgArguments::default();
    let _ = arguments.add(&table.shape.name.schema);
    let _ = arguments.add(&table.shape.name.name);
    let _ = arguments.add(&table.sql);
    let row = session.own_optional(BUDGET, arguments).await.map_err(fail)?;
    let row = row.ok_or_else(|| fail(sqlx::Error::RowNotFound))?;
    let held = stream::look(session, &table.shape.name, source, lane).await.map_err(fail)?;
    let removed: i64 = row.try_get("removed").map_err(fail)?;
    let pages: i64 = row.try_get("pages").map_err(fail)?;
    let estimate: i64 = row.try_get("estimate").map_err(fail)?;
    let unknown: bool = row.try_get("unknown").map_err(fail)?;
    let rows = if unknown || pages <= COUNTED_PAGES {
        let sql = format!("SELECT count(*) FROM (SELECT FROM {} LIMIT {COUNTED_ROWS}) AS counted", table.sql);
        let sql = AssertSqlSafe(sql).into_sql_str();
        let counted: i64 =
            session.fetch_one(&sql, PgArguments::default()).await.and_then(|row| row.try_get(0)).map_err(fail)?;
        // A count that was cut off is a lower bound; so is what other partitions' statistics say.
        counted.max(if counted == COUNTED_ROWS { estimate } else { 0 })
    } else {
        estimate
    };
    Ok(RemovalBudget {
        removed_last_day: u64::try_from(removed).unwrap_or_default(),
        rows: u64::try_from(rows).unwrap_or_default(),
        fed: held.fed,
        streams: held.streams,
    })
}

/// One row an hour and lane, so that lanes do not wait for each other; those that no budget asks for any more go.
const COUNT: &str = "
WITH old AS (
    DELETE FROM sink_repair.removal_count
    WHERE table_schema = $1 AND table_name = $2 AND name = $3 AND topic_id = $4 AND partition = $5
      AND hour < now() - interval '2 days'
)
INSERT INTO sink_repair.removal_count AS c (table_schema, table_name, name, topic_id, partition, hour, removed)
VALUES ($1, $2, $3, $4, $5, date_trunc('hour', now()), $6)
ON CONFLICT (table_schema, table_name, hour, name, topic_id, partition)
DO UPDATE SET removed = c.removed + excluded.removed";

/// An hour counts whole when any part of it lies within the day. The estimate is the planner's own: the density seen by
/// the last ANALYZE times the present size.
const BUDGET: &str = "
SELECT
    (SELECT coalesce(sum(removed), 0)::int8 FROM sink_repair.removal_count
     WHERE table_schema = $1 AND table_name = $2 AND hour > now() - interval '25 hours') AS removed,
    coalesce(sum(size.pages), 0)::int8 AS pages,
    coalesce(sum(CASE WHEN c.relpages > 0 AND c.reltuples >= 0 THEN c.reltuples / c.relpages * size.pages END), 0)::int8
        AS estimate,
    coalesce(bool_or(size.pages > 0 AND (c.relpages = 0 OR c.reltuples < 0)), false) AS unknown
FROM pg_class c
CROSS JOIN LATERAL (SELECT pg_relation_size(c.oid) / current_setting('block_size')::int8 AS pages) AS size
WHERE c.relkind = 'r'
  AND (c.oid = to_regclass($3) OR c.oid IN (SELECT relid FROM pg_partition_tree(to_regclass($3))))";
