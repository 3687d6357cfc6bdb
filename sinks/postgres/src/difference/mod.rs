//! What the sink holds beyond a statement's keys, and what it lacks.
//!
//! Where integers are selected that lie close together, only the gaps between them are looked at (see [`gaps`]). Else
//! the keys of the extent are listed page by page, each page one statement whose answer is one array for each key
//! column, and merged with the statement's keys as they come. The index of the key does the work:
//!
//! ```sql
//! SELECT array_agg(k1), array_agg(k2) FROM (
//!     SELECT t."a"::pg_catalog.int4 AS k1, t."b"::pg_catalog.text AS k2 FROM "s"."t" AS t
//!     WHERE (t."a", t."b") > ($1::pg_catalog.int4, $2::pg_catalog.text) AND t."a" >= $1::pg_catalog.int4
//!     ORDER BY t."a", t."b" LIMIT 20000) AS page
//! ```
//!
//! The redundant bound on the first column is for the planner, which has no estimate for row comparisons. A key of one
//! column is listed as `SELECT ARRAY(SELECT ... ORDER BY ... LIMIT 20000)`, which takes a third less time than the
//! aggregate.

mod gaps;

use sink_api::{
    Difference, DifferenceQuery, ErrorClass, Extent, KeyBound, KeyList, KeyRange, Merge, NotNative, SinkError,
    merge::OutOfOrder,
};
use sqlx::{Arguments, AssertSqlSafe, Row, SqlSafeStr, ValueRef, postgres::PgArguments};

use crate::{
    binding::{Carrier, Raw, append_key_page, scalar_parameters},
    connect::Session,
    errors::classify,
    keyed::{
        key_arguments, key_array, key_condition, key_error, key_parts, key_scalar, key_source, keys_per_statement,
    },
    table::{KeyPart, Table},
};

/// Keys of a page: larger ones are hardly faster, and a page is what a statement holds in memory.
const PAGE_KEYS: usize = 20_000;

/// Keys of the first page where their length is not known: an index entry has at most 2.7 kB.
const FIRST_PAGE_KEYS: usize = 5_000;

/// What a page of long keys may take.
const PAGE_BYTES: usize = 4 << 20;

/// Finds the difference.
pub(crate) async fn find(
    session: &mut Session,
    table: &Table,
    query: &DifferenceQuery<'_>,
) -> Result<Difference, SinkError> {
    let parts = key_parts(table)?;
    let mut merge = Merge::of(query);
    match query.extent {
        Extent::Range(range) => {
            table.shape.range_order().map_err(|refusal| not_native(table, refusal))?;
            if let Some(difference) = gaps::find(session, table, parts, range, query).await? {
                return Ok(difference);
            }
            list_range(session, table, parts, range, &mut merge).await?;
        }
        Extent::Keys(keys) => list_keys(session, table, parts, keys, &mut merge).await?,
    }
    Ok(merge.finish())
}

async fn list_range(
    session: &mut Session,
    table: &Table,
    parts: &[KeyPart],
    range: &KeyRange,
    merge: &mut Merge<'_>,
) -> Result<(), SinkError> {
    let fixed = |part: &KeyPart| !matches!(part.carrier, Carrier::Text | Carrier::Bytea | Carrier::Numeric);
    let mut most = if parts.iter().all(fixed) { PAGE_KEYS } else { FIRST_PAGE_KEYS };
    let upper = bound(table, parts, &range.upper)?;
    let mut lower = bound(table, parts, &range.lower)?;
    loop {
        let keys = page(session, table, parts, lower.as_ref(), upper.as_ref(), most).await?;
        let count = keys.len();
        merge.page(keys.iter()).map_err(|error| out_of_order(table, &error))?;
        let Some(last) = keys.last().filter(|_| count >= most) else { return Ok(()) };
        lower = Some(Bound { parameters: scalars(table, parts, last)?, inclusive: false });
        most = (count * PAGE_BYTES / keys.bytes().max(1)).clamp(1, PAGE_KEYS);
    }
}

/// One end of a range, as parameters.
struct Bound {
    parameters: Vec<(u32, Vec<u8>)>,
    inclusive: bool,
}

fn bound(table: &Table, parts: &[KeyPart], bound: &KeyBound) -> Result<Option<Bound>, SinkError> {
    let (key, inclusive) = match bound {
        KeyBound::Open => return Ok(None),
        KeyBound::Inclusive(key) => (key, true),
        KeyBound::Exclusive(key) => (key, false),
    };
    Ok(Some(Bound { parameters: scalars(table, parts, key.as_bytes())?, inclusive }))
}

