//! The table itself: its kind, its rights, its primary key constraint.

use sink_api::{ErrorClass, SinkError, TableName};
use sqlx::{Arguments, Row, postgres::PgArguments};

use crate::{
    connect::Session,
    errors::classify,
    identifier::{quote_identifier, quote_literal, quote_table},
};

/// What later questions about the table need.
pub(super) struct Relation {
    pub(super) oid: i64,
    /// The primary key constraint's name as SQL text.
    pub(super) key_constraint: String,
    pub(super) partitioned: bool,
    /// Whether the database's encoding is UTF8.
    pub(super) utf8: bool,
}

pub(super) async fn read(session: &mut Session, name: &TableName) -> Result<Relation, SinkError> {
    let doing = format!("describe {name}");
    let mut arguments = PgArguments::default();
    let _ = arguments.add(&name.schema);
    let _ = arguments.add(&name.name);
    let row = session.own_optional(RELATION, arguments).await.map_err(|error| classify(&doing, &error))?.ok_or_else(
        || {
            refuse(
                name,
                "is not there",
                "create it at the sink, or map the source's table to another one with --sink-table",
            )
            .code("42P01")
        },
    )?;
    let text = |column: &str| row.try_get::<Option<String>, _>(column).map(Option::unwrap_or_default);
    let flag = |column: &str| row.try_get::<Option<bool>, _>(column).map(Option::unwrap_or_default);
    let fail = |error: sqlx::Error| classify(&doing, &error);

    let sql = quote_table(name);
    let kind = text("kind").map_err(fail)?;
    let reason = match kind.as_str() {
        "r" | "p" => None,
        "v" => Some("is a view"),
        "m" => Some("is a materialized view"),
        "f" => Some("is a foreign table, whose server does not take part in the sink's transaction as a whole"),
        _ => Some("is not a table"),
    };
    if let Some(reason) = reason {
        return Err(refuse(name, reason, "name the table behind it with --sink-table"));
    }
    if name.schema == "sink_repair" || name.schema == "pg_catalog" || name.schema == "information_schema" {
        return Err(refuse(name, "belongs to the system", "name another table with --sink-table"));
    }
    match text("persistence").map_err(fail)?.as_str() {
        "p" => {}
        "u" => {
            return Err(refuse(
                name,
                "is unlogged: after a crash it would be empty, and the frontier would not know",
                &format!("ALTER TABLE {sql} SET LOGGED"),
            ));
        }
        _ => return Err(refuse(name, "is a temporary table", "create it as a permanent one")),
    }
    if let Some(partition) = row.try_get::<Option<String>, _>("odd_partition").map_err(fail)? {
        return Err(refuse(
            name,
            &format!("has a partition {partition} that is foreign or unlogged"),
            "detach it, or make it an ordinary table",
        ));
    }
    if flag("has_children").map_err(fail)? {
        return Err(refuse(
            name,
            "has tables that inherit from it: a key could be in several of them",
            "use declarative partitioning instead of inheritance",
        ));
    }
    if let Some(rule) = row.try_get::<Option<String>, _>("rule").map_err(fail)? {
        return Err(refuse(
            name,
            &format!("has a rule \"{rule}\", which rewrites what is written to it"),
            &format!("DROP RULE {} ON {sql}, and use a trigger", quote_identifier(&rule)),
        ));
    }
    if flag("row_security").map_err(fail)? {
        let role = text("role").map_err(fail)?;
        return Err(refuse(
            name,
            "has row security that applies to the sink's role: rows that it hides would count as missing",
            &format!("ALTER ROLE {} BYPASSRLS", quote_identifier(&role)),
        ));
    }
    if !flag("granted").map_err(fail)? {
        let role = text("role").map_err(fail)?;
        return Err(refuse(
            name,
            "may not be read and written by the sink's role",
            &format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {sql} TO {}", quote_identifier(&role)),
        )
        .code("42501"));
    }
    let Some(constraint) = row.try_get::<Option<String>, _>("key_constraint").map_err(fail)? else {
        return Err(refuse(
            name,
            "has no primary key",
            &format!("ALTER TABLE {sql} ADD PRIMARY KEY (...), with the source's key columns"),
        ));
    };
    let constraint_sql = quote_identifier(&constraint);
    if flag("deferrable").map_err(fail)? {
        return Err(refuse(
            name,
            &format!("has a primary key {constraint_sql} that is deferrable: INSERT ... ON CONFLICT cannot use it"),
            &format!("ALTER TABLE {sql} DROP CONSTRAINT {constraint_sql}, ADD PRIMARY KEY (...) without DEFERRABLE"),
        ));
    }
    if !flag("key_valid").map_err(fail)? {
        return Err(refuse(
            name,
            &format!("has a primary key {constraint_sql} whose index is not valid"),
            &format!("REINDEX TABLE {sql}, or attach the missing partitions' indexes"),
        ));
    }
    Ok(Relation {
        oid: row.try_get("oid").map_err(fail)?,
        key_constraint: constraint_sql,
        partitioned: kind == "p",
        utf8: text("encoding").map_err(fail)? == "UTF8",
    })
}

/// Makes the error of a table that cannot be a sink table.
pub(super) fn refuse(name: &TableName, reason: &str, hint: &str) -> SinkError {
    SinkError::new(ErrorClass::Configuration, format!("describe {name}: the table {reason}")).hint(hint)
}

/// Returns an argument list with a table's OID.
pub(super) fn oid_argument(relation: &Relation) -> PgArguments {
    let mut arguments = PgArguments::default();
    let _ = arguments.add(relation.oid);
    arguments
}

/// Returns SQL that an operator can run to see a table's columns, for hints.
pub(super) fn regclass(name: &TableName) -> String {
    format!("{}::regclass", quote_literal(&quote_table(name)))
}

const RELATION: &str = "
SELECT
    c.oid::int8 AS oid,
    c.relkind::text AS kind,
    c.relpersistence::text AS persistence,
    current_user::text AS role,
    current_setting('server_encoding') AS encoding,
    row_security_active(c.oid) AS row_security,
    has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
        AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE') AS granted,
    c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid) AS has_children,
    (SELECT min(r.rulename::text) FROM pg_rewrite r
     WHERE r.ev_class = c.oid AND r.rulename <> '_RETURN' AND r.ev_enabled <> 'D') AS rule,
    (SELECT min(leaf.relname::text) FROM pg_partition_tree(c.oid) tree JOIN pg_class leaf ON leaf.oid = tree.relid
     WHERE c.relkind = 'p' AND (leaf.relkind NOT IN ('r', 'p') OR leaf.relpersistence <> 'p')) AS odd_partition,
    k.conname::text AS key_constraint,
    k.condeferrable AS deferrable,
    i.indisvalid AS key_valid
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
LEFT JOIN pg_index i ON i.indexrelid = k.conindid
WHERE n.nspname = $1 AND c.relname = $2";
