//! What the sink needs to know to connect.

use std::time::Duration;

/// How to reach the sink and how patient to be with it.
#[derive(Clone)]
pub struct PostgresConfig {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=...`; what it does not say comes from the `PG*` variables.
    pub url: String,
    /// How the connections call themselves in `pg_stat_activity`.
    pub application_name: String,
    /// Who holds a lane, as the frontier shows it to operators and to a worker that lost it: `host/pid`.
    pub owner: String,
    /// The server's limit on one statement.
    pub statement_timeout: Duration,
    /// The server's limit on waiting for a lock.
    pub lock_timeout: Duration,
    /// The server's limit on the silence inside a transaction. It bounds how long a worker that is stopped in the
    /// middle of a unit of work keeps its successor waiting.
    pub idle_in_transaction_timeout: Duration,
    /// The limit on connecting.
    pub connect_timeout: Duration,
    /// Whether a pooler in transaction mode stands between: then no statement is kept prepared.
    pub transaction_pooler: bool,
}

impl PostgresConfig {
    /// Makes a configuration for `url` with the default limits.
    pub fn new(url: impl Into<String>) -> PostgresConfig {
        PostgresConfig {
            url: url.into(),
            application_name: "sink-repair".to_owned(),
            owner: format!("pid {}", std::process::id()),
            // A page of keys or a batch takes milliseconds; a minute leaves room for a sink that is badly loaded.
            statement_timeout: Duration::from_secs(60),
            // Longer than the idle limit, so that a successor outlasts a stopped owner's row locks in one try.
            lock_timeout: Duration::from_secs(20),
            // Between two statements of a unit the worker only computes: ten seconds of silence are a worker that hangs.
            idle_in_transaction_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            transaction_pooler: false,
        }
    }
}

impl std::fmt::Debug for PostgresConfig {
    /// Leaves the URL out: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("application_name", &self.application_name)
            .field("owner", &self.owner)
            .field("statement_timeout", &self.statement_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .finish_non_exhaustive()
    }
}
