//! A batch: for each table the deletes, then the rows.

use std::borrow::Cow;

use sink_api::{Batch, ErrorClass, Key, MergedChange, SinkError, TableBatch, Value, Written};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::{
    connect::Session,
    errors::{classify, code},
    keyed::{count, delete_text, key_arguments, key_parts, keys_per_statement},
    table::Table,
    tables::{LanePlans, Plans, Tables},
    unique,
    upsert::{self, Groups, Kind, RowOf, WriteError},
};

/// Writes a batch.
pub(crate) async fn batch(
    session: &mut Session,
    tables: &Tables,
    plans: &mut LanePlans,
    batch: &Batch,
) -> Result<Written, SinkError> {
    let mut written = Written::default();
    for changes in &batch.tables {
        let plans = plans.of(tables, session, &changes.table).await?;
        table(session, plans, changes, &mut written).await?;
    }
    Ok(written)
}

/// The changes of one table, sorted by what is done.
#[derive(Default)]
struct Sorted<'a> {
    deletes: Vec<&'a Key>,
    groups: Groups<'a>,
    /// Keys whose row cannot be made.
    missing: Vec<&'a Key>,
}

fn sort<'a>(plans: &Plans, changes: &'a TableBatch) -> Sorted<'a> {
    let table = &plans.table;
    let mut sorted = Sorted::default();
    for (key, _, change) in &changes.changes {
        let (row, replace) = match change {
            MergedChange::Delete => {
                sorted.deletes.push(key);
                continue;
            }
            MergedChange::Upsert(row) => (row, false),
            MergedChange::Replace(row) => (row, true),
        };
        let written = |at: usize| !table.columns[at].is_key && !table.shape.columns[at].generated;
        let has = |wanted: &Value| row.iter().enumerate().any(|(at, value)| value == wanted && written(at));
        let kind = match (has(&Value::Unchanged), replace) {
            (false, false) => Kind::Upsert,
            (false, true) => Kind::Reset,
            (true, false) => Kind::Update,
            (true, true) => {
                // Neither the old row's value nor a new one: what is left is that the old row is gone.
                sorted.deletes.push(key);
                sorted.missing.push(key);
                continue;
            }
        };
        sorted.groups.push(table, kind, RowOf { key, row: Cow::Borrowed(row) });
    }
    sorted
}

async fn table(
    session: &mut Session,
    plans: &mut Plans,
    changes: &TableBatch,
    written: &mut Written,
) -> Result<(), SinkError> {
    let doing = plans.table.doing("write");
    key_parts(&plans.table)?;
    let sorted = sort(plans, changes);
    let gone = delete(session, plans, sorted.deletes.iter().copied(), "write").await?;
    if gone < sorted.deletes.len() as u64 {
        check_gone(session, &plans.table, &sorted.deletes).await?;
    }
    written.deleted += gone;

    // Rows may stand in each other's way half-way through a statement; then they are written in another way.
    let guarded = plans.table.other_unique && sorted.groups.row_count() > 1;
    if guarded {
        let savepoint = session.script("SAVEPOINT rows".into_sql_str()).await;
        savepoint.map_err(|error| classify(&doing, &error))?;
    }
    let unmade = match rows(session, plans, &sorted.groups).await {
        Ok(unmade) => unmade,
        Err(WriteError::Value(error)) => return Err(error),
        Err(WriteError::Server(error)) if guarded && matches!(code(&error), Some("23505" | "23P01")) => {
            let rollback = session.script("ROLLBACK TO SAVEPOINT rows".into_sql_str()).await;
            rollback.map_err(|error| classify(&doing, &error))?;
            unique::rewrite(session, plans, &sorted.groups, &error).await?
        }
        Err(WriteError::Server(error)) => return Err(classify(&doing, &error)),
    };
    if guarded {
        let release = session.script("RELEASE SAVEPOINT rows".into_sql_str()).await;
        release.map_err(|error| classify(&doing, &error))?;
    }
    written.upserted += (sorted.groups.row_count() - unmade.len()) as u64;
    let mut missing = sorted.missing;
    missing.extend(unmade);
    missing.sort_unstable();
    written.missing.extend(missing.into_iter().map(|key| (plans.table.shape.clone(), key.clone())));
    Ok(())
}

async fn rows<'a>(session: &mut Session, plans: &mut Plans, groups: &Groups<'a>) -> Result<Vec<&'a Key>, WriteError> {
    let mut missing = Vec::new();
    for group in &groups.0 {
        missing.extend(upsert::write(session, plans, group).await?);
    }
    Ok(missing)
}

/// Makes sure that rows are not there any more, where a trigger may have kept them.
async fn check_gone(session: &mut Session, table: &Table, keys: &[&Key]) -> Result<(), SinkError> {
    if table.shape.removal_hazards.is_empty() {
        return Ok(());
    }
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let kept = count(session, table, &keys, "write").await?;
    if kept == 0 {
        return Ok(());
    }
    let (doing, hazards) = (table.doing("write"), table.shape.removal_hazards.join(", "));
    let what = format!("{doing}: the table kept {kept} rows that were deleted: {hazards}");
    Err(SinkError::new(ErrorClass::Data, what).hint("let the trigger return the row, or disable it"))
}

/// Deletes the rows of `keys`. Returns how many there were.
pub(crate) async fn delete(
    session: &mut Session,
    plans: &Plans,
    keys: impl Iterator<Item = &Key>,
    verb: &str,
) -> Result<u64, SinkError> {
    let table = &plans.table;
    let parts = key_parts(table)?;
    let keys: Vec<&[u8]> = keys.map(Key::as_bytes).collect();
    if keys.is_empty() {
        return Ok(0);
    }
    let sql = AssertSqlSafe(delete_text(table, parts)).into_sql_str();
    let mut deleted = 0;
    for keys in keys.chunks(keys_per_statement(parts)) {
        let arguments = key_arguments(table, parts, keys.iter().copied(), verb)?;
        let done = session.execute(&sql, arguments).await;
        deleted += done.map_err(|error| classify(&table.doing(verb), &error))?;
    }
    Ok(deleted)
}
