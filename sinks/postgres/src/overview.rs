//! What an operator sees of the sink's own schema.

use serde::Serialize;
use sink_api::SinkError;
use sqlx::{Arguments, Row, postgres::PgArguments, postgres::PgRow};

use crate::{connect::Session, errors::classify, frontier};

/// Statements that are listed one by one.
const LISTED_STATEMENTS: i64 = 50;

/// All that a worker's name has in the sink.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overview {
    /// The lanes, by topic and partition.
    pub frontiers: Vec<FrontierView>,
    /// How many statements there are of each verdict.
    pub verdicts: Vec<VerdictCount>,
    /// The last statements, the newest first; those that are held before all others.
    pub statements: Vec<StatementView>,
    /// Copies of removed rows, by table.
    pub removed: Vec<RemovedView>,
    /// Which stream feeds which table.
    pub streams: Vec<StreamView>,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontierView {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The topic's incarnation.
    pub topic_id: String,
    /// The next offset to read; `None` when nothing was ever committed.
    pub next_offset: Option<i64>,
    /// Where a restarted lane starts reading.
    pub memory_offset: Option<i64>,
    /// How often the lane was claimed.
    pub epoch: i64,
    /// Who claimed it last.
    pub owner: String,
    /// When it was claimed or committed last, in ISO 8601.
    pub updated_at: String,
}

/// A number of statements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictCount {
    /// The verdict.
    pub verdict: String,
    /// The rule that held or refused them.
    pub rule: Option<String>,
    /// How many there are.
    pub statements: i64,
    /// The rows that they removed.
    pub removed: i64,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatementView {
    /// The read.
    pub read_id: String,
    /// The form in which it came.
    pub kind: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Its place in the partition.
    pub offset: i64,
    /// The sink table, `schema.name`.
    pub table: Option<String>,
    /// The source's name for the table.
    pub source_table: String,
    /// Its range, or the number of its keys.
    pub extent: String,
    /// What became of it.
    pub verdict: String,
    /// The rule that held or refused it.
    pub rule: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Keys that the sink held and the source did not.
    pub orphans: i64,
    /// Of these, removed.
    pub removed: i64,
    /// Keys that the source held and the sink did not.
    pub missing: i64,
    /// Keys about which it said nothing.
    pub spared: i64,
    /// Rows of the sink in its range.
    pub in_range: i64,
    /// When it was written down, in ISO 8601.
    pub recorded_at: String,
}

/// Copies of removed rows of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RemovedView {
    /// The table, `schema.name`.
    pub table: String,
    /// Copies that could be brought back.
    pub kept: i64,
    /// Rows that were brought back.
    pub restored: i64,
    /// Rows removed within the last day, to the hour.
    pub removed_last_day: i64,
}

/// The stream that feeds a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamView {
    /// The table, `schema.name`.
    pub table: String,
    /// The source's own name of the table.
    pub source: String,
    /// The topic.
    pub topic: String,
    /// The topic's incarnation.
    pub topic_id: String,
}

/// Reads the overview of a worker's name.
pub(crate) async fn read(session: &mut Session, name: &str) -> Result<Overview, SinkError> {
    let fail = |error: sqlx::Error| classify("read schema sink_repair", &error);
    session.begin().await.map_err(fail)?;
    let overview = Overview {
        frontiers: list(session, FRONTIERS, name, None, frontier).await.map_err(fail)?,
        verdicts: list(session, VERDICTS, name, None, verdict).await.map_err(fail)?,
        statements: list(session, STATEMENTS, name, Some(LISTED_STATEMENTS), statement).await.map_err(fail)?,
        removed: list(session, REMOVED, name, None, removed).await.map_err(fail)?,
        streams: list(session, STREAMS, name, None, stream).await.map_err(fail)?,
    };
    session.commit().await.map_err(fail)?;
    Ok(overview)
}

/// Reads the statement of a read, the held one first where several lanes have it.
pub(crate) async fn one_statement(session: &mut Session, read_id: &str) -> Result<Option<StatementView>, SinkError> {
    let fail = |error: sqlx::Error| classify("read schema sink_repair", &error);
    session.begin().await.map_err(fail)?;
    let found = list(session, STATEMENT, read_id, None, statement).await.map_err(fail)?;
    session.commit().await.map_err(fail)?;
    Ok(found.into_iter().next())
}