fn scalars(table: &Table, parts: &[KeyPart], key: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, SinkError> {
    scalar_parameters(parts, key).map_err(|fault| key_error(table, "list keys of", &fault))
}

/// Lists at most `most` keys between two bounds.
async fn page(
    session: &mut Session,
    table: &Table,
    parts: &[KeyPart],
    lower: Option<&Bound>,
    upper: Option<&Bound>,
    most: usize,
) -> Result<KeyList, SinkError> {
    let mut arguments = PgArguments::default();
    let mut conditions = Vec::new();
    let mut place = 1;
    for (bound, beyond) in [(lower, ">"), (upper, "<")] {
        let Some(bound) = bound else { continue };
        conditions.push(condition(parts, beyond, bound.inclusive, place));
        for (oid, bytes) in &bound.parameters {
            let _ = arguments.add(Raw { oid: *oid, bytes });
        }
        place += bound.parameters.len();
    }
    let _ = arguments.add(i64::try_from(most).unwrap_or(i64::MAX));
    let filter =
        if conditions.is_empty() { String::new() } else { format!("\n    WHERE {}", conditions.join(" AND ")) };
    let order: Vec<String> = parts.iter().map(|part| part.ordered("t")).collect();
    let rows = format!(
        "SELECT {} FROM {} AS t{filter}\n    ORDER BY {} LIMIT ${place}",
        listed(parts),
        table.sql,
        order.join(", ")
    );
    let sql = match parts {
        [_] => format!("SELECT ARRAY(\n    {rows})"),
        _ => format!("SELECT {} FROM (\n    {rows}) AS page", aggregates(parts)),
    };
    fetch(session, table, parts, sql, arguments).await
}

/// Returns the condition that a key lies beyond a bound whose first parameter has number `first`.
fn condition(parts: &[KeyPart], beyond: &str, inclusive: bool, first: usize) -> String {
    let columns: Vec<String> = parts.iter().map(|part| part.ordered("t")).collect();
    let parameters: Vec<String> = (first..).zip(parts).map(|(place, part)| key_scalar(part, place)).collect();
    let equal = if inclusive { "=" } else { "" };
    match parts.len() {
        1 => format!("{} {beyond}{equal} {}", columns[0], parameters[0]),
        _ => format!(
            "({}) {beyond}{equal} ({}) AND {} {beyond}= {}",
            columns.join(", "),
            parameters.join(", "),
            columns[0],
            parameters[0],
        ),
    }
}

fn aggregates(parts: &[KeyPart]) -> String {
    (1..=parts.len()).map(|place| format!("array_agg(k{place})")).collect::<Vec<_>>().join(", ")
}

fn listed(parts: &[KeyPart]) -> String {
    (1..)
        .zip(parts)
        .map(|(place, part)| format!("t.{}{} AS k{place}", part.sql, part.listed))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Looks single keys up. Their order is made here: equality is all that is asked of the sink.
async fn list_keys(
    session: &mut Session,
    table: &Table,
    parts: &[KeyPart],
    keys: &KeyList,
    merge: &mut Merge<'_>,
) -> Result<(), SinkError> {
    let sql = match parts {
        [part] => format!(
            "SELECT {} FROM (SELECT {} FROM {} AS t WHERE t.{} = ANY({})) AS page",
            aggregates(parts),
            listed(parts),
            table.sql,
            part.sql,
            key_array(part, 1),
        ),
        // OFFSET 0 keeps the lookup as it is written: the index, once for each key.
        _ => format!(
            "SELECT {} FROM (SELECT found.* FROM {}\n    CROSS JOIN LATERAL (SELECT {} FROM {} AS t WHERE {} OFFSET 0) AS found) AS page",
            aggregates(parts),
            key_source(parts, false),
            listed(parts),
            table.sql,
            key_condition(parts),
        ),
    };
    let all: Vec<&[u8]> = keys.iter().collect();
    for chunk in all.chunks(keys_per_statement(parts)) {
        let arguments = key_arguments(table, parts, chunk.iter().copied(), "list keys of")?;
        let found = fetch(session, table, parts, sql.clone(), arguments).await?.sorted();
        merge.page(found.iter()).map_err(|error| out_of_order(table, &error))?;
    }
    Ok(())
}

async fn fetch(
    session: &mut Session,
    table: &Table,
    parts: &[KeyPart],
    sql: String,
    arguments: PgArguments,
) -> Result<KeyList, SinkError> {
    let doing = table.doing("list keys of");
    let fail = |error: sqlx::Error| classify(&doing, &error);
    let row = session.fetch_one_kept(&AssertSqlSafe(sql).into_sql_str(), arguments).await.map_err(fail)?;
    let mut keys = KeyList::new();
    let mut arrays = Vec::with_capacity(parts.len());
    for at in 0..parts.len() {
        let array = row.try_get_raw(at).map_err(fail)?;
        if array.is_null() {
            // No row, so nothing to aggregate.
            return Ok(keys);
        }
        arrays.push(array.as_bytes().map_err(|error| fail(sqlx::Error::Decode(error)))?);
    }
    append_key_page(parts, &arrays, &mut keys).map_err(|fault| key_error(table, "list keys of", &fault))?;
    Ok(keys)
}

fn not_native(table: &Table, refusal: NotNative) -> SinkError {
    let mut error = SinkError::new(
        ErrorClass::Configuration,
        format!("{}: ranges cannot be evaluated: {}", table.doing("list keys of"), refusal.reason),
    );
    error.hint = refusal.hint;
    error
}

fn out_of_order(table: &Table, error: &OutOfOrder) -> SinkError {
    SinkError::new(ErrorClass::Configuration, format!("{}: {error}", table.doing("list keys of"))).hint(format!(
        "the index of the key may be damaged, by an update of the system's collations for one: REINDEX TABLE {}",
        table.sql
    ))
}
