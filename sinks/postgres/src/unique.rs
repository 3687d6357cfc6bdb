//! Rows that exchange unique values.
//!
//! The source may swap two values of a unique column; the sink's constraint, unless it is deferrable, is checked row by
//! row and sees them twice in between. So when a unique or exclusion constraint beside the key objects, the table's
//! rows of the batch are taken out and put in again: with all old values gone first, only a row outside the batch can
//! still be in the way, and that is an error. What the rows do not carry is read from them before.
//!
//! A table whose deletes set something off cannot be treated so; there the constraint has to be made deferrable.

use std::{borrow::Cow, collections::HashMap};

use sink_api::{ColumnType, Key, SinkError, Value};
use sqlx::{AssertSqlSafe, Row, SqlSafeStr};

use crate::{
    connect::Session,
    errors::classify,
    keyed::{JOINED_KEYS_PER_STATEMENT, key_arguments, key_condition, key_parts, key_source},
    tables::Plans,
    upsert::{self, Groups, Kind, RowOf, WriteError},
    write::delete,
};

/// Writes the rows of a table after `objection`. Returns the keys whose row is not there and cannot be made.
pub(crate) async fn rewrite<'a>(
    session: &mut Session,
    plans: &mut Plans,
    groups: &Groups<'a>,
    objection: &sqlx::Error,
) -> Result<Vec<&'a Key>, SinkError> {
    let doing = plans.table.doing("write");
    if !plans.table.shape.removal_hazards.is_empty() {
        return Err(classify(&doing, objection));
    }
    let (whole, missing) = complete(session, plans, groups).await?;
    delete(session, plans, whole.0.iter().flat_map(|group| &group.rows).map(|row| row.key), "write").await?;
    for group in &whole.0 {
        upsert::write(session, plans, group).await.map_err(|error| match error {
            WriteError::Value(error) => error,
            WriteError::Server(error) => classify(&doing, &error),
        })?;
    }
    Ok(missing)
}

/// Returns rows that name every column, as far as the sink has old values; and the keys that need a row and have none.
async fn complete<'a>(
    session: &mut Session,
    plans: &Plans,
    groups: &Groups<'a>,
) -> Result<(Groups<'a>, Vec<&'a Key>), SinkError> {
    let table = &plans.table;
    let (mut whole, mut missing) = (Groups::default(), Vec::new());
    for group in &groups.0 {
        let unnamed: Vec<usize> = (0..table.columns.len())
            .filter(|at| !group.named[*at] && !table.columns[*at].is_key && !table.shape.columns[*at].generated)
            .collect();
        if group.kind == Kind::Reset || (group.kind == Kind::Upsert && unnamed.is_empty()) {
            whole.0.push(group.clone());
            continue;
        }
        for rows in group.rows.chunks(JOINED_KEYS_PER_STATEMENT) {
            let mut old = old_values(session, plans, rows, &unnamed).await?;
            for (at, row) in rows.iter().enumerate() {
                match old.remove(&at) {
                    Some(values) => {
                        let mut filled = row.row.to_vec();
                        unnamed.iter().zip(values).for_each(|(at, value)| filled[*at] = value);
                        whole.push(table, Kind::Upsert, RowOf { key: row.key, row: Cow::Owned(filled) });
                    }
                    None if group.kind == Kind::Update => missing.push(row.key),
                    None => whole.push(table, Kind::Upsert, row.clone()),
                }
            }
        }
    }
    Ok((whole, missing))
}

/// Reads columns of the rows that are there, by the row's index in `rows`.
async fn old_values(
    session: &mut Session,
    plans: &Plans,
    rows: &[RowOf<'_>],
    columns: &[usize],
) -> Result<HashMap<usize, Vec<Value>>, SinkError> {
    let table = &plans.table;
    let parts = key_parts(table)?;
    let fail = |error: sqlx::Error| classify(&table.doing("read"), &error);
    let listed: String =
        columns.iter().map(|at| format!(", t.{}{}", table.columns[*at].sql, table.columns[*at].to_text)).collect();
    let sql = AssertSqlSafe(format!(
        "SELECT s.ord{listed}\nFROM {}\nJOIN {} AS t ON {}",
        key_source(parts, true),
        table.sql,
        key_condition(parts),
    ))
    .into_sql_str();
    let arguments = key_arguments(table, parts, rows.iter().map(|row| row.key.as_bytes()), "read")?;
    let mut old = HashMap::new();
    for row in session.fetch_all(&sql, arguments).await.map_err(fail)? {
        let ordinal: i64 = row.try_get(0).map_err(fail)?;
        let values = columns
            .iter()
            .enumerate()
            .map(|(index, at)| {
                let text: Option<String> = row.try_get(index + 1)?;
                Ok(text.map_or(Value::Null, |text| from_text(&table.shape.columns[*at].column_type, text)))
            })
            .collect::<Result<_, sqlx::Error>>()
            .map_err(fail)?;
        old.insert(usize::try_from(ordinal - 1).unwrap_or_default(), values);
    }
    Ok(old)
}

fn from_text(column_type: &ColumnType, text: String) -> Value {
    match (column_type, text.strip_prefix("\\x").map(hex::decode)) {
        (ColumnType::Bytes, Some(Ok(bytes))) => Value::Bytes(bytes.into()),
        _ => Value::Text(text.into()),
    }
}
