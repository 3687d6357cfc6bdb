//! One connection, bounded in time.
//!
//! sqlx has neither a connect timeout nor TCP keepalive, and a server that vanished from the network answers nothing.
//! So every statement has two limits: the server's own, set at the start of each transaction with `SET LOCAL` (so that
//! it also holds behind a pooler in transaction mode), and a somewhat longer one here. When the second one strikes, the
//! connection is of no more use: closing it makes the server roll back.

use std::{io, str::FromStr, time::Duration};

use sink_api::SinkError;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, SqlSafeStr, SqlStr,
    postgres::{PgArguments, PgConnectOptions, PgQueryResult, PgRow},
};

use crate::{config::PostgresConfig, errors::classify};

/// What the client waits beyond the server's own limit: the server speaks first where it still can.
const GRACE: Duration = Duration::from_secs(5);

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Connector {
    options: PgConnectOptions,
    connect_timeout: Duration,
    limit: Duration,
    keep_prepared: bool,
    begin: SqlStr,
}

impl Connector {
    pub(crate) fn new(config: &PostgresConfig) -> Result<Connector, SinkError> {
        let options = PgConnectOptions::from_str(&config.url)
            .map_err(|error| classify("read the sink's URL", &error))?
            .application_name(&config.application_name)
            .disable_statement_logging();
        Ok(Connector {
            options,
            connect_timeout: config.connect_timeout,
            limit: config.statement_timeout + GRACE,
            keep_prepared: !config.transaction_pooler,
            begin: AssertSqlSafe(begin_script(config)).into_sql_str(),
        })
    }

    /// Returns `host:port/database`, to be shown.
    pub(crate) fn place(&self) -> String {
        let database = self.options.get_database().unwrap_or_default();
        format!("{}:{}/{database}", self.options.get_host(), self.options.get_port())
    }

    pub(crate) async fn open(&self) -> Result<Session, SinkError> {
        let connecting = within(self.connect_timeout, PgConnection::connect_with(&self.options));
        let connection = connecting.await.map_err(|error| classify(&format!("connect to {}", self.place()), &error))?;
        Ok(Session { connection, limit: self.limit, keep_prepared: self.keep_prepared, begin: self.begin.clone() })
    }
}

/// The statements that begin a transaction: the settings on which the meaning of all others rests.
fn begin_script(config: &PostgresConfig) -> String {
    let milliseconds = |limit: Duration| limit.as_millis().max(1);
    [
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".to_owned(),
        format!("SET LOCAL statement_timeout = {}", milliseconds(config.statement_timeout)),
        format!("SET LOCAL lock_timeout = {}", milliseconds(config.lock_timeout)),
        format!("SET LOCAL idle_in_transaction_session_timeout = {}", milliseconds(config.idle_in_transaction_timeout)),
        // Row security that hides rows is an error, not an answer.
        "SET LOCAL row_security = off".to_owned(),
        // Compiling takes longer than any of our statements.
        "SET LOCAL jit = off".to_owned(),
        // Every statement of ours finds its rows by a key, and a plan that was made while a table was small is kept.
        "SET LOCAL enable_seqscan = off".to_owned(),
        // What is kept prepared are lookups by key: one plan fits all. The others are planned each time in any case.
        "SET LOCAL plan_cache_mode = auto".to_owned(),
        // The text forms in which values travel and removed rows are kept.
        "SET LOCAL \"TimeZone\" = 'UTC'".to_owned(),
        "SET LOCAL \"DateStyle\" = 'ISO, YMD'".to_owned(),
        "SET LOCAL \"IntervalStyle\" = 'postgres'".to_owned(),
        "SET LOCAL bytea_output = 'hex'".to_owned(),
        "SET LOCAL array_nulls = on".to_owned(),
        "SET LOCAL extra_float_digits = 1".to_owned(),
        "SET LOCAL xmloption = 'content'".to_owned(),
    ]
    .join(";")
}

/// Waits for a call to the server, but not for ever.
async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result,
        Err(_) => {
            let message = format!("no answer within {} s", limit.as_secs());
            Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, message)))
        }
    }
}

/// A connection. After an error the caller rolls back; a connection that cannot even do that is dropped.
pub(crate) struct Session {
    connection: PgConnection,
    limit: Duration,
    keep_prepared: bool,
    begin: SqlStr,
}