async fn list<T>(
    session: &mut Session,
    sql: &'static str,
    name: &str,
    most: Option<i64>,
    read: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, sqlx::Error> {
    let mut arguments = PgArguments::default();
    let _ = arguments.add(name);
    if let Some(most) = most {
        let _ = arguments.add(most);
    }
    session.own_all(sql, arguments).await?.iter().map(read).collect()
}

fn frontier(row: &PgRow) -> Result<FrontierView, sqlx::Error> {
    Ok(FrontierView {
        topic: row.try_get("topic")?,
        partition: row.try_get("partition")?,
        topic_id: frontier::topic_id(row, "topic_id")?.to_string(),
        next_offset: row.try_get("next_offset")?,
        memory_offset: row.try_get("memory_offset")?,
        epoch: row.try_get("epoch")?,
        owner: row.try_get("owner")?,
        updated_at: row.try_get("updated_at")?,
    })
}

fn verdict(row: &PgRow) -> Result<VerdictCount, sqlx::Error> {
    Ok(VerdictCount {
        verdict: row.try_get("verdict")?,
        rule: row.try_get("rule")?,
        statements: row.try_get("statements")?,
        removed: row.try_get("removed")?,
    })
}

fn statement(row: &PgRow) -> Result<StatementView, sqlx::Error> {
    Ok(StatementView {
        read_id: row.try_get("read_id")?,
        kind: row.try_get("kind")?,
        topic: row.try_get("topic")?,
        partition: row.try_get("partition")?,
        offset: row.try_get("position")?,
        table: row.try_get("table")?,
        source_table: row.try_get("source_table")?,
        extent: row.try_get("extent")?,
        verdict: row.try_get("verdict")?,
        rule: row.try_get("rule")?,
        reason: row.try_get("reason")?,
        orphans: row.try_get("orphans")?,
        removed: row.try_get("removed")?,
        missing: row.try_get("missing")?,
        spared: row.try_get("spared")?,
        in_range: row.try_get("in_range")?,
        recorded_at: row.try_get("recorded_at")?,
    })
}

fn removed(row: &PgRow) -> Result<RemovedView, sqlx::Error> {
    Ok(RemovedView {
        table: row.try_get("table")?,
        kept: row.try_get("kept")?,
        restored: row.try_get("restored")?,
        removed_last_day: row.try_get("removed_last_day")?,
    })
}

fn stream(row: &PgRow) -> Result<StreamView, sqlx::Error> {
    Ok(StreamView {
        table: row.try_get("table")?,
        source: crate::stream::source(row)?.to_string(),
        topic: row.try_get("topic")?,
        topic_id: frontier::topic_id(row, "topic_id")?.to_string(),
    })
}

const FRONTIERS: &str = r#"
SELECT topic, partition, uuid_send(topic_id) AS topic_id, next_offset, memory_offset, epoch, owner,
    to_char(updated_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS updated_at
FROM sink_repair.frontier
WHERE name = $1
ORDER BY topic, partition"#;

const VERDICTS: &str = "
SELECT verdict, rule, count(*) AS statements, sum(removed)::int8 AS removed
FROM sink_repair.statement
WHERE name = $1
GROUP BY verdict, rule
ORDER BY verdict, rule";

const STATEMENTS: &str = r#"
SELECT read_id, kind, topic, partition, position, table_schema || '.' || table_name AS table, source_table, extent,
    verdict, rule, reason, orphans, removed, missing, spared, in_range,
    to_char(recorded_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS recorded_at
FROM sink_repair.statement
WHERE name = $1
ORDER BY verdict = 'held' DESC, recorded_at DESC, topic, partition, position DESC
LIMIT $2"#;

const STATEMENT: &str = r#"
SELECT read_id, kind, topic, partition, position, table_schema || '.' || table_name AS table, source_table, extent,
    verdict, rule, reason, orphans, removed, missing, spared, in_range,
    to_char(recorded_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS recorded_at
FROM sink_repair.statement
WHERE read_id = $1
ORDER BY verdict = 'held' DESC, recorded_at DESC
LIMIT 1"#;

const REMOVED: &str = "
SELECT coalesce(r.table_schema, c.table_schema) || '.' || coalesce(r.table_name, c.table_name) AS table,
    coalesce(r.kept, 0) AS kept, coalesce(r.restored, 0) AS restored, coalesce(c.removed, 0)::int8 AS removed_last_day
FROM (
    SELECT table_schema, table_name, count(*) FILTER (WHERE restored_at IS NULL) AS kept,
        count(*) FILTER (WHERE restored_at IS NOT NULL) AS restored
    FROM sink_repair.removed WHERE name = $1 GROUP BY 1, 2
) AS r
FULL JOIN (
    SELECT table_schema, table_name, sum(removed) AS removed
    FROM sink_repair.removal_count WHERE name = $1 AND hour > now() - interval '25 hours' GROUP BY 1, 2
) AS c ON c.table_schema = r.table_schema AND c.table_name = r.table_name
ORDER BY 1";

const STREAMS: &str = "
SELECT table_schema || '.' || table_name AS table, connector, database, source, topic, uuid_send(topic_id) AS topic_id
FROM sink_repair.stream
WHERE claimed_by = $1 AND released_at IS NULL
ORDER BY 1";
