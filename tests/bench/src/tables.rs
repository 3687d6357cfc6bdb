//! Rows of the table `items`, made by PostgreSQL: what [`crate::record`] renders as JSON, computed a second time in SQL.

use anyhow::Result;
use test_support::Database;

use crate::record::COLUMNS;

/// The row of a key as event `n` wrote it; `source` is SQL that returns `id` and `n`.
pub fn rows(source: &str) -> String {
    format!(
        "SELECT id, format('name-%s-%s', id, n), ((id * 7919 + n * 31) % 90000000)::numeric / 100, n % 2 = 1,
            timestamptz '2026-11-30 00:00:00+00' + n % 86400 * interval '1 second',
            date '1970-01-01' + (19000 + n % 1000)::int, jsonb_build_object('n', n),
            format('note of row %s written by event %s, padded to a usual length', id, n)
         FROM ({source}) AS wanted(id, n) ORDER BY id"
    )
}

/// Makes the table anew with these rows, as a table that has been there for a while: its statistics and its visibility
/// map are up to date.
pub async fn make(database: &mut Database, table: &str, rows: &str) -> Result<()> {
    database.run(format!("DROP TABLE IF EXISTS {table}; CREATE TABLE {table} ({COLUMNS})")).await?;
    database.run(format!("INSERT INTO {table} {rows}")).await?;
    settle(database, table).await
}

/// What is written next must not pay for what was written before.
pub async fn settle(database: &mut Database, table: &str) -> Result<()> {
    database.run(format!("VACUUM (ANALYZE) {table}")).await?;
    database.run("CHECKPOINT").await
}

/// Count and digest of the rows that meet a condition; equal digests mean equal rows, on any server.
pub async fn digest(database: &mut Database, condition: &str) -> Result<String> {
    database.run("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'").await?;
    let digest = database
        .value(format!(
            "SELECT count(*) || ' rows, ' || coalesce(sum(hashtextextended(i::text, 0)::numeric), 0) \
             FROM items i WHERE {condition}"
        ))
        .await?;
    Ok(digest.unwrap_or_default())
}
