//! Statements of absence and their verdicts, written down in the transaction of their effect.

use sink_api::{KeyList, LaneId, ReadId, SinkError, StatementRow, Verdict};
use sqlx::{Arguments, Row, postgres::PgArguments};

use crate::{
    binding::{Carrier, ColumnBuffer, key_json},
    connect::Session,
    errors::classify,
    frontier::uuid,
    table::Table,
};

/// Returns the verdict on a read that the lane's incarnation has given, if it has.
pub(crate) async fn verdict(
    session: &mut Session,
    lane: &LaneId,
    read_id: &ReadId,
) -> Result<Option<String>, SinkError> {
    let fail = |error: sqlx::Error| classify("look up a verdict", &error);
    let row = session.own_optional(VERDICT, read_arguments(lane, read_id)).await.map_err(fail)?;
    row.map(|row| row.try_get(0).map_err(fail)).transpose()
}

/// Writes a statement down; the first verdict on a read stays.
pub(crate) async fn record(
    session: &mut Session,
    lane: &LaneId,
    table: Option<&Table>,
    statement: &StatementRow,
    orphans: &KeyList,
) -> Result<(), SinkError> {
    let fail = |error: sqlx::Error| classify("write down a statement", &error);
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let (rule, reason) = statement.verdict.reason().unzip();
    let mut arguments = read_arguments(lane, &statement.read_id);
    let _ = arguments.add(&lane.topic);
    let _ = arguments.add(statement.offset.0);
    let _ = arguments.add(statement.kind.as_str());
    let _ = arguments.add(statement.table.as_ref().map(|table| table.schema.as_str()));
    let _ = arguments.add(statement.table.as_ref().map(|table| table.name.as_str()));
    let _ = arguments.add(&statement.source_table);
    let _ = arguments.add(&statement.extent);
    let _ = arguments.add(statement.verdict.as_str());
    let _ = arguments.add(rule.map(|rule| rule.as_str()));
    let _ = arguments.add(reason);
    let _ = arguments.add(matches!(statement.verdict, Verdict::Refused { again: true, .. }));
    for count in [statement.orphans, statement.removed, statement.missing, statement.spared, statement.in_range] {
        let _ = arguments.add(number(count));
    }
    let _ = arguments.add(statement.confirmed.map(number));
    let recorded = session.own(RECORD, arguments).await.map_err(fail)?;
    let shown = matches!(statement.verdict, Verdict::Reported | Verdict::Held { .. });
    if recorded == 1 && shown && !orphans.is_empty() {
        list_orphans(session, lane, table, &statement.read_id, orphans).await.map_err(fail)?;
    }
    Ok(())
}

/// Keeps the orphans' keys, so that an operator sees what would go.
async fn list_orphans(
    session: &mut Session,
    lane: &LaneId,
    table: Option<&Table>,
    read_id: &ReadId,
    orphans: &KeyList,
) -> Result<(), sqlx::Error> {
    let mut encoded = ColumnBuffer::new(Carrier::Bytea);
    let mut shown: Vec<Option<String>> = Vec::with_capacity(orphans.len());
    for key in orphans.iter() {
        let bytes = |out: &mut Vec<u8>| -> Result<(), std::convert::Infallible> {
            out.extend_from_slice(key);
            Ok(())
        };
        let Ok(()) = encoded.push_with(bytes);
        shown.push(table.and_then(|table| key_json(table.key.as_deref()?, key).ok()));
    }
    let mut arguments = read_arguments(lane, read_id);
    let _ = arguments.add(encoded.finish());
    let _ = arguments.add(shown);
    session.own(ORPHANS, arguments).await.map(drop)
}

fn read_arguments(lane: &LaneId, read_id: &ReadId) -> PgArguments {
    let mut arguments = PgArguments::default();
    let _ = arguments.add(&lane.name);
    let _ = arguments.add(uuid(&lane.topic_id));
    let _ = arguments.add(lane.partition.0);
    let _ = arguments.add(&read_id.0);
    arguments
}

const VERDICT: &str = "
SELECT verdict FROM sink_repair.statement
WHERE name = $1 AND topic_id = $2 AND partition = $3 AND read_id = $4";

const RECORD: &str = "
INSERT INTO sink_repair.statement
    (name, topic_id, partition, read_id, topic, position, kind, table_schema, table_name, source_table, extent, verdict,
     rule, reason, again, orphans, removed, missing, spared, in_range, confirmed)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
ON CONFLICT (name, topic_id, partition, read_id) DO NOTHING";

const ORPHANS: &str = "
INSERT INTO sink_repair.orphan (name, topic_id, partition, read_id, encoded, key)
SELECT $1, $2, $3, $4, s.encoded, s.key::jsonb
FROM unnest($5::bytea[], $6::text[]) AS s (encoded, key)
ON CONFLICT (name, topic_id, partition, read_id, encoded) DO NOTHING";
