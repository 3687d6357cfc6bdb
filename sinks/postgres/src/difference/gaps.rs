//! The short way for one integer column whose selected keys lie close together.
//!
//! Where a statement selects every integer from 1 to 9,000, no row from 1 to 9,000 can be an orphan. So only the gaps
//! between such runs are listed, each by a look into the index, and the rest is counted: whoever lacks no selected key
//! holds exactly as many rows as are selected. Nothing is hashed and nothing guessed; where the count falls short, or a
//! gap is full of rows, the keys are listed after all. So they are for partitioned tables, where a look into a gap is one
//! into every partition.
//!
//! ```sql
//! SELECT
//!     ARRAY(SELECT found.k1 FROM unnest((SELECT $1::pg_catalog.int8[]), (SELECT $2::pg_catalog.int8[])) AS gap (low, high)
//!           CROSS JOIN LATERAL (SELECT t."id"::pg_catalog.int8 AS k1 FROM "s"."t" AS t
//!                               WHERE t."id" >= gap.low AND t."id" <= gap.high OFFSET 0) AS found
//!           LIMIT 10001),
//!     (SELECT count(*) FROM "s"."t" AS t WHERE t."id" >= $3::pg_catalog.int8 AND t."id" <= $4::pg_catalog.int8),
//!     (SELECT count(*) FROM "s"."t" AS t WHERE t."id" = ANY($5::pg_catalog.int8[]))
//! ```

use std::convert::Infallible;

use sink_api::{
    Difference, DifferenceQuery, Key, KeyBound, KeyList, KeyRange, KeyReader, KeyType, SinkError, merge::OutOfOrder,
};
use sqlx::{Arguments, AssertSqlSafe, Row, SqlSafeStr, postgres::PgArguments};

use super::{listed, out_of_order};
use crate::{
    binding::{Carrier, ColumnBuffer, Raw, append_key_page},
    connect::Session,
    errors::classify,
    keyed::{key_array, key_error, key_scalar},
    table::{KeyPart, Table},
};

/// A look into the index takes about as long as listing so many keys.
const KEYS_A_GAP: u64 = 8;

/// Gaps, and spared keys, of one statement: what it holds in memory.
const MOST_GAPS: usize = 5_000;

/// Rows in gaps. Beyond, the keys are listed page by page.
const MOST_ROWS: usize = 10_000;

/// Finds the difference, where this way is a short one.
pub(super) async fn find(
    session: &mut Session,
    table: &Table,
    parts: &[KeyPart],
    range: &KeyRange,
    query: &DifferenceQuery<'_>,
) -> Result<Option<Difference>, SinkError> {
    let [part] = parts else { return Ok(None) };
    if table.partitioned {
        return Ok(None);
    }
    let Some(gaps) = Gaps::of(part, range, query) else { return Ok(None) };
    let seen = look(session, table, part, &gaps).await?;
    if seen.in_gaps.len() > MOST_ROWS {
        return Ok(None);
    }
    let in_gaps = seen.in_gaps.sorted();
    if in_gaps.len() < seen.in_gaps.len() {
        return Err(out_of_order(table, &OutOfOrder { at: in_gaps.len() as u64 + 1, outside: false }));
    }
    let mut difference = Difference { in_range: seen.in_range, ..Difference::default() };
    for (at, key) in (1..).zip(in_gaps.iter()) {
        if !range.contains(key) || query.selected.contains(key) {
            return Err(out_of_order(table, &OutOfOrder { at, outside: true }));
        }
        if query.spared.contains(key) {
            continue;
        }
        difference.orphan_count += 1;
        if difference.orphans.len() < query.name_orphans {
            difference.orphans.push(key);
        }
    }
    let expected = query.selected.len() - gaps.spared.len() as u64;
    let present = seen.in_range.checked_sub(in_gaps.len() as u64 + seen.spared);
    // Which keys are missing only a listing tells.
    Ok((present == Some(expected)).then_some(difference))
}

/// Where a row can be that is not selected.
struct Gaps {
    first: i64,
    last: i64,
    lows: Vec<i64>,
    highs: Vec<i64>,
    /// The selected keys that are spared: they may be there or not.
    spared: Vec<i64>,
}

impl Gaps {
    /// `None`: to list the keys is shorter, or for the listing to refuse.
    fn of(part: &KeyPart, range: &KeyRange, query: &DifferenceQuery<'_>) -> Option<Gaps> {
        let (lowest, highest) = limits(part)?;
        let first = match &range.lower {
            KeyBound::Open => lowest,
            KeyBound::Inclusive(key) => integer(key)?,
            KeyBound::Exclusive(key) => integer(key)?.checked_add(1)?,
        };
        let last = match &range.upper {
            KeyBound::Open => highest,
            KeyBound::Inclusive(key) => integer(key)?,
            KeyBound::Exclusive(key) => integer(key)?.checked_sub(1)?,
        };
        if first < lowest || last > highest || first > last || query.spared.len() > MOST_GAPS {
            return None;
        }
        let most = usize::try_from(query.selected.len() / KEYS_A_GAP).unwrap_or(usize::MAX).min(MOST_GAPS);
        let runs = query.selected.runs(most)?;
        if runs.first()?.0 < first || runs.last()?.1 > last {
            return None;
        }
        let (mut lows, mut highs) = (Vec::with_capacity(runs.len() + 1), Vec::with_capacity(runs.len() + 1));
        let mut next = Some(first);
        for &(low, high) in &runs {
            if let Some(next) = next.filter(|next| *next < low) {
                lows.push(next);
                highs.push(low - 1);
            }
            next = high.checked_add(1);
        }
        if let Some(next) = next.filter(|next| *next <= last) {
            lows.push(next);
            highs.push(last);
        }
        let spared = query.spared.iter().filter(|key| query.selected.contains(key));
        let spared = spared.map(|key| KeyReader::new(key).next_int().ok()).collect::<Option<_>>()?;
        Some(Gaps { first, last, lows, highs, spared })
    }
}

