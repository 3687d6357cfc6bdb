//! Statements about rows that are named by their keys.

use sink_api::{ErrorClass, SinkError};
use sqlx::{Arguments, AssertSqlSafe, Row, SqlSafeStr, postgres::PgArguments};

use crate::{
    binding::{KeyBuffers, KeyFault},
    connect::Session,
    errors::classify,
    table::{KeyPart, Table},
};

/// Keys of one statement with `= ANY`: an index condition, whose cost grows with the keys and no faster.
const KEYS_PER_STATEMENT: usize = 10_000;

/// Keys of one statement that joins: above about 10,000 the planner reads the whole table for the join.
pub(crate) const JOINED_KEYS_PER_STATEMENT: usize = 1_000;

/// Returns how a table's key travels.
pub(crate) fn key_parts(table: &Table) -> Result<&[KeyPart], SinkError> {
    table.key.as_deref().ok_or_else(|| {
        let refusal = table.shape.key_types().err();
        let reason = refusal.as_ref().map_or("its key cannot be encoded", |refusal| refusal.reason.as_str());
        let mut error = SinkError::new(ErrorClass::Configuration, format!("{}: {reason}", table.doing("write")));
        error.hint = refusal.as_ref().and_then(|refusal| refusal.hint.clone());
        error
    })
}

/// Returns how many keys one statement takes.
pub(crate) fn keys_per_statement(parts: &[KeyPart]) -> usize {
    if parts.len() == 1 { KEYS_PER_STATEMENT } else { JOINED_KEYS_PER_STATEMENT }
}

/// Returns the parameters of a list of keys: one array for each key column.
pub(crate) fn key_arguments<'k>(
    table: &Table,
    parts: &[KeyPart],
    keys: impl IntoIterator<Item = &'k [u8]>,
    verb: &str,
) -> Result<PgArguments, SinkError> {
    let mut buffers = KeyBuffers::new(parts);
    for key in keys {
        buffers.push(key).map_err(|fault| key_error(table, verb, &fault))?;
    }
    let mut arguments = PgArguments::default();
    for array in buffers.finish() {
        let _ = arguments.add(array);
    }
    Ok(arguments)
}

/// Makes the error of a key that cannot be handed to the server.
pub(crate) fn key_error(table: &Table, verb: &str, fault: &KeyFault) -> SinkError {
    let class = match fault {
        KeyFault::Listing => ErrorClass::Configuration,
        _ => ErrorClass::Data,
    };
    SinkError::new(class, format!("{}: {fault}", table.doing(verb)))
}

/// Returns the parameter of a key column, as an array of the column's base type: `$1::pg_catalog.int8[]`.
pub(crate) fn key_array(part: &KeyPart, place: usize) -> String {
    let cast = if part.cast.is_empty() { String::new() } else { format!("{}[]", part.cast) };
    format!("${place}::{}[]{cast}", part.carrier.sql())
}

/// Returns the parameter of one value of a key column: `$1::pg_catalog.int8`.
pub(crate) fn key_scalar(part: &KeyPart, place: usize) -> String {
    format!("${place}::{}{}", part.carrier.sql(), part.cast)
}

/// Returns the FROM item of a list of keys, with columns `c1`, `c2`, ... and, where asked for, `ord`.
pub(crate) fn key_source(parts: &[KeyPart], ordinality: bool) -> String {
    let parameters: Vec<String> = (1..).zip(parts).map(|(place, part)| key_array(part, place)).collect();
    let mut aliases: Vec<String> = (1..=parts.len()).map(|place| format!("c{place}")).collect();
    if ordinality {
        aliases.push("ord".to_owned());
    }
    let with = if ordinality { "WITH ORDINALITY " } else { "" };
    format!("unnest({}) {with}AS s ({})", parameters.join(", "), aliases.join(", "))
}

/// Returns the condition that a row of `t` has the key in `s`.
pub(crate) fn key_condition(parts: &[KeyPart]) -> String {
    (1..).zip(parts).map(|(place, part)| format!("t.{} = s.c{place}", part.sql)).collect::<Vec<_>>().join(" AND ")
}

/// Returns the statement that deletes the rows of a list of keys, but for what it may return.
pub(crate) fn delete_text(table: &Table, parts: &[KeyPart]) -> String {
    match parts {
        [part] => format!("DELETE FROM {} AS t\nWHERE t.{} = ANY({})", table.sql, part.sql, key_array(part, 1)),
        _ => {
            format!(
                "DELETE FROM {} AS t\nUSING {}\nWHERE {}",
                table.sql,
                key_source(parts, false),
                key_condition(parts)
            )
        }
    }
}

/// Counts the rows of a list of keys.
pub(crate) async fn count(session: &mut Session, table: &Table, keys: &[&[u8]], verb: &str) -> Result<u64, SinkError> {
    count_those(session, table, keys, verb, "").await
}

/// Counts those of them that the open transaction has written.
pub(crate) async fn count_written(session: &mut Session, table: &Table, keys: &[&[u8]]) -> Result<u64, SinkError> {
    // Behind a savepoint a row has the id of a subtransaction, which is a later one.
    const WRITTEN: &str = "\nAND age(t.xmin) <= age((txid_current() % 4294967296)::text::xid)";
    count_those(session, table, keys, "write", WRITTEN).await
}

async fn count_those(
    session: &mut Session,
    table: &Table,
    keys: &[&[u8]],
    verb: &str,
    condition: &str,
) -> Result<u64, SinkError> {
    let parts = key_parts(table)?;
    let sql = AssertSqlSafe(count_text(table, parts) + condition).into_sql_str();
    let mut rows = 0;
    for keys in keys.chunks(keys_per_statement(parts)) {
        let arguments = key_arguments(table, parts, keys.iter().copied(), verb)?;
        let counted: Result<i64, _> = session.fetch_one(&sql, arguments).await.and_then(|row| row.try_get(0));
        rows += counted.map(i64::cast_unsigned).map_err(|error| classify(&table.doing(verb), &error))?;
    }
    Ok(rows)
}

/// Returns the query that counts the rows of a list of keys.
fn count_text(table: &Table, parts: &[KeyPart]) -> String {
    match parts {
        [part] => {
            format!("SELECT count(*) FROM {} AS t\nWHERE t.{} = ANY({})", table.sql, part.sql, key_array(part, 1))
        }
        _ => format!(
            "SELECT count(*) FROM {} AS t\nJOIN {} ON {}",
            table.sql,
            key_source(parts, false),
            key_condition(parts)
        ),
    }
}
