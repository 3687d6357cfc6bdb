//! Which stream feeds which table: one source, one topic and one worker name, or statements on the table are void.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use sink_api::{Feed, Feeding, LaneId, Partition, SinkError, SourceName, TableName, TopicId};
use sqlx::{
    Arguments, Row, SqlSafeStr,
    postgres::{PgArguments, PgRow},
};

use crate::{connect::Session, errors::classify, frontier, identifier::quote_table};

/// Notes that a stream feeds a table. Returns the one that was noted first when that cannot be this one.
pub(crate) async fn claim(
    session: &mut Session,
    table: &TableName,
    source: &SourceName,
    lane: &LaneId,
) -> Result<Option<String>, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("claim table {table}"), &error);
    session.begin().await.map_err(fail)?;
    session.own(CLAIM, claim_arguments(table, source, lane)).await.map_err(fail)?;
    let rows = session.own_all(HOLDERS, table_arguments(table)).await.map_err(fail)?;
    session.commit().await.map_err(fail)?;
    let first = rows.first().ok_or_else(|| fail(sqlx::Error::RowNotFound))?;
    if feed(first).map_err(fail)?.may_be(&own(table, source, lane)) {
        return Ok(None);
    }
    describe(first).map(Some).map_err(fail)
}

/// What feeds a table.
#[derive(Debug)]
pub(crate) struct Held {
    /// Whether the statement's own stream does.
    pub(crate) fed: bool,
    /// All that do, when another one does.
    pub(crate) streams: Vec<String>,
}

/// Looks who feeds a table, the tables that it is a part of and those that are a part of it.
pub(crate) async fn look(
    session: &mut Session,
    table: &TableName,
    source: &SourceName,
    lane: &LaneId,
) -> Result<Held, sqlx::Error> {
    let mut arguments = table_arguments(table);
    let _ = arguments.add(quote_table(table));
    let rows = session.own_all(FAMILY, arguments).await?;
    let feeds: Vec<Feed> = rows.iter().map(feed).collect::<Result<_, _>>()?;
    let Feeding { fed, alone } = own(table, source, lane).feeds(feeds.iter());
    let streams = match alone {
        true => Vec::new(),
        false => rows.iter().map(describe).collect::<Result<_, _>>()?,
    };
    Ok(Held { fed, streams })
}

fn own(table: &TableName, source: &SourceName, lane: &LaneId) -> Feed {
    Feed { table: table.clone(), source: source.clone(), topic_id: lane.topic_id, name: lane.name.clone() }
}

fn feed(row: &PgRow) -> Result<Feed, sqlx::Error> {
    Ok(Feed {
        table: TableName { schema: row.try_get("table_schema")?, name: row.try_get("table_name")? },
        source: source(row)?,
        topic_id: frontier::topic_id(row, "topic_id")?,
        name: row.try_get("claimed_by")?,
    })
}

/// Reads a source's name.
pub(crate) fn source(row: &PgRow) -> Result<SourceName, sqlx::Error> {
    Ok(SourceName {
        connector: row.try_get("connector")?,
        database: row.try_get("database")?,
        table: row.try_get("source")?,
    })
}

/// The claims that this process has made.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    claimed: Mutex<HashMap<TableName, Vec<Claim>>>,
}

/// A claim of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    lane: LaneId,
    source: SourceName,
}

impl Streams {
    pub(crate) fn remember(&self, table: &TableName, source: &SourceName, lane: &LaneId) {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let claims = claimed.entry(table.clone()).or_default();
        // Claims are of topics.
        let claim = Claim { lane: LaneId { partition: Partition(0), ..lane.clone() }, source: source.clone() };
        if !claims.contains(&claim) {
            claims.push(claim);
        }
    }

    /// Returns the claims of this process on a table, also those of lanes that are idle: they would write again.
    pub(crate) fn of(&self, table: &TableName) -> Claims {
        let claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        Claims { table: table.clone(), claims: claimed.get(table).cloned().unwrap_or_default() }
    }
}

/// A table and the claims that a process has made on it.
#[derive(Debug)]
pub(crate) struct Claims {
    table: TableName,
    claims: Vec<Claim>,
}

/// Makes claims again where someone has reset them while the worker runs: it goes on writing. Looks first, since a claim
/// waits for statements of other lanes ([`hold`]).
pub(crate) async fn keep(session: &mut Session, claims: &Claims) -> Result<(), SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("claim table {}", claims.table), &error);
    let Some(first) = claims.claims.first() else { return Ok(()) };
    let mut arguments = table_arguments(&claims.table);
    let _ = arguments.add(&first.lane.name);
    let rows = session.own_all(KEPT, arguments).await.map_err(fail)?;
    let kept = |row: &PgRow| Ok((frontier::topic_id(row, "topic_id")?, source(row)?));
    let kept: Vec<(TopicId, SourceName)> = rows.iter().map(kept).collect::<Result<_, _>>().map_err(fail)?;
    for Claim { lane, source } in &claims.claims {
        if !kept.iter().any(|(topic_id, kept)| (topic_id, kept) == (&lane.topic_id, source)) {
            session.own(CLAIM, claim_arguments(&claims.table, source, lane)).await.map_err(fail)?;
        }
    }
    Ok(())
}

