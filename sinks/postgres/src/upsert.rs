//! Statements that write rows: their text, built once for each set of columns that rows name, and their parameters.
//!
//! ```sql
//! INSERT INTO "s"."t" ("id", "attrs") SELECT s.c1, s.c2::"pg_catalog"."jsonb"
//! FROM unnest($1::pg_catalog.int8[], $2::pg_catalog.text[]) AS s (c1, c2)
//! ON CONFLICT ON CONSTRAINT "t_pkey" DO UPDATE SET "attrs" = excluded."attrs"
//! ```
//!
//! Unlike a join (`MERGE`, `UPDATE ... FROM`) this form has no plan that reads the whole table, and it is safe beside
//! concurrent writers.

use std::borrow::Cow;

use sink_api::{ErrorClass, Key, KeyType, SinkError, Value};
use sqlx::{Arguments, AssertSqlSafe, Row as _, SqlSafeStr, SqlStr, postgres::PgArguments};

use crate::{
    binding::{Carrier, ColumnBuffer, ValueError, key_values},
    connect::Session,
    errors::value_error,
    keyed::{count, count_written},
    table::{KeyPart, Table, TableColumn},
    tables::Plans,
};

/// Rows of one insert. The server's time per row is flat from 500 rows on; more only cost memory.
const ROWS_PER_INSERT: usize = 5_000;

/// Rows of one `UPDATE ... FROM`: above about 10,000 the planner reads the whole table for the join.
const ROWS_PER_UPDATE: usize = 1_000;

/// The end of an insert of rows that have nothing but their keys.
const NOTHING: &str = "DO NOTHING";

/// What is done with the rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Insert or update; columns that are not named keep what they have.
    Upsert,
    /// Insert or update; columns that are not named get their default.
    Reset,
    /// Update only: a row that is not there cannot be made.
    Update,
}

/// What a statement's text depends on, within a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    pub(crate) kind: Kind,
    /// For each column, whether the rows name it.
    pub(crate) named: Box<[bool]>,
    /// For each column, whether it travels as text though it need not.
    pub(crate) as_text: Box<[bool]>,
}

/// A row to write, with its key.
#[derive(Clone, Debug)]
pub(crate) struct RowOf<'a> {
    pub(crate) key: &'a Key,
    pub(crate) row: Cow<'a, [Value]>,
}

/// Rows that name the same columns.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    pub(crate) kind: Kind,
    pub(crate) named: Box<[bool]>,
    pub(crate) rows: Vec<RowOf<'a>>,
}

/// Sorts rows by the columns that they name, in the order in which they come.
#[derive(Debug, Default)]
pub(crate) struct Groups<'a>(pub(crate) Vec<Group<'a>>);

impl<'a> Groups<'a> {
    pub(crate) fn push(&mut self, table: &Table, kind: Kind, row: RowOf<'a>) {
        let names = |at: usize| names(table, kind, at, &row.row[at]);
        let columns = 0..table.columns.len();
        let fits = |group: &Group<'_>| group.kind == kind && columns.clone().all(|at| group.named[at] == names(at));
        // Rows of one table nearly always name the same columns.
        match self.0.iter().rposition(fits) {
            Some(at) => self.0[at].rows.push(row),
            None => self.0.push(Group { kind, named: columns.map(names).collect(), rows: vec![row] }),
        }
    }

    pub(crate) fn row_count(&self) -> usize {
        self.0.iter().map(|group| group.rows.len()).sum()
    }
}

/// Whether a row names a column: it has a value for it, or the column is part of the key.
fn names(table: &Table, kind: Kind, at: usize, value: &Value) -> bool {
    if table.columns[at].is_key {
        // A key column that the server computes finds the row, but is not written.
        return kind == Kind::Update || !table.shape.columns[at].generated;
    }
    !value.keeps_old() && !table.shape.columns[at].generated
}

/// How a group failed: at a value, before anything was sent, or at the server.
#[derive(Debug)]
pub(crate) enum WriteError {
    Value(SinkError),
    Server(sqlx::Error),
}

impl From<sqlx::Error> for WriteError {
    fn from(error: sqlx::Error) -> WriteError {
        WriteError::Server(error)
    }
}

