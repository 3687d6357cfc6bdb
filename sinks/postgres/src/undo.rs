//! Bringing removed rows back, and forgetting their copies.
//!
//! Each row is its own transaction: one that fails leaves the others as they are. The newest copy of a key comes first,
//! so that of several removals of one key the last is undone.

use std::{collections::HashMap, sync::Arc, time::Duration};

use sink_api::{SinkError, TableName, UndoSelector, Undone};
use sqlx::{
    Arguments, AssertSqlSafe, Row, SqlSafeStr, SqlStr,
    postgres::{PgArguments, PgRow},
};

use crate::{
    binding::{Carrier, Raw, postgres_micros},
    catalog,
    connect::Session,
    errors::{classify, code},
    identifier::quote_literal,
    table::Table,
};

/// Copies that are forgotten in one transaction.
const EXPIRED_AT_ONCE: i64 = 10_000;

/// A copy of a removed row.
struct Copy {
    id: i64,
    /// The columns that it has.
    columns: Vec<String>,
    /// Those of them that are not null.
    filled: Vec<String>,
}

/// Brings rows back.
pub(crate) async fn undo(session: &mut Session, selector: &UndoSelector) -> Result<Vec<Undone>, SinkError> {
    let mut done = Vec::new();
    for (name, copies) in copies(session, selector).await? {
        let mut undone = Undone { table: Some(name.clone()), ..Undone::default() };
        match describe(session, &name).await {
            Ok(table) => restore(session, &table, copies, &mut undone).await?,
            Err(error) if error.class == sink_api::ErrorClass::Transient => return Err(error),
            Err(error) => undone.failed.extend(copies.iter().map(|copy| failure(copy, &error.message))),
        }
        done.push(undone);
    }
    Ok(done)
}

async fn describe(session: &mut Session, name: &TableName) -> Result<Arc<Table>, SinkError> {
    session.begin().await.map_err(|error| classify("begin", &error))?;
    let table = catalog::describe(session, name).await;
    session.rollback().await.map_err(|error| classify("end the look at the catalog", &error))?;
    table
}

async fn copies(session: &mut Session, selector: &UndoSelector) -> Result<Vec<(TableName, Vec<Copy>)>, SinkError> {
    let fail = |error: sqlx::Error| classify("list removed rows", &error);
    let mut arguments = PgArguments::default();
    let sql = match selector {
        UndoSelector::Read(read_id) => {
            let _ = arguments.add(&read_id.0);
            BY_READ
        }
        UndoSelector::Table { table, since } => {
            let _ = arguments.add(&table.schema);
            let _ = arguments.add(&table.name);
            let since = postgres_micros(*since).to_be_bytes();
            let _ = arguments.add(Raw { oid: Carrier::TimestampTz.oid(), bytes: &since });
            BY_TABLE
        }
    };
    session.begin().await.map_err(fail)?;
    let mut rows = session.own_all(sql, arguments).await.map_err(fail)?;
    if let (UndoSelector::Read(read_id), true) = (selector, rows.is_empty()) {
        let mut arguments = PgArguments::default();
        let _ = arguments.add(&read_id.0);
        rows = session.own_all(BY_READ_OF_EVENTS, arguments).await.map_err(fail)?;
    }
    session.commit().await.map_err(fail)?;

    let mut tables: Vec<(TableName, Vec<Copy>)> = Vec::new();
    for row in &rows {
        let (name, copy) = copy(row).map_err(fail)?;
        match tables.last_mut() {
            Some((last, copies)) if *last == name => copies.push(copy),
            _ => tables.push((name, vec![copy])),
        }
    }
    Ok(tables)
}

fn copy(row: &PgRow) -> Result<(TableName, Copy), sqlx::Error> {
    let name = TableName::new(row.try_get::<String, _>("table_schema")?, row.try_get::<String, _>("table_name")?);
    Ok((name, Copy { id: row.try_get("id")?, columns: row.try_get("columns")?, filled: row.try_get("filled")? }))
}

async fn restore(
    session: &mut Session,
    table: &Table,
    copies: Vec<Copy>,
    undone: &mut Undone,
) -> Result<(), SinkError> {
    let doing = table.doing("restore a row of");
    let mut statements: HashMap<Vec<String>, SqlStr> = HashMap::new();
    for copy in copies {
        if let Some(gone) = copy.filled.iter().find(|column| table.shape.column_index(column).is_none()) {
            undone.failed.push(failure(&copy, &format!("the table has no column \"{gone}\" any more")));
            continue;
        }
        let sql = statements
            .entry(copy.columns.clone())
            .or_insert_with(|| AssertSqlSafe(restore_text(table, &copy.columns)).into_sql_str());
        let mut arguments = PgArguments::default();
        let _ = arguments.add(copy.id);
        session.begin().await.map_err(|error| classify(&doing, &error))?;
        let outcome = match session.fetch_one(sql, arguments).await {
            Ok(row) => session.commit().await.map(|()| row),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(row) => {
                let count = |at: usize| row.try_get::<i64, _>(at).map_err(|error| classify(&doing, &error));
                match (count(0)?, count(1)?) {
                    (0, _) => {}
                    (_, 0) if count(2)? > 0 => undone.occupied += 1,
                    (_, 0) => undone
                        .failed
                        .push(failure(&copy, "the table did not take the row: a trigger of its own returned NULL")),
                    _ => undone.restored += 1,
                }
            }
            Err(error) => {
                let told = classify(&doing, &error);
                if code(&error).is_none() || told.class == sink_api::ErrorClass::Transient {
                    return Err(told);
                }
                session.rollback().await.map_err(|error| classify(&doing, &error))?;
                undone.failed.push(failure(&copy, &told.to_string()));
            }
        }
    }
    Ok(())
}

