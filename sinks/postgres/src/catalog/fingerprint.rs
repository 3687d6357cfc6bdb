//! Whether a table is still the one that was described.
//!
//! What a lane knows of a table would go stale in silence: PostgreSQL rounds a value to a column that has become
//! narrower, and a foreign key that was added since cascades. So each unit of work locks its tables against changes of
//! their definition (as its writes do in any case) and compares a fingerprint of the catalog's rows: their transaction
//! ids, which every change of a definition renews and VACUUM and ANALYZE leave alone.

use sink_api::{SinkError, TableName};
use sqlx::{Arguments, AssertSqlSafe, Row, SqlSafeStr, postgres::PgArguments};

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
    row.try_get::<Option<String>, _>(0).map(Option::unwrap_or_default).map_err(fail)
}

/// A foreign key that refers to the table has triggers on it, so `pg_constraint` need not be searched for it. The array
/// is for the planner, which takes what functions return for a thousand rows and would read catalogs whole.
const FINGERPRINT: &str = "
WITH related AS MATERIALIZED (
    SELECT ARRAY(
        SELECT to_regclass($1)::oid
        UNION SELECT relid FROM pg_partition_tree(to_regclass($1))
        UNION SELECT relid FROM pg_partition_ancestors(to_regclass($1))
    ) AS oids
)
SELECT md5(string_agg(line, ' ' ORDER BY line)) FROM (
    SELECT format('c%s %s %s %s %s', c.oid, c.relkind, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity) AS line
    FROM pg_class c WHERE c.oid = ANY ((SELECT oids FROM related)::oid[])
    UNION ALL SELECT format('a%s.%s %s', a.attrelid, a.attnum, a.xmin)
    FROM pg_attribute a WHERE a.attrelid = ANY ((SELECT oids FROM related)::oid[]) AND a.attnum > 0
    UNION ALL SELECT format('d%s %s', d.oid, d.xmin)
    FROM pg_attrdef d WHERE d.adrelid = ANY ((SELECT oids FROM related)::oid[])
    UNION ALL SELECT format('k%s %s', k.oid, k.xmin)
    FROM pg_constraint k WHERE k.conrelid = ANY ((SELECT oids FROM related)::oid[])
    UNION ALL SELECT format('t%s %s', t.oid, t.xmin)
    FROM pg_trigger t WHERE t.tgrelid = ANY ((SELECT oids FROM related)::oid[])
    UNION ALL SELECT format('r%s %s', r.oid, r.xmin)
    FROM pg_rewrite r WHERE r.ev_class = ANY ((SELECT oids FROM related)::oid[])
    UNION ALL SELECT format('i%s %s', i.indexrelid, i.xmin)
    FROM pg_index i WHERE i.indrelid = ANY ((SELECT oids FROM related)::oid[])
) AS lines";
