//! The sink's own schema.
//!
//! ```text
//! frontier       one row a lane: who may write, and where it stands
//! stream         which stream feeds which table
//! statement      every statement of absence and its verdict
//! orphan         the keys of statements that were reported or held
//! removed        copies of the rows that statements removed
//! removal_count  how many rows were removed, by hour: outlives the copies
//! ```

use sink_api::{ErrorClass, SinkError};
use sqlx::{AssertSqlSafe, Row, SqlSafeStr, postgres::PgArguments};

use crate::{
    connect::Session,
    errors::{classify, code},
    identifier::quote_identifier,
};

/// The version of the schema that this code reads and writes.
const VERSION: i32 = 3;

/// Taken while the schema is made, so that workers that start together do not make it twice. An arbitrary number.
const ADVISORY_LOCK: i64 = 0x7369_6e6b_2d72_6570;

const TABLES: &str = r#"CREATE SCHEMA IF NOT EXISTS sink_repair;
CREATE TABLE IF NOT EXISTS sink_repair.version (
    version integer NOT NULL
);
CREATE TABLE IF NOT EXISTS sink_repair.frontier (
    name text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    topic_id uuid NOT NULL,
    epoch bigint NOT NULL,
    next_offset bigint,
    memory_offset bigint,
    highest_xid numeric(20),
    unknown_past boolean,
    partition_count integer,
    owner text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, topic, partition)
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS sink_repair.stream (
    table_schema text NOT NULL,
    table_name text NOT NULL,
    connector text NOT NULL,
    database text NOT NULL,
    source text NOT NULL,
    topic text NOT NULL,
    topic_id uuid NOT NULL,
    claimed_by text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    released_at timestamptz,
    PRIMARY KEY (table_schema, table_name, connector, database, source, topic_id, claimed_by)
);
CREATE TABLE IF NOT EXISTS sink_repair.statement (
    name text NOT NULL,
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    read_id text NOT NULL,
    topic text NOT NULL,
    position bigint NOT NULL,
    kind text NOT NULL,
    table_schema text,
    table_name text,
    source_table text NOT NULL,
    extent text NOT NULL,
    verdict text NOT NULL,
    rule text,
    reason text,
    again boolean NOT NULL,
    orphans bigint NOT NULL,
    removed bigint NOT NULL,
    missing bigint NOT NULL,
    spared bigint NOT NULL,
    in_range bigint NOT NULL,
    confirmed bigint,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, topic_id, partition, read_id)
);
CREATE INDEX IF NOT EXISTS statement_recorded_at ON sink_repair.statement (recorded_at);
CREATE TABLE IF NOT EXISTS sink_repair.orphan (
    name text NOT NULL,
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    read_id text NOT NULL,
    encoded bytea NOT NULL,
    key jsonb,
    PRIMARY KEY (name, topic_id, partition, read_id, encoded)
);
CREATE TABLE IF NOT EXISTS sink_repair.removed (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_schema text NOT NULL,
    table_name text NOT NULL,
    row_text jsonb NOT NULL,
    read_id text NOT NULL,
    reason text NOT NULL,
    name text NOT NULL,
    topic text NOT NULL,
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    position bigint NOT NULL,
    removed_at timestamptz NOT NULL DEFAULT now(),
    restored_at timestamptz
);
CREATE INDEX IF NOT EXISTS removed_read_id ON sink_repair.removed (read_id);
CREATE INDEX IF NOT EXISTS removed_table ON sink_repair.removed (table_schema, table_name, removed_at);
CREATE INDEX IF NOT EXISTS removed_removed_at ON sink_repair.removed (removed_at);
CREATE TABLE IF NOT EXISTS sink_repair.removal_count (
    table_schema text NOT NULL,
    table_name text NOT NULL,
    name text NOT NULL,
    topic_id uuid NOT NULL,
    partition integer NOT NULL,
    hour timestamptz NOT NULL,
    removed bigint NOT NULL,
    PRIMARY KEY (table_schema, table_name, hour, name, topic_id, partition)
);
"#;

/// Returns the SQL that an administrator runs for a role that may not create the schema itself.
pub fn schema_sql(role: &str) -> String {
    let role = quote_identifier(role);
    format!(
        "{TABLES}INSERT INTO sink_repair.version SELECT {VERSION} WHERE NOT EXISTS (SELECT FROM sink_repair.version);\n\
         GRANT USAGE ON SCHEMA sink_repair TO {role};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA sink_repair TO {role};\n"
    )
}