impl Session {
    /// Begins a transaction with the sink's settings.
    pub(crate) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        let begin = self.begin.clone();
        self.script(begin).await
    }

    /// Checks what was deferred and commits.
    ///
    /// sqlx reports success for the COMMIT of a transaction that has failed, which the server answers with ROLLBACK.
    /// `SET CONSTRAINTS` fails in such a transaction, and the script ends there.
    pub(crate) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        self.script("SET CONSTRAINTS ALL IMMEDIATE; COMMIT".into_sql_str()).await
    }

    /// Rolls back. An error means that the connection is lost, and with it the transaction.
    pub(crate) async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        within(GRACE, self.connection.execute(sqlx::raw_sql("ROLLBACK"))).await.map(drop)
    }

    /// Whether the server still answers.
    pub(crate) async fn is_alive(&mut self) -> bool {
        within(GRACE, self.connection.execute(sqlx::raw_sql("SELECT 1"))).await.is_ok()
    }

    /// Runs statements without parameters, in one message.
    pub(crate) async fn script(&mut self, sql: SqlStr) -> Result<(), sqlx::Error> {
        within(self.limit, self.connection.execute(sqlx::raw_sql(sql))).await.map(drop)
    }

    /// Runs a statement on a table of the user's. It is planned afresh, for the very lists that it carries.
    pub(crate) async fn execute(&mut self, sql: &SqlStr, arguments: PgArguments) -> Result<u64, sqlx::Error> {
        let query = sqlx::query_with(sql.clone(), arguments).persistent(false);
        within(self.limit, self.connection.execute(query)).await.map(|done: PgQueryResult| done.rows_affected())
    }

    /// Runs a statement on a table of the user's that comes often and whose plan does not depend on what it carries; it
    /// is kept prepared, unless a pooler forbids it. Its result is cast to types of ours: PostgreSQL refuses a prepared
    /// statement whose result has another type than when it was prepared.
    pub(crate) async fn execute_kept(&mut self, sql: &SqlStr, arguments: PgArguments) -> Result<u64, sqlx::Error> {
        let query = sqlx::query_with(sql.clone(), arguments).persistent(self.keep_prepared);
        within(self.limit, self.connection.execute(query)).await.map(|done: PgQueryResult| done.rows_affected())
    }

    /// As `execute_kept`, for the one row.
    pub(crate) async fn fetch_one_kept(&mut self, sql: &SqlStr, arguments: PgArguments) -> Result<PgRow, sqlx::Error> {
        let query = sqlx::query_with(sql.clone(), arguments).persistent(self.keep_prepared);
        within(self.limit, self.connection.fetch_one(query)).await
    }

    /// As `execute`, for the rows.
    pub(crate) async fn fetch_all(&mut self, sql: &SqlStr, arguments: PgArguments) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = sqlx::query_with(sql.clone(), arguments).persistent(false);
        within(self.limit, self.connection.fetch_all(query)).await
    }

    /// As `execute`, for the one row.
    pub(crate) async fn fetch_one(&mut self, sql: &SqlStr, arguments: PgArguments) -> Result<PgRow, sqlx::Error> {
        let query = sqlx::query_with(sql.clone(), arguments).persistent(false);
        within(self.limit, self.connection.fetch_one(query)).await
    }

    /// Runs a statement on the sink's own tables; it is kept prepared, unless a pooler forbids it.
    pub(crate) async fn own(&mut self, sql: &'static str, arguments: PgArguments) -> Result<u64, sqlx::Error> {
        let query = sqlx::query_with(sql, arguments).persistent(self.keep_prepared);
        within(self.limit, self.connection.execute(query)).await.map(|done: PgQueryResult| done.rows_affected())
    }

    /// As `own`, for the row, if there is one.
    pub(crate) async fn own_optional(
        &mut self,
        sql: &'static str,
        arguments: PgArguments,
    ) -> Result<Option<PgRow>, sqlx::Error> {
        let query = sqlx::query_with(sql, arguments).persistent(self.keep_prepared);
        within(self.limit, self.connection.fetch_optional(query)).await
    }

    /// As `own`, for all rows.
    pub(crate) async fn own_all(
        &mut self,
        sql: &'static str,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = sqlx::query_with(sql, arguments).persistent(self.keep_prepared);
        within(self.limit, self.connection.fetch_all(query)).await
    }
}