/// Writes a group. Returns the keys whose row is not there, of a group that only updates.
pub(crate) async fn write<'a>(
    session: &mut Session,
    plans: &mut Plans,
    group: &Group<'a>,
) -> Result<Vec<&'a Key>, WriteError> {
    let most = if group.kind == Kind::Update { ROWS_PER_UPDATE } else { ROWS_PER_INSERT };
    let mut missing = Vec::new();
    for rows in group.rows.chunks(most) {
        let (pattern, arguments) = parameters(&plans.table, group, rows).map_err(WriteError::Value)?;
        let sql = statement(plans, pattern);
        if group.kind != Kind::Update {
            let counts = !sql.as_str().ends_with(NOTHING) && !plans.table.leaves_unchanged;
            let written = session.execute(&sql, arguments).await?;
            if counts && written < rows.len() as u64 {
                return Err(WriteError::Value(not_taken(&plans.table, rows.len() as u64 - written, rows.len())));
            }
            check_keys(session, &plans.table, rows.iter().map(|row| row.key), counts).await?;
            continue;
        }
        let mut found = vec![false; rows.len()];
        for row in session.fetch_all(&sql, arguments).await? {
            let ordinal: i64 = row.try_get(0)?;
            if let Some(found) = usize::try_from(ordinal - 1).ok().and_then(|at| found.get_mut(at)) {
                *found = true;
            }
        }
        let there = rows.iter().zip(&found).filter(|(_, found)| **found).map(|(row, _)| row.key);
        let writes = (0..plans.table.columns.len()).any(|at| group.named[at] && !plans.table.columns[at].is_key);
        check_keys(session, &plans.table, there, writes && !plans.table.leaves_unchanged).await?;
        let gone: Vec<&[u8]> =
            rows.iter().zip(&found).filter(|(_, found)| !**found).map(|(row, _)| row.key.as_bytes()).collect();
        if plans.table.rewrites_rows && !gone.is_empty() && !plans.table.leaves_unchanged {
            // A row that is there and was not updated.
            let kept = count(session, &plans.table, &gone, "write").await.map_err(WriteError::Value)?;
            if kept > 0 {
                return Err(WriteError::Value(not_taken(&plans.table, kept, rows.len())));
            }
        }
        missing.extend(rows.iter().zip(found).filter(|(_, found)| !found).map(|(row, _)| row.key));
    }
    Ok(missing)
}

/// Makes sure that rows stand under their keys, where something may have changed them on their way: a statement of absence
/// would take such a row for an orphan. `written` says that all must have been written just now.
async fn check_keys(
    session: &mut Session,
    table: &Table,
    keys: impl Iterator<Item = &Key>,
    written: bool,
) -> Result<(), WriteError> {
    if !table.rewrites_rows {
        return Ok(());
    }
    let keys: Vec<&[u8]> = keys.map(Key::as_bytes).collect();
    // A row that was there before proves nothing.
    let there = match written {
        true => count_written(session, table, &keys).await,
        false => count(session, table, &keys, "write").await,
    };
    let there = there.map_err(WriteError::Value)?;
    match there < keys.len() as u64 {
        true => Err(WriteError::Value(not_taken(table, keys.len() as u64 - there, keys.len()))),
        false => Ok(()),
    }
}

fn not_taken(table: &Table, lost: u64, rows: usize) -> SinkError {
    let doing = table.doing("write");
    let what = format!(
        "{doing}: the table did not take {lost} of {rows} rows as they came: a trigger left them out or changed a key, \
         or a generated key column has another value than the stream's"
    );
    let hint = "let the trigger return the row with its key, or disable it; give the column the source's expression";
    SinkError::new(ErrorClass::Data, what).hint(hint)
}

/// Builds the parameters of a statement, one array for each named column.
fn parameters(table: &Table, group: &Group<'_>, rows: &[RowOf<'_>]) -> Result<(Pattern, PgArguments), SinkError> {
    let mut as_text = vec![false; table.columns.len()].into_boxed_slice();
    let mut arguments = PgArguments::default();
    let mut buffer = ColumnBuffer::new(Carrier::Text);
    for at in (0..table.columns.len()).filter(|at| group.named[*at]) {
        let column = &table.columns[at];
        match fill(table, at, column.carrier, rows, &mut buffer) {
            Ok(()) => {}
            Err(ValueError::NeedsText) => {
                as_text[at] = true;
                fill(table, at, Carrier::Text, rows, &mut buffer).map_err(|error| misfit(table, at, error))?;
            }
            Err(error) => return Err(misfit(table, at, error)),
        }
        let _ = arguments.add(buffer.finish());
    }
    Ok((Pattern { kind: group.kind, named: group.named.clone(), as_text }, arguments))
}