fn failure(copy: &Copy, reason: &str) -> String {
    format!("removed row {}: {reason}", copy.id)
}

/// Returns the statement that puts one copy back and marks it. Only the key's constraint lets a row pass as occupied;
/// another constraint that objects is a failure.
fn restore_text(table: &Table, columns: &[String]) -> String {
    let (names, values): (Vec<String>, Vec<String>) = table
        .shape
        .columns
        .iter()
        .zip(&table.columns)
        .filter(|(shape, _)| !shape.generated && columns.contains(&shape.name))
        .map(|(shape, column)| {
            let value = format!("(copy.row_text ->> {}){}", quote_literal(&shape.name), column.text_cast);
            (column.sql.clone(), value)
        })
        .unzip();
    let key = table.shape.key.iter().map(|key| {
        let (shape, column) = (&table.shape.columns[key.column], &table.columns[key.column]);
        format!("t.{} = (copy.row_text ->> {}){}", column.sql, quote_literal(&shape.name), column.text_cast)
    });
    let key: Vec<String> = key.collect();
    format!(
        "WITH copy AS (\n    SELECT row_text FROM sink_repair.removed WHERE id = $1::int8 AND restored_at IS NULL FOR UPDATE\n),\n\
         put AS (\n    INSERT INTO {} ({})\n    {}SELECT {} FROM copy\n    ON CONFLICT ON CONSTRAINT {} DO NOTHING\n    RETURNING 1\n),\n\
         mark AS (\n    UPDATE sink_repair.removed SET restored_at = now() WHERE id = $1::int8 AND EXISTS (SELECT FROM put)\n)\n\
         SELECT (SELECT count(*) FROM copy), (SELECT count(*) FROM put),\n    (SELECT count(*) FROM {0} AS t, copy WHERE {5})",
        table.sql,
        names.join(", "),
        if table.identity_always { "OVERRIDING SYSTEM VALUE\n    " } else { "" },
        values.join(", "),
        table.key_constraint,
        key.join(" AND "),
    )
}

/// Whether there is such a table, or a copy of a row of it.
pub(crate) async fn knows(session: &mut Session, table: &TableName) -> Result<bool, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("look for {table}"), &error);
    let mut arguments = PgArguments::default();
    let _ = arguments.add(&table.schema);
    let _ = arguments.add(&table.name);
    session.begin().await.map_err(fail)?;
    let row = session.own_optional(KNOWN, arguments).await.map_err(fail)?;
    session.commit().await.map_err(fail)?;
    row.map_or(Ok(false), |row| row.try_get(0).map_err(fail))
}

/// Forgets copies, older than `keep`, that workers called `name` made. Returns how many there were.
pub(crate) async fn expire(session: &mut Session, name: &str, keep: Duration) -> Result<u64, SinkError> {
    let fail = |error: sqlx::Error| classify("forget removed rows", &error);
    let mut expired = 0;
    loop {
        let mut arguments = PgArguments::default();
        let _ = arguments.add(keep.as_secs_f64());
        let _ = arguments.add(EXPIRED_AT_ONCE);
        let _ = arguments.add(name);
        session.begin().await.map_err(fail)?;
        let gone = session.own(EXPIRE, arguments).await.map_err(fail)?;
        session.commit().await.map_err(fail)?;
        expired += gone;
        if gone < EXPIRED_AT_ONCE as u64 {
            return Ok(expired);
        }
    }
}

const BY_READ: &str = "
SELECT id, table_schema, table_name,
    ARRAY(SELECT jsonb_object_keys(row_text)) AS columns,
    ARRAY(SELECT e.key FROM jsonb_each_text(row_text) AS e WHERE e.value IS NOT NULL) AS filled
FROM sink_repair.removed
WHERE read_id = $1 AND restored_at IS NULL
ORDER BY table_schema, table_name, id DESC";

/// The absence events of one read, each of which has its verdict under a name of its own.
const BY_READ_OF_EVENTS: &str = "
SELECT id, table_schema, table_name,
    ARRAY(SELECT jsonb_object_keys(row_text)) AS columns,
    ARRAY(SELECT e.key FROM jsonb_each_text(row_text) AS e WHERE e.value IS NOT NULL) AS filled
FROM sink_repair.removed
WHERE starts_with(read_id, $1 || '#') AND restored_at IS NULL
ORDER BY table_schema, table_name, id DESC";

const BY_TABLE: &str = "
SELECT id, table_schema, table_name,
    ARRAY(SELECT jsonb_object_keys(row_text)) AS columns,
    ARRAY(SELECT e.key FROM jsonb_each_text(row_text) AS e WHERE e.value IS NOT NULL) AS filled
FROM sink_repair.removed
WHERE table_schema = $1 AND table_name = $2 AND removed_at >= $3 AND restored_at IS NULL
ORDER BY id DESC";

const KNOWN: &str = "
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2)
    OR EXISTS (SELECT FROM sink_repair.removed WHERE table_schema = $1 AND table_name = $2)";

const EXPIRE: &str = "
DELETE FROM sink_repair.removed WHERE id = ANY(ARRAY(
    SELECT id FROM sink_repair.removed
    WHERE name = $3 AND removed_at < now() - make_interval(secs => $1)
    ORDER BY removed_at LIMIT $2
))";
