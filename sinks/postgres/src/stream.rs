//! Which stream feeds which table: one source, one topic and one worker name, or statements on the table are void.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use sink_api::{LaneId, SinkError, TableName, TopicId};
use sqlx::{
    Arguments, Row, SqlSafeStr,
    postgres::{PgArguments, PgRow},
};

use crate::{connect::Session, errors::classify, frontier};

/// Notes that a stream feeds a table. Returns the one that was noted first when that is another one.
pub(crate) async fn claim(
    session: &mut Session,
    table: &TableName,
    source: &str,
    lane: &LaneId,
) -> Result<Option<String>, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("claim table {table}"), &error);
    session.begin().await.map_err(fail)?;
    session.own(CLAIM, claim_arguments(table, source, lane)).await.map_err(fail)?;
    let rows = session.own_all(HOLDERS, table_arguments(table)).await.map_err(fail)?;
    session.commit().await.map_err(fail)?;
    let row = rows.first().ok_or_else(|| fail(sqlx::Error::RowNotFound))?;
    let first: String = row.try_get(0).map_err(fail)?;
    let topic_id: TopicId = frontier::topic_id(row, "topic_id").map_err(fail)?;
    let name: String = row.try_get("claimed_by").map_err(fail)?;
    if first == source && topic_id == lane.topic_id && name == lane.name {
        return Ok(None);
    }
    describe(row).map(Some).map_err(fail)
}

/// The claims that this process has made.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    claimed: Mutex<HashMap<TableName, Vec<(TopicId, String)>>>,
}

impl Streams {
    pub(crate) fn remember(&self, table: &TableName, source: &str, lane: &LaneId) {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let claims = claimed.entry(table.clone()).or_default();
        let claim = (lane.topic_id, source.to_owned());
        if !claims.contains(&claim) {
            claims.push(claim);
        }
    }

    /// Returns the claims of a lane's topic on a table.
    pub(crate) fn of(&self, table: &TableName, lane: &LaneId) -> Claims {
        let claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let claims = claimed.get(table).into_iter().flatten().filter(|(topic_id, _)| *topic_id == lane.topic_id);
        Claims { table: table.clone(), sources: claims.map(|(_, source)| source.clone()).collect() }
    }
}

/// A table and the sources that a lane has claimed it for.
#[derive(Debug)]
pub(crate) struct Claims {
    table: TableName,
    sources: Vec<String>,
}

/// Makes a lane's claims again where someone has reset them: it goes on writing. Looks first, since a claim waits for
/// statements of other lanes ([`hold`]).
pub(crate) async fn keep(session: &mut Session, claims: &Claims, lane: &LaneId) -> Result<(), SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("claim table {}", claims.table), &error);
    if claims.sources.is_empty() {
        return Ok(());
    }
    let mut arguments = table_arguments(&claims.table);
    let _ = arguments.add(frontier::uuid(&lane.topic_id));
    let _ = arguments.add(&claims.sources);
    let _ = arguments.add(&lane.name);
    let row = session.own_optional(KEPT, arguments).await.map_err(fail)?;
    let kept: i64 = row.ok_or(sqlx::Error::RowNotFound).and_then(|row| row.try_get(0)).map_err(fail)?;
    if kept == claims.sources.len() as i64 {
        return Ok(());
    }
    for source in &claims.sources {
        session.own(CLAIM, claim_arguments(&claims.table, source, lane)).await.map_err(fail)?;
    }
    Ok(())
}

/// Keeps new claims out until the transaction ends, so that no other stream can begin to feed a table between a look at
/// its claims and a removal.
pub(crate) async fn hold(session: &mut Session) -> Result<(), SinkError> {
    let held = session.script("LOCK TABLE sink_repair.stream IN SHARE MODE".into_sql_str()).await;
    held.map_err(|error| classify("hold the claims of tables", &error))
}

/// Returns the source tables whose changes have come by a lane's topic.
pub(crate) async fn sources(session: &mut Session, lane: &LaneId) -> Result<Vec<(String, TableName)>, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("read the streams of {}", lane.topic), &error);
    let mut arguments = PgArguments::default();
    let _ = arguments.add(frontier::uuid(&lane.topic_id));
    let _ = arguments.add(&lane.topic);
    let rows = session.own_all(SOURCES, arguments).await.map_err(fail)?;
    let source = |row: &PgRow| Ok((row.try_get(0)?, TableName { schema: row.try_get(1)?, name: row.try_get(2)? }));
    rows.iter().map(source).collect::<Result<_, _>>().map_err(fail)
}

/// Returns the streams that feed a table.
pub(crate) async fn all(session: &mut Session, table: &TableName) -> Result<Vec<String>, sqlx::Error> {
    session.own_all(HOLDERS, table_arguments(table)).await?.iter().map(describe).collect()
}

fn describe(row: &PgRow) -> Result<String, sqlx::Error> {
    let (source, topic, name): (String, String, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get("claimed_by")?);
    Ok(format!("{source} by topic {topic} (id {}), applied by worker {name}", frontier::topic_id(row, "topic_id")?))
}

/// Gives a table's claim up. Returns whether there was one.
pub(crate) async fn release(session: &mut Session, table: &TableName) -> Result<bool, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("release table {table}"), &error);
    session.begin().await.map_err(fail)?;
    let released = session.own(RELEASE, table_arguments(table)).await.map_err(fail)?;
    session.commit().await.map_err(fail)?;
    Ok(released > 0)
}

fn table_arguments(table: &TableName) -> PgArguments {
    let mut arguments = PgArguments::default();
    let _ = arguments.add(&table.schema);
    let _ = arguments.add(&table.name);
    arguments
}

fn claim_arguments(table: &TableName, source: &str, lane: &LaneId) -> PgArguments {
    let mut arguments = table_arguments(table);
    let _ = arguments.add(source);
    let _ = arguments.add(&lane.topic);
    let _ = arguments.add(frontier::uuid(&lane.topic_id));
    let _ = arguments.add(&lane.name);
    arguments
}

const CLAIM: &str = "
INSERT INTO sink_repair.stream (table_schema, table_name, source, topic, topic_id, claimed_by)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (table_schema, table_name, source, topic_id, claimed_by) DO NOTHING";

const KEPT: &str = "
SELECT count(*) FROM sink_repair.stream
WHERE table_schema = $1 AND table_name = $2 AND topic_id = $3 AND source = ANY($4) AND claimed_by = $5";

const SOURCES: &str = "
SELECT DISTINCT source, table_schema, table_name FROM sink_repair.stream
WHERE topic_id = $1 OR topic = $2
ORDER BY source, table_schema, table_name";

const HOLDERS: &str = "
SELECT source, topic, uuid_send(topic_id) AS topic_id, claimed_by FROM sink_repair.stream
WHERE table_schema = $1 AND table_name = $2
ORDER BY claimed_at, source";

const RELEASE: &str = "DELETE FROM sink_repair.stream WHERE table_schema = $1 AND table_name = $2";