fn fill(
    table: &Table,
    at: usize,
    carrier: Carrier,
    rows: &[RowOf<'_>],
    buffer: &mut ColumnBuffer,
) -> Result<(), ValueError> {
    let column = &table.columns[at];
    let column_type = &table.shape.columns[at].column_type;
    buffer.start(carrier);
    for row in rows {
        let value = &row.row[at];
        if let (Some(most), Value::Text(text)) = (column.most_bytes, value)
            && text.len() > most
        {
            return Err(ValueError::Misfit(format!("the text has {} bytes, the column takes {most}", text.len())));
        }
        if column.is_key && matches!(value, Value::Absent | Value::Unchanged | Value::Null) {
            buffer.push(column_type, column.delimiter, &from_key(table, at, row.key)?)?;
        } else {
            buffer.push(column_type, column.delimiter, value)?;
        }
    }
    Ok(())
}

/// Returns a key column's value from the row's key, for a row that does not carry it.
fn from_key(table: &Table, at: usize, key: &Key) -> Result<Value, ValueError> {
    let parts = table.key.as_deref().unwrap_or_default();
    let values = key_values(parts, key.as_bytes()).map_err(|fault| ValueError::Misfit(fault.to_string()))?;
    let value = parts.iter().zip(values).find(|(part, _)| part.column == at).map(|(_, value)| value);
    value.ok_or_else(|| ValueError::Misfit("the key column has no value".to_owned()))
}

fn misfit(table: &Table, at: usize, error: ValueError) -> SinkError {
    let reason = match error {
        ValueError::Misfit(reason) => reason,
        ValueError::NeedsText => "the value has no form that the column takes".to_owned(),
    };
    value_error(&table.doing("write"), &table.shape.columns[at].name, reason)
}

/// Returns the text of the statement for a pattern.
fn statement(plans: &mut Plans, pattern: Pattern) -> SqlStr {
    if let Some(sql) = plans.upserts.get(&pattern) {
        return sql.clone();
    }
    let text = match pattern.kind {
        Kind::Upsert | Kind::Reset => insert_text(&plans.table, &pattern),
        Kind::Update => update_text(&plans.table, &pattern),
    };
    let sql = AssertSqlSafe(text).into_sql_str();
    plans.upserts.insert(pattern, sql.clone());
    sql
}

/// A named column with the place of its parameter, from 1.
struct Named<'t> {
    at: usize,
    place: usize,
    column: &'t TableColumn,
    as_text: bool,
}

impl Named<'_> {
    fn parameter(&self) -> String {
        let carrier = if self.as_text { Carrier::Text } else { self.column.carrier };
        format!("${}::{}[]", self.place, carrier.sql())
    }

    fn value(&self) -> String {
        let cast = if self.as_text { &self.column.text_cast } else { &self.column.cast };
        format!("s.c{}{cast}", self.place)
    }
}

fn named<'t>(table: &'t Table, pattern: &Pattern) -> Vec<Named<'t>> {
    (0..table.columns.len())
        .filter(|at| pattern.named[*at])
        .enumerate()
        .map(|(index, at)| Named { at, place: index + 1, column: &table.columns[at], as_text: pattern.as_text[at] })
        .collect()
}

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn insert_text(table: &Table, pattern: &Pattern) -> String {
    let named = named(table, pattern);
    let mut assignments: Vec<String> = named
        .iter()
        .filter(|column| !column.column.is_key || rewrites_key(table, column.at))
        .map(|column| format!("{0} = excluded.{0}", column.column.sql))
        .collect();
    if pattern.kind == Kind::Reset {
        let unnamed = (0..table.columns.len())
            .filter(|at| !pattern.named[*at] && !table.columns[*at].is_key && !table.shape.columns[*at].generated);
        assignments.extend(unnamed.map(|at| format!("{} = DEFAULT", table.columns[at].sql)));
    }
    let on_conflict = match assignments.len() {
        0 => NOTHING.to_owned(),
        _ => format!("DO UPDATE SET\n    {}", assignments.join(",\n    ")),
    };
    format!(
        "INSERT INTO {} ({})\n{}SELECT {}\nFROM unnest({}) AS s ({})\nON CONFLICT ON CONSTRAINT {} {on_conflict}",
        table.sql,
        list(&named, |column| column.column.sql.clone()),
        if table.identity_always { "OVERRIDING SYSTEM VALUE\n" } else { "" },
        list(&named, Named::value),
        list(&named, Named::parameter),
        list(&named, |column| format!("c{}", column.place)),
        table.key_constraint,
    )
}

/// Whether two values of a key column may be equal and yet look different: then the newer look is taken over.
fn rewrites_key(table: &Table, at: usize) -> bool {
    let is = |part: &KeyPart| part.column == at && part.key_type == KeyType::Decimal;
    !table.shape.columns[at].generated && table.key.iter().flatten().any(is)
}

fn update_text(table: &Table, pattern: &Pattern) -> String {
    let named = named(table, pattern);
    let (keys, values): (Vec<&Named<'_>>, Vec<&Named<'_>>) = named.iter().partition(|column| column.column.is_key);
    let source = format!(
        "unnest({}) WITH ORDINALITY AS s ({}, ord)",
        list(&named, Named::parameter),
        list(&named, |column| format!("c{}", column.place)),
    );
    let condition = keys
        .iter()
        .map(|column| format!("t.{} = {}", column.column.sql, column.value()))
        .collect::<Vec<_>>()
        .join(" AND ");
    if values.is_empty() {
        return format!("SELECT s.ord\nFROM {source}\nJOIN {} AS t ON {condition}", table.sql);
    }
    format!(
        "UPDATE {} AS t SET\n    {}\nFROM {source}\nWHERE {condition}\nRETURNING s.ord",
        table.sql,
        list(&values, |column| format!("{} = {}", column.column.sql, column.value())),
    )
}
