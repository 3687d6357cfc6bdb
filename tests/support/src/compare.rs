//! Two tables, on two servers, compared in full.

use std::cmp::Ordering;

use anyhow::{Result, bail, ensure};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use sqlx::{AssertSqlSafe, Row};

use crate::Database;
use crate::postgres::{quoted, quoted_table};

/// What differs; rows are PostgreSQL's own text of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// How many rows are in both.
    pub equal: u64,
    /// How many are only at the source.
    pub only_source: u64,
    /// How many are only at the sink.
    pub only_sink: u64,
    /// The first few of each, for a message.
    pub samples: Vec<String>,
}

/// How many differing rows of each side a message shows.
const SAMPLES: u64 = 5;

/// Compares every row of two tables, each `schema.table`, by all columns of the source's; what EXCEPT ALL both ways
/// would find. Two rows that differ in one column count on both sides.
///
/// Both are read in byte order and merged, so memory does not grow with the tables.
pub async fn difference(
    source: &mut Database,
    source_table: &str,
    sink: &mut Database,
    sink_table: &str,
) -> Result<Difference> {
    difference_without(source, source_table, sink, sink_table, &[]).await
}

/// The same without some columns, each with the reason why it cannot be equal.
pub async fn difference_without(
    source: &mut Database,
    source_table: &str,
    sink: &mut Database,
    sink_table: &str,
    without: &[(&str, &str)],
) -> Result<Difference> {
    let names: Vec<String> = source
        .column(format!(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = '{}'::regclass AND attnum > 0 AND NOT \
             attisdropped ORDER BY attnum",
            quoted_table(source_table).replace('\'', "''")
        ))
        .await?
        .into_iter()
        .flatten()
        .collect();
    if let Some((unknown, _)) = without.iter().find(|(column, _)| !names.iter().any(|name| name == column)) {
        bail!("{source_table} has no column {unknown}");
    }
    let compared: Vec<String> = names
        .iter()
        .filter(|name| !without.iter().any(|(column, _)| column == name))
        .map(|name| quoted(name))
        .collect();
    ensure!(!compared.is_empty(), "{source_table} has no columns");
    let columns = compared.join(", ");
    for database in [&mut *source, &mut *sink] {
        // What a value looks like as text depends on these.
        database
            .run("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'iso_8601'; SET bytea_output = 'hex'; SET extra_float_digits = 3")
            .await?;
    }
    let query = |table: &str| {
        format!("SELECT ROW({columns})::text COLLATE \"C\" AS line FROM {} ORDER BY line", quoted_table(table))
    };
    let mut left = rows(source, query(source_table));
    let mut right = rows(sink, query(sink_table));
    let mut found = Difference::default();
    let (mut l, mut r) = (left.try_next().await?, right.try_next().await?);
    loop {
        let order = match (&l, &r) {
            (None, None) => return Ok(found),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.cmp(b),
        };
        match order {
            Ordering::Equal => {
                found.equal += 1;
                (l, r) = (left.try_next().await?, right.try_next().await?);
            }
            Ordering::Less => {
                found.only_source += 1;
                sample(&mut found.samples, "source", l.as_deref(), found.only_source);
                l = left.try_next().await?;
            }
            Ordering::Greater => {
                found.only_sink += 1;
                sample(&mut found.samples, "sink", r.as_deref(), found.only_sink);
                r = right.try_next().await?;
            }
        }
    }
}

/// Returns how many rows both have; an error shows how they differ.
pub async fn equal(source: &mut Database, source_table: &str, sink: &mut Database, sink_table: &str) -> Result<u64> {
    equal_without(source, source_table, sink, sink_table, &[]).await
}

/// The same without some columns, each with the reason why it cannot be equal.
pub async fn equal_without(
    source: &mut Database,
    source_table: &str,
    sink: &mut Database,
    sink_table: &str,
    without: &[(&str, &str)],
) -> Result<u64> {
    let found = difference_without(source, source_table, sink, sink_table, without).await?;
    if found.only_source + found.only_sink > 0 {
        bail!(
            "{source_table} and {sink_table} differ: {} rows equal, {} only at the source, {} only at the sink\n{}",
            found.equal,
            found.only_source,
            found.only_sink,
            found.samples.join("\n")
        );
    }
    Ok(found.equal)
}

fn rows(database: &mut Database, sql: String) -> BoxStream<'_, Result<String>> {
    let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch(&mut database.connection);
    Box::pin(rows.err_into::<anyhow::Error>().and_then(async |row| Ok(row.try_get::<String, _>(0)?)))
}

fn sample(samples: &mut Vec<String>, side: &str, row: Option<&str>, seen: u64) {
    if seen <= SAMPLES {
        samples.push(format!("  only at the {side}: {}", row.unwrap_or_default()));
    }
}
