//! Whether a table is still the one that was described.
//!
//! What a lane knows of a table would go stale in silence: PostgreSQL rounds a value to a column that has become
//! narrower, and a foreign key that was added since cascades. So each unit of work locks its tables against changes of
//! their definition (as its writes do in any case) and compares a fingerprint of the catalog's rows: their transaction
//! ids, which every change of a definition renews and VACUUM and ANALYZE leave alone.

use sink_api::{SinkError, TableName};
use sqlx::{Arguments, AssertSqlSafe, SqlSafeStr, postgres::PgArguments};

use crate::{connect::Session, errors::classify, identifier::quote_table};

/// Waits for changes of the table's definition that are under way, and keeps others out until the transaction ends.
pub(crate) async fn lock(session: &mut Session, name: &TableName) -> Result<(), SinkError> {
    let sql = AssertSqlSafe(format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", quote_table(name))).into_sql_str();
    session.script(sql).await.map_err(|error| classify(&format!("lock {name}"), &error))
}

/// Returns the fingerprint of a table's definition; of its partitions' and its ancestors' as well.
pub(crate) async fn read(session: &mut Session, name: &TableName) -> Result<String, SinkError> {
    let fail = |error: sqlx::Error| classify(&format!("look at the definition of {name}"), &error);
    let mut arguments = PgArguments::default();
    let _ = arguments.add(quote_table(name));
    let row = session.own_optional(FINGERPRINT, arguments).await.map_err(fail)?;
    let row = row.ok_or_else(|| fail(sqlx::Error::RowNotFound))?;
    sqlx::Row::try_get::<Option<String>, _>(&row, 0).map(Option::unwrap_or_default).map_err(fail)
}

/// A foreign key that refers to the table has triggers on it, so `pg_constraint` need not be searched for it.
const FINGERPRINT: &str = "
WITH related AS (
    SELECT to_regclass($1)::oid AS oid
    UNION SELECT relid FROM pg_partition_tree(to_regclass($1))
    UNION SELECT relid FROM pg_partition_ancestors(to_regclass($1))
)
SELECT md5(string_agg(line, ' ' ORDER BY line)) FROM (
    SELECT format('c%s %s %s %s %s', c.oid, c.relkind, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity) AS line
    FROM related JOIN pg_class c USING (oid)
    UNION ALL SELECT format('a%s.%s %s', a.attrelid, a.attnum, a.xmin)
    FROM related JOIN pg_attribute a ON a.attrelid = related.oid WHERE a.attnum > 0
    UNION ALL SELECT format('d%s %s', d.oid, d.xmin) FROM related JOIN pg_attrdef d ON d.adrelid = related.oid
    UNION ALL SELECT format('k%s %s', k.oid, k.xmin) FROM related JOIN pg_constraint k ON k.conrelid = related.oid
    UNION ALL SELECT format('t%s %s', t.oid, t.xmin) FROM related JOIN pg_trigger t ON t.tgrelid = related.oid
    UNION ALL SELECT format('r%s %s', r.oid, r.xmin) FROM related JOIN pg_rewrite r ON r.ev_class = related.oid
    UNION ALL SELECT format('i%s %s', i.indexrelid, i.xmin) FROM related JOIN pg_index i ON i.indrelid = related.oid
) AS lines";