/// What an integer column holds.
fn limits(part: &KeyPart) -> Option<(i64, i64)> {
    match (part.key_type, part.carrier) {
        (KeyType::Int, Carrier::Int2) => Some((i16::MIN.into(), i16::MAX.into())),
        (KeyType::Int, Carrier::Int4) => Some((i32::MIN.into(), i32::MAX.into())),
        (KeyType::Int, Carrier::Int8) => Some((i64::MIN, i64::MAX)),
        _ => None,
    }
}

fn integer(key: &Key) -> Option<i64> {
    let mut reader = KeyReader::new(key.as_bytes());
    let value = reader.next_int().ok()?;
    reader.finish().ok().map(|()| value)
}

/// What the sink holds.
struct Seen {
    in_gaps: KeyList,
    in_range: u64,
    spared: u64,
}

async fn look(session: &mut Session, table: &Table, part: &KeyPart, gaps: &Gaps) -> Result<Seen, SinkError> {
    let fail = |error: sqlx::Error| classify(&table.doing("list keys of"), &error);
    let mut arrays = [&gaps.lows, &gaps.highs, &gaps.spared].map(|values| array(part.carrier, values));
    let [lows, highs, spared] = arrays.each_mut().map(ColumnBuffer::finish);
    let ends = [gaps.first, gaps.last].map(i64::to_be_bytes);
    let [first, last] = ends.each_ref().map(|end| Raw { oid: part.carrier.oid(), bytes: low_bytes(part.carrier, end) });
    let mut arguments = PgArguments::default();
    for parameter in [lows, highs, first, last, spared] {
        let _ = arguments.add(parameter);
    }
    let sql = AssertSqlSafe(look_text(table, part)).into_sql_str();
    let row = session.fetch_one_kept(&sql, arguments).await.map_err(fail)?;
    let mut in_gaps = KeyList::new();
    let listed = row.try_get_raw(0).map_err(fail)?;
    let listed = listed.as_bytes().map_err(|error| fail(sqlx::Error::Decode(error)))?;
    append_key_page(std::slice::from_ref(part), &[listed], &mut in_gaps)
        .map_err(|fault| key_error(table, "list keys of", &fault))?;
    let count = |at: usize| row.try_get::<i64, _>(at).map(|count| u64::try_from(count).unwrap_or_default());
    Ok(Seen { in_gaps, in_range: count(1).map_err(fail)?, spared: count(2).map_err(fail)? })
}

fn look_text(table: &Table, part: &KeyPart) -> String {
    let (t, id, most) = (&table.sql, &part.sql, MOST_ROWS + 1);
    // OFFSET 0 keeps the look into the index as it is written, once for each gap. The subqueries hide from the planner
    // how many gaps there are: one plan fits all, and is kept.
    format!(
        "SELECT\n    ARRAY(SELECT found.k1 FROM unnest((SELECT {lows}), (SELECT {highs})) AS gap (low, high)\n          \
         CROSS JOIN LATERAL (SELECT {listed} FROM {t} AS t WHERE t.{id} >= gap.low AND t.{id} <= gap.high OFFSET 0) AS found\n          \
         LIMIT {most}),\n    \
         (SELECT count(*) FROM {t} AS t WHERE t.{id} >= {first} AND t.{id} <= {last}),\n    \
         (SELECT count(*) FROM {t} AS t WHERE t.{id} = ANY({spared}))",
        lows = key_array(part, 1),
        highs = key_array(part, 2),
        listed = listed(std::slice::from_ref(part)),
        first = key_scalar(part, 3),
        last = key_scalar(part, 4),
        spared = key_array(part, 5),
    )
}

fn array(carrier: Carrier, values: &[i64]) -> ColumnBuffer {
    let mut buffer = ColumnBuffer::new(carrier);
    for &value in values {
        let Ok(()) = buffer.push_with(|out| -> Result<(), Infallible> {
            out.extend_from_slice(low_bytes(carrier, &value.to_be_bytes()));
            Ok(())
        });
    }
    buffer
}

/// Returns the binary form of an integer within the column's limits: its lowest bytes.
fn low_bytes(carrier: Carrier, value: &[u8; 8]) -> &[u8] {
    let width = match carrier {
        Carrier::Int2 => 2,
        Carrier::Int4 => 4,
        _ => 8,
    };
    &value[8 - width..]
}