/// Keeps new claims out until the transaction ends, so that no other stream can begin to feed a table between a look at
/// its claims and a removal.
pub(crate) async fn hold(session: &mut Session) -> Result<(), SinkError> {
    let held = session.script("LOCK TABLE sink_repair.stream IN SHARE MODE".into_sql_str()).await;
    held.map_err(|error| classify("hold the claims of tables", &error))
}

/// Returns the source tables whose changes have come by a lane's topic, also those whose claims were given up since.
pub(crate) async fn sources(session: &mut Session, lane: &LaneId) -> Result<Vec<(SourceName, TableName)>, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("read the streams of {}", lane.topic), &error);
    let mut arguments = PgArguments::default();
    let _ = arguments.add(frontier::uuid(&lane.topic_id));
    let _ = arguments.add(&lane.topic);
    let rows = session.own_all(SOURCES, arguments).await.map_err(fail)?;
    let noted = |row: &PgRow| {
        Ok((source(row)?, TableName { schema: row.try_get("table_schema")?, name: row.try_get("table_name")? }))
    };
    rows.iter().map(noted).collect::<Result<_, _>>().map_err(fail)
}

fn describe(row: &PgRow) -> Result<String, sqlx::Error> {
    let Feed { table, source, topic_id, name } = feed(row)?;
    let topic: String = row.try_get("topic")?;
    Ok(format!("{source} by topic {topic} (id {topic_id}) into {table}, applied by worker {name}"))
}

/// Gives a table's claims up. Returns the streams that had one. They stay in the books: a topic goes on to hold records of
/// the sources that fed the table, and a tombstone there may be theirs ([`sources`]).
pub(crate) async fn release(session: &mut Session, table: &TableName) -> Result<Vec<String>, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("release table {table}"), &error);
    session.begin().await.map_err(fail)?;
    let released = session.own_all(RELEASE, table_arguments(table)).await.map_err(fail)?;
    session.commit().await.map_err(fail)?;
    released.iter().map(describe).collect::<Result<_, _>>().map_err(fail)
}

fn table_arguments(table: &TableName) -> PgArguments {
    let mut arguments = PgArguments::default();
    let _ = arguments.add(&table.schema);
    let _ = arguments.add(&table.name);
    arguments
}

fn claim_arguments(table: &TableName, source: &SourceName, lane: &LaneId) -> PgArguments {
    let mut arguments = table_arguments(table);
    let _ = arguments.add(&source.connector);
    let _ = arguments.add(&source.database);
    let _ = arguments.add(&source.table);
    let _ = arguments.add(&lane.topic);
    let _ = arguments.add(frontier::uuid(&lane.topic_id));
    let _ = arguments.add(&lane.name);
    arguments
}

const CLAIM: &str = "
INSERT INTO sink_repair.stream (table_schema, table_name, connector, database, source, topic, topic_id, claimed_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (table_schema, table_name, connector, database, source, topic_id, claimed_by)
DO UPDATE SET released_at = NULL, claimed_at = clock_timestamp() WHERE stream.released_at IS NOT NULL";

const KEPT: &str = "
SELECT connector, database, source, uuid_send(topic_id) AS topic_id FROM sink_repair.stream
WHERE table_schema = $1 AND table_name = $2 AND claimed_by = $3 AND released_at IS NULL";

/// Also what was given up: the topic still holds its records.
const SOURCES: &str = "
SELECT DISTINCT connector, database, source, table_schema, table_name FROM sink_repair.stream
WHERE topic_id = $1 OR topic = $2
ORDER BY source, connector, database, table_schema, table_name";

const HOLDERS: &str = "
SELECT table_schema, table_name, connector, database, source, topic, uuid_send(topic_id) AS topic_id, claimed_by
FROM sink_repair.stream
WHERE table_schema = $1 AND table_name = $2 AND released_at IS NULL
ORDER BY claimed_at, source";

/// A row of a partition is one of its parent's too.
const FAMILY: &str = "
WITH RECURSIVE above AS (
    SELECT to_regclass($3)::oid AS oid
    UNION SELECT i.inhparent FROM above JOIN pg_inherits i ON i.inhrelid = above.oid
), below AS (
    SELECT to_regclass($3)::oid AS oid
    UNION SELECT i.inhrelid FROM below JOIN pg_inherits i ON i.inhparent = below.oid
), family AS (
    SELECT n.nspname AS schema, c.relname AS name
    FROM (SELECT oid FROM above UNION SELECT oid FROM below) AS member
    JOIN pg_class c ON c.oid = member.oid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    UNION SELECT $1, $2
)
SELECT table_schema, table_name, connector, database, source, topic, uuid_send(topic_id) AS topic_id, claimed_by
FROM sink_repair.stream
WHERE (table_schema, table_name) IN (SELECT schema, name FROM family) AND released_at IS NULL
ORDER BY claimed_at, source";

const RELEASE: &str = "
UPDATE sink_repair.stream SET released_at = clock_timestamp()
WHERE table_schema = $1 AND table_name = $2 AND released_at IS NULL
RETURNING table_schema, table_name, connector, database, source, topic, uuid_send(topic_id) AS topic_id, claimed_by";
