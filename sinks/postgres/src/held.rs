//! Held statements that wait for an operator.

use sink_api::{
    HeldStatement, LaneId, Offset, ReadId, Rule, SinkError, StatementKind, StatementRow, TableName, Verdict,
};
use sqlx::{Arguments, Row, postgres::PgRow};

use crate::{connect::Session, errors::classify, frontier::uuid};

/// Lists a lane's held statements that no later one settled, oldest first, at most `most` of the newest.
pub(crate) async fn list(session: &mut Session, lane: &LaneId, most: usize) -> Result<Vec<HeldStatement>, SinkError> {
    let fail = |error: sqlx::Error| classify("list held statements", &error);
    let mut arguments = sqlx::postgres::PgArguments::default();
    let _ = arguments.add(&lane.name);
    let _ = arguments.add(uuid(&lane.topic_id));
    let _ = arguments.add(lane.partition.0);
    let _ = arguments.add(i64::try_from(most).unwrap_or(i64::MAX));
    session.begin().await.map_err(fail)?;
    let rows = session.own_all(HELD, arguments).await.map_err(fail)?;
    session.commit().await.map_err(fail)?;
    rows.iter().map(held).collect::<Result<_, _>>().map_err(fail)
}

fn held(row: &PgRow) -> Result<HeldStatement, sqlx::Error> {
    let count = |column: &str| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    let unknown = |what: &str| sqlx::Error::Protocol(format!("sink_repair.statement has a {what} of another version"));
    let (kind, rule): (&str, &str) = (row.try_get("kind")?, row.try_get("rule")?);
    let table: Option<(String, String)> =
        row.try_get::<Option<String>, _>("table_schema")?.zip(row.try_get::<Option<String>, _>("table_name")?);
    Ok(HeldStatement {
        statement: StatementRow {
            read_id: ReadId(row.try_get("read_id")?),
            kind: StatementKind::of(kind).ok_or_else(|| unknown("kind"))?,
            table: table.map(|(schema, name)| TableName { schema, name }),
            source_table: row.try_get("source_table")?,
            extent: row.try_get("extent")?,
            offset: Offset(row.try_get("position")?),
            verdict: Verdict::Held {
                rule: Rule::of(rule).ok_or_else(|| unknown("rule"))?,
                reason: row.try_get::<Option<String>, _>("reason")?.unwrap_or_default(),
            },
            orphans: count("orphans")?,
            removed: count("removed")?,
            missing: count("missing")?,
            spared: count("spared")?,
            in_range: count("in_range")?,
            confirmed: row.try_get::<Option<i64>, _>("confirmed")?.map(i64::unsigned_abs),
        },
        recorded_at: row.try_get("micros")?,
    })
}

/// As `StatementRow::settles` has it.
const HELD: &str = "
SELECT * FROM (
    SELECT read_id, kind, table_schema, table_name, source_table, extent, position, rule, reason, orphans, removed,
        missing, spared, in_range, confirmed, (extract(epoch FROM recorded_at) * 1000000)::int8 AS micros
    FROM sink_repair.statement AS held
    WHERE name = $1 AND topic_id = $2 AND partition = $3 AND verdict = 'held' AND NOT EXISTS (
        SELECT FROM sink_repair.statement AS later
        WHERE later.name = $1 AND later.topic_id = $2 AND later.partition = $3 AND later.verdict = 'applied'
            AND later.position > held.position AND later.kind = held.kind AND later.extent = held.extent
            AND (later.table_schema, later.table_name) IS NOT DISTINCT FROM (held.table_schema, held.table_name)
            AND (held.kind IN ('chunk', 'chunk-info') OR later.confirmed IS NOT NULL))
    ORDER BY position DESC
    LIMIT $4) AS waiting
ORDER BY position";