/// Makes the schema where it is not there, and checks its version and the role's rights.
pub(crate) async fn prepare(session: &mut Session) -> Result<(), SinkError> {
    let doing = "prepare schema sink_repair";
    let fail = |error: sqlx::Error| classify(doing, &error);
    if !exists(session).await? {
        create(session).await?;
    }
    session.begin().await.map_err(fail)?;
    let row = session
        .own_optional(
            "SELECT
                 current_user::text,
                 (SELECT max(version) FROM sink_repair.version),
                 (SELECT bool_and(has_table_privilege(c.oid, 'SELECT')
                              AND has_table_privilege(c.oid, 'INSERT')
                              AND has_table_privilege(c.oid, 'UPDATE')
                              AND has_table_privilege(c.oid, 'DELETE'))
                  FROM pg_class c
                  WHERE c.relnamespace = 'sink_repair'::regnamespace AND c.relkind = 'r' AND c.relname <> 'version')",
            PgArguments::default(),
        )
        .await;
    let row = match row {
        Err(error) if matches!(code(&error), Some("42501" | "42P01")) => return Err(not_ready(session, doing).await),
        row => row.map_err(fail)?.ok_or_else(|| classify(doing, &sqlx::Error::RowNotFound))?,
    };
    let (version, granted): (Option<i32>, Option<bool>) =
        (row.try_get(1).map_err(fail)?, row.try_get(2).map_err(fail)?);
    session.commit().await.map_err(fail)?;
    match version {
        Some(VERSION) if granted == Some(true) => Ok(()),
        Some(VERSION) => Err(not_ready(session, doing).await),
        found => Err(SinkError::new(
            ErrorClass::Configuration,
            format!("{doing}: the schema has version {}, this program needs {VERSION}", found.unwrap_or_default()),
        )
        .hint("run the program's release that made the schema, or the later one of the two")),
    }
}

async fn exists(session: &mut Session) -> Result<bool, SinkError> {
    let fail = |error: sqlx::Error| classify("look for schema sink_repair", &error);
    session.begin().await.map_err(fail)?;
    let row = session
        .own_optional("SELECT to_regclass('sink_repair.removal_count') IS NOT NULL", PgArguments::default())
        .await;
    let exists = match row {
        // The schema is there and closed to this role.
        Err(error) if code(&error) == Some("42501") => {
            return Err(not_ready(session, "look for schema sink_repair").await);
        }
        row => row.map_err(fail)?.is_some_and(|row| row.get(0)),
    };
    session.commit().await.map_err(fail)?;
    Ok(exists)
}

async fn create(session: &mut Session) -> Result<(), SinkError> {
    let doing = "create schema sink_repair";
    let script = format!(
        "SELECT pg_advisory_xact_lock({ADVISORY_LOCK});\n{TABLES}\
         INSERT INTO sink_repair.version SELECT {VERSION} WHERE NOT EXISTS (SELECT FROM sink_repair.version)"
    );
    session.begin().await.map_err(|error| classify(doing, &error))?;
    match session.script(AssertSqlSafe(script).into_sql_str()).await {
        Ok(()) => session.commit().await.map_err(|error| classify(doing, &error)),
        Err(error) if code(&error) == Some("42501") => Err(not_ready(session, doing).await),
        Err(error) => Err(classify(doing, &error)),
    }
}

/// Makes the error whose hint is what to run.
async fn not_ready(session: &mut Session, doing: &str) -> SinkError {
    // Outside the failed transaction the role's name can still be asked for.
    let _ = session.rollback().await;
    let role = match session.begin().await {
        Ok(()) => session
            .own_optional("SELECT current_user::text", PgArguments::default())
            .await
            .ok()
            .flatten()
            .and_then(|row| row.try_get::<String, _>(0).ok()),
        Err(_) => None,
    };
    let _ = session.rollback().await;
    let role = role.unwrap_or_else(|| "the sink's role".to_owned());
    SinkError::new(ErrorClass::Configuration, format!("{doing}: role {} may not", quote_identifier(&role)))
        .code("42501")
        .hint(format!("let a role that may create schemas run:\n{}", schema_sql(&role)))
}
