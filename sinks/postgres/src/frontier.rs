//! The frontier row of a lane: who may write, and where the lane stands.
//!
//! A lane is claimed by raising the row's epoch. A unit of work looks at the row when it begins, so that a late owner
//! stops before it works, and its last statement before COMMIT updates the row under the lane's epoch and the offset
//! that it builds upon. Whatever a claim's moment, it is before that update, which then finds another epoch and changes
//! no row (under READ COMMITTED a row that was waited for is looked at as it is now), or it waits for the commit and
//! sees its outcome. A claim never waits for the work of a unit: its owner may be stopped in the middle of it.

use sink_api::{ErrorClass, LaneId, LaneState, Offset, SinkError, TopicId, Xid};
use sqlx::{Arguments, Row, postgres::PgArguments, postgres::PgRow};

use crate::{
    binding::{Carrier, Raw},
    connect::Session,
    errors::classify,
};

/// A frontier row.
pub(crate) struct Frontier {
    pub(crate) epoch: i64,
    pub(crate) owner: String,
    pub(crate) topic_id: TopicId,
    /// What was committed last, if anything ever was.
    pub(crate) state: Option<LaneState>,
}

impl Frontier {
    /// Returns the state that counts for a topic's incarnation.
    pub(crate) fn state_of(&self, topic_id: TopicId) -> Option<&LaneState> {
        self.state.as_ref().filter(|_| self.topic_id == topic_id)
    }

    /// Returns the incarnation that the row speaks of, when it has a state of another one than the lane's.
    pub(crate) fn other_incarnation(&self, lane: &LaneId) -> Option<TopicId> {
        Some(self.topic_id).filter(|topic_id| self.state.is_some() && *topic_id != lane.topic_id)
    }
}

/// Takes the lane over; in a transaction of its own.
pub(crate) async fn claim(session: &mut Session, lane: &LaneId, owner: &str) -> Result<Frontier, SinkError> {
    let doing = format!("claim lane {lane}");
    let fail = |error: sqlx::Error| classify(&doing, &error);
    let mut arguments = lane_arguments(lane);
    let _ = arguments.add(uuid(&lane.topic_id));
    let _ = arguments.add(owner);
    session.begin().await.map_err(fail)?;
    let row = session.own_optional(CLAIM, arguments).await.map_err(fail)?;
    let frontier = row.ok_or(sqlx::Error::RowNotFound).and_then(|row| frontier(&row)).map_err(fail)?;
    session.commit().await.map_err(fail)?;
    Ok(frontier)
}

/// Reads the lane's row; fails when the lane belongs to someone else now.
pub(crate) async fn look(session: &mut Session, lane: &LaneId, epoch: i64) -> Result<Frontier, SinkError> {
    read(session, lane, epoch, LOOK).await
}

/// As `look`, after waiting for a commit whose outcome is open.
pub(crate) async fn lock(session: &mut Session, lane: &LaneId, epoch: i64) -> Result<Frontier, SinkError> {
    read(session, lane, epoch, LOCK).await
}

async fn read(session: &mut Session, lane: &LaneId, epoch: i64, sql: &'static str) -> Result<Frontier, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("read the frontier of lane {lane}"), &error);
    let row = session.own_optional(sql, lane_arguments(lane)).await.map_err(fail)?;
    let Some(row) = row else {
        return Err(fenced(lane, "its frontier row was deleted".to_owned()));
    };
    let frontier = frontier(&row).map_err(fail)?;
    if frontier.epoch != epoch {
        return Err(fenced(
            lane,
            format!("it belongs to {} now (epoch {}, this worker's is {epoch})", frontier.owner, frontier.epoch),
        ));
    }
    Ok(frontier)
}

/// Checks that what a unit of work builds upon is what was committed last.
pub(crate) fn check_expected(frontier: &Frontier, lane: &LaneId, expected: Option<Offset>) -> Result<(), SinkError> {
    let committed = frontier.state_of(lane.topic_id).map(|state| state.next_offset);
    if committed == expected {
        return Ok(());
    }
    let show = |offset: Option<Offset>| offset.map_or_else(|| "none".to_owned(), |offset| offset.to_string());
    Err(fenced(lane, format!("its frontier is at {}, this worker expected {}", show(committed), show(expected))))
}

