//! Plain SQL on the source or the sink.

use anyhow::{Context, Result};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Row};

/// One connection to a PostgreSQL of the stack.
///
/// Values are taken and given as PostgreSQL's own text, so that a test compares what `psql` would show.
#[derive(Debug)]
pub struct Database {
    /// For what the methods here do not do.
    pub connection: PgConnection,
}

impl Database {
    /// Connects to `postgres://user@host:port/database`.
    pub async fn connect(url: &str) -> Result<Database> {
        let connection = PgConnection::connect(url).await.with_context(|| format!("connect to {url}"))?;
        Ok(Database { connection })
    }

    /// Runs statements separated by semicolons, as one transaction unless they say otherwise.
    pub async fn run(&mut self, sql: impl Into<String>) -> Result<()> {
        let sql = sql.into();
        sqlx::raw_sql(AssertSqlSafe(sql.clone()))
            .execute(&mut self.connection)
            .await
            .with_context(|| format!("run {sql}"))?;
        Ok(())
    }

    /// Returns the first column of every row as text; the query casts it (`::text`).
    pub async fn column(&mut self, sql: impl Into<String>) -> Result<Vec<Option<String>>> {
        let rows = self.rows(sql).await?;
        rows.iter().map(|row| row.try_get(0).context("read a text column")).collect()
    }

    /// Returns the first column of the first row as text; `None` for NULL and when there is no row.
    pub async fn value(&mut self, sql: impl Into<String>) -> Result<Option<String>> {
        Ok(self.column(sql).await?.into_iter().next().flatten())
    }

    /// Returns a `count(*)` or another bigint.
    pub async fn number(&mut self, sql: impl Into<String>) -> Result<i64> {
        let rows = self.rows(sql).await?;
        rows.first().context("no row")?.try_get(0).context("read a bigint column")
    }

    async fn rows(&mut self, sql: impl Into<String>) -> Result<Vec<PgRow>> {
        let sql = sql.into();
        // Not as a prepared statement: tests change tables under their own connections.
        sqlx::query(AssertSqlSafe(sql.clone()))
            .persistent(false)
            .fetch_all(&mut self.connection)
            .await
            .with_context(|| format!("run {sql}"))
    }
}

/// Quotes a name for SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes `schema.table`; the first dot divides.
pub(crate) fn quoted_table(name: &str) -> String {
    match name.split_once('.') {
        Some((schema, table)) => format!("{}.{}", quoted(schema), quoted(table)),
        None => quoted(name),
    }
}
