//! What the removal of a row would set off, and what rows can stand in each other's way.

use sink_api::{SinkError, TableName};
use sqlx::Row;

use super::relation::{Relation, oid_argument};
use crate::{connect::Session, errors::classify};

/// Returns what a statement's removal would do beyond the row, for an operator to read.
pub(super) async fn read(
    session: &mut Session,
    name: &TableName,
    relation: &Relation,
) -> Result<Vec<String>, SinkError> {
    let doing = format!("describe {name}");
    let fail = |error: sqlx::Error| classify(&doing, &error);
    let rows = session.own_all(HAZARDS, oid_argument(relation)).await.map_err(fail)?;
    rows.iter()
        .map(|row| {
            let (kind, object, place): (String, String, String) =
                (row.try_get(0).map_err(fail)?, row.try_get(1).map_err(fail)?, row.try_get(2).map_err(fail)?);
            let does = match kind.as_str() {
                "c" => "ON DELETE CASCADE",
                "n" => "ON DELETE SET NULL",
                "d" => "ON DELETE SET DEFAULT",
                _ => return Ok(format!("trigger \"{object}\" on {place} fires on DELETE")),
            };
            Ok(format!("foreign key \"{object}\" of {place} is {does}"))
        })
        .collect()
}

/// Whether the table has a unique or exclusion constraint that a batch can violate half-way.
pub(super) async fn other_unique(
    session: &mut Session,
    name: &TableName,
    relation: &Relation,
) -> Result<bool, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("describe {name}"), &error);
    let row = session.own_optional(OTHER_UNIQUE, oid_argument(relation)).await.map_err(fail)?;
    row.map_or(Ok(false), |row| row.try_get(0).map_err(fail))
}

/// The triggers that a row meets on its way into the table.
pub(super) struct WriteTriggers {
    /// PostgreSQL's own, which leaves out updates that change nothing.
    pub(super) leave_unchanged: bool,
    /// Any others.
    pub(super) others: bool,
}

/// Looks for triggers that may change rows on their way into the table, or keep them out.
pub(super) async fn write_triggers(
    session: &mut Session,
    name: &TableName,
    relation: &Relation,
) -> Result<WriteTriggers, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("describe {name}"), &error);
    let row = session.own_optional(WRITE_TRIGGERS, oid_argument(relation)).await.map_err(fail)?;
    let row = row.ok_or_else(|| fail(sqlx::Error::RowNotFound))?;
    Ok(WriteTriggers {
        leave_unchanged: row.try_get("leave_unchanged").map_err(fail)?,
        others: row.try_get("others").map_err(fail)?,
    })
}

/// Triggers on INSERT (`tgtype` 4) or UPDATE (16). One that comes after the row may move it as well.
const WRITE_TRIGGERS: &str = "
SELECT coalesce(bool_or(own), false) AS leave_unchanged, coalesce(bool_or(NOT own), false) AS others
FROM (
    SELECT t.tgfoid = 'suppress_redundant_updates_trigger'::regproc AS own FROM pg_trigger t
    WHERE t.tgrelid IN (SELECT $1::oid UNION SELECT relid FROM pg_partition_tree($1::oid::regclass))
      AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 20 <> 0
) AS triggers";

/// Foreign keys and triggers may hang on the table, on its partitions, or on the table that it is a partition of. Whether a
/// trigger fires depends on `session_replication_role` too: one that may fire counts.
const HAZARDS: &str = "
WITH related AS (
    SELECT $1::oid AS oid
    UNION SELECT relid FROM pg_partition_tree($1::oid::regclass)
    UNION SELECT relid FROM pg_partition_ancestors($1::oid::regclass)
)
SELECT k.confdeltype::text, k.conname::text, k.conrelid::regclass::text
FROM pg_constraint k JOIN related ON related.oid = k.confrelid
WHERE k.contype = 'f' AND k.confdeltype IN ('c', 'n', 'd') AND k.conparentid = 0
UNION ALL
SELECT 't', t.tgname::text, t.tgrelid::regclass::text
FROM pg_trigger t JOIN related ON related.oid = t.tgrelid
WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 8 <> 0
  AND NOT EXISTS (SELECT FROM pg_trigger parent WHERE parent.oid = (to_jsonb(t) ->> 'tgparentid')::oid)
ORDER BY 1, 2, 3";

/// An index on all key columns and more can only be violated where the key is.
const OTHER_UNIQUE: &str = "
SELECT EXISTS (
    SELECT FROM pg_index i
    WHERE i.indrelid IN (SELECT $1::oid UNION SELECT relid FROM pg_partition_tree($1::oid::regclass))
      AND (i.indisunique OR i.indisexclusion) AND NOT i.indisprimary AND i.indimmediate
      AND NOT (i.indisunique AND i.indkey::int2[] @> (
          SELECT p.indkey::int2[] FROM pg_index p WHERE p.indrelid = i.indrelid AND p.indisprimary))
)";