/// Writes the lane's new state over the one that the unit of work builds upon.
pub(crate) async fn advance(
    session: &mut Session,
    lane: &LaneId,
    epoch: i64,
    expected: Option<Offset>,
    state: &LaneState,
) -> Result<(), SinkError> {
    let mut arguments = lane_arguments(lane);
    let _ = arguments.add(epoch);
    let _ = arguments.add(uuid(&lane.topic_id));
    let _ = arguments.add(state.next_offset.0);
    let _ = arguments.add(state.memory_offset.0);
    let _ = arguments.add(state.highest_xid.map(|xid| xid.0.to_string()));
    let _ = arguments.add(state.unknown_past);
    let _ = arguments.add(state.partition_count);
    let _ = arguments.add(expected.map(|offset| offset.0));
    let changed = session
        .own(ADVANCE, arguments)
        .await
        .map_err(|error| classify(&format!("advance the frontier of lane {lane}"), &error))?;
    if changed == 1 {
        return Ok(());
    }
    let row = look(session, lane, epoch).await?;
    check_expected(&row, lane, expected)?;
    Err(fenced(lane, "its frontier row has changed".to_owned()))
}

fn fenced(lane: &LaneId, reason: String) -> SinkError {
    SinkError::new(ErrorClass::Fenced, format!("write for lane {lane}: {reason}"))
        .hint("nothing was written; another worker of this name goes on with the partition")
}

/// Returns the arguments that name a lane's row.
fn lane_arguments(lane: &LaneId) -> PgArguments {
    let mut arguments = PgArguments::default();
    let _ = arguments.add(&lane.name);
    let _ = arguments.add(&lane.topic);
    let _ = arguments.add(lane.partition.0);
    arguments
}

/// Returns a topic id as a parameter.
pub(crate) fn uuid(topic_id: &TopicId) -> Raw<'_> {
    Raw { oid: Carrier::Uuid.oid(), bytes: &topic_id.0 }
}

/// Reads a topic id from `uuid_send(...)`.
pub(crate) fn topic_id(row: &PgRow, column: &str) -> Result<TopicId, sqlx::Error> {
    let bytes: Vec<u8> = row.try_get(column)?;
    let bytes = bytes.try_into().map_err(|_| sqlx::Error::Protocol("a uuid of other than 16 bytes".to_owned()))?;
    Ok(TopicId(bytes))
}

/// Reads the columns of a lane's state.
pub(crate) fn state(row: &PgRow) -> Result<Option<LaneState>, sqlx::Error> {
    let Some(next_offset) = row.try_get::<Option<i64>, _>("next_offset")? else { return Ok(None) };
    let highest_xid: Option<String> = row.try_get("highest_xid")?;
    Ok(Some(LaneState {
        next_offset: Offset(next_offset),
        memory_offset: Offset(row.try_get("memory_offset")?),
        highest_xid: highest_xid
            .map(|text| text.parse().map(Xid))
            .transpose()
            .map_err(|_| sqlx::Error::Protocol("a transaction id of more than 64 bits".to_owned()))?,
        unknown_past: row.try_get("unknown_past")?,
        partition_count: row.try_get("partition_count")?,
    }))
}

fn frontier(row: &PgRow) -> Result<Frontier, sqlx::Error> {
    Ok(Frontier {
        epoch: row.try_get("epoch")?,
        owner: row.try_get("owner")?,
        topic_id: topic_id(row, "topic_id")?,
        state: state(row)?,
    })
}

/// A row that nothing was committed to yet follows the topic's incarnation; another one keeps what it says until the
/// lane's first commit.
const CLAIM: &str = "
INSERT INTO sink_repair.frontier AS f (name, topic, partition, topic_id, epoch, owner)
VALUES ($1, $2, $3, $4, 1, $5)
ON CONFLICT (name, topic, partition) DO UPDATE SET
    epoch = f.epoch + 1,
    owner = excluded.owner,
    topic_id = CASE WHEN f.next_offset IS NULL THEN excluded.topic_id ELSE f.topic_id END,
    updated_at = now()
RETURNING epoch, owner, uuid_send(topic_id) AS topic_id, next_offset, memory_offset, highest_xid::text, unknown_past,
    partition_count";

const LOOK: &str = "
SELECT epoch, owner, uuid_send(topic_id) AS topic_id, next_offset, memory_offset, highest_xid::text, unknown_past,
    partition_count
FROM sink_repair.frontier
WHERE name = $1 AND topic = $2 AND partition = $3";

const LOCK: &str = "
SELECT epoch, owner, uuid_send(topic_id) AS topic_id, next_offset, memory_offset, highest_xid::text, unknown_past,
    partition_count
FROM sink_repair.frontier
WHERE name = $1 AND topic = $2 AND partition = $3
FOR UPDATE";

const ADVANCE: &str = "
UPDATE sink_repair.frontier SET
    topic_id = $5,
    next_offset = $6,
    memory_offset = $7,
    highest_xid = $8::text::numeric,
    unknown_past = $9,
    partition_count = $10,
    updated_at = now()
WHERE name = $1 AND topic = $2 AND partition = $3 AND epoch = $4
  AND CASE WHEN $11::int8 IS NULL THEN next_offset IS NULL OR topic_id <> $5 ELSE next_offset = $11 AND topic_id = $5 END";
