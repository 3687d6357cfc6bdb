//! Source tables, their publication and a connector that streams them, in databases of their own.
//!
//! A database each, since a connector sees the logical messages of all its database: markers of one test would stand in
//! the topics of all others.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::markers::{Bracket, Post};
use crate::postgres::quoted_table;
use crate::{Database, Stack, kafka, unique, until};

/// The schema of every pipeline's tables.
const SCHEMA: &str = "inventory";

/// How logical messages reach the table's topic (`tests/stack/connectors/route-*.properties`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// They are not published.
    None,
    /// As envelopes, to the topic of the first table.
    Envelope,
    /// Rows of all tables and messages go to one topic, `<name>.all`.
    One,
    /// Each message names its topic, partition, key and headers.
    Outbox,
}

impl Route {
    fn name(self) -> &'static str {
        match self {
            Route::None => "none",
            Route::Envelope => "envelope",
            Route::One => "one",
            Route::Outbox => "outbox",
        }
    }
}

/// What to make; see [`Pipeline::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    stack: Stack,
    name: String,
    prepare: Vec<String>,
    tables: Vec<(String, String)>,
    seed: Vec<String>,
    route: Route,
    schemas: bool,
    partitions: u32,
    properties: Vec<String>,
}

impl Builder {
    /// Runs SQL at the source and at the sink before the tables are made: types and extensions that they need. The
    /// schema is first in the search path.
    pub fn prepare(mut self, sql: &str) -> Builder {
        self.prepare.push(sql.to_owned());
        self
    }

    /// Adds a source table in schema `inventory`: its name and what stands between the parentheses of CREATE TABLE.
    pub fn table(mut self, name: &str, columns: &str) -> Builder {
        self.tables.push((name.to_owned(), columns.to_owned()));
        self
    }

    /// Runs SQL at the source when the tables are there and the connector is not: its rows come by the snapshot.
    /// The schema is first in the search path.
    pub fn seed(mut self, sql: &str) -> Builder {
        self.seed.push(sql.to_owned());
        self
    }

    /// Says how markers travel (default: [`Route::Envelope`]).
    pub fn route(mut self, route: Route) -> Builder {
        self.route = route;
        self
    }

    /// Says whether JSON carries its schema (default: it does not).
    pub fn schemas(mut self, on: bool) -> Builder {
        self.schemas = on;
        self
    }

    /// Says how many partitions each topic has (default: one).
    pub fn partitions(mut self, partitions: u32) -> Builder {
        self.partitions = partitions;
        self
    }

    /// Sets a property of the connector, over all others.
    pub fn property(mut self, name: &str, value: &str) -> Builder {
        self.properties.push(format!("{name}={value}"));
        self
    }

    /// Makes all of it and returns when the connector streams.
    pub async fn start(self) -> Result<Pipeline> {
        ensure!(!self.tables.is_empty(), "a pipeline without a table");
        // Made first: from here on, whatever fails, dropping it cleans up.
        let pipeline = Pipeline {
            markers: match self.route {
                Route::Outbox => format!("outbox-{}", self.name),
                _ => "sink-repair".to_owned(),
            },
            tables: self.tables.iter().map(|(table, _)| table.clone()).collect(),
            route: self.route,
            stack: self.stack.clone(),
            name: self.name.clone(),
        };
        self.make_source(&pipeline).await?;
        kafka::create_topic(&self.stack, &pipeline.signal_topic(), 1, &[]).await?;
        self.put(&pipeline).await?;
        self.stack.connector(&["running", &self.name]).await?;
        pipeline.streams().await?;
        Ok(pipeline)
    }

    async fn make_source(&self, pipeline: &Pipeline) -> Result<()> {
        let name = &self.name;
        self.stack.source().await?.run(format!("CREATE DATABASE {name}")).await?;
        self.stack.sink().await?.run(format!("CREATE DATABASE {name}")).await?;
        for database in [&mut pipeline.source().await?, &mut pipeline.sink().await?] {
            database.run(format!("CREATE SCHEMA {SCHEMA}")).await?;
            // For whoever connects from here on.
            database.run(format!("ALTER DATABASE {name} SET search_path = {SCHEMA}, public")).await?;
        }
        for database in [&mut pipeline.source().await?, &mut pipeline.sink().await?] {
            for sql in &self.prepare {
                database.run(sql).await?;
            }
        }
        let mut source = pipeline.source().await?;
        for (table, columns) in &self.tables {
            source.run(format!("CREATE TABLE {} ({columns})", quoted_table(&in_schema(table)))).await?;
        }
        for sql in &self.seed {
            source.run(sql).await?;
        }
        let tables: Vec<_> = self.tables.iter().map(|(table, _)| quoted_table(&in_schema(table))).collect();
        source.run(format!("CREATE PUBLICATION {name} FOR TABLE {}", tables.join(", "))).await
    }

    async fn put(&self, pipeline: &Pipeline) -> Result<()> {
        let tables: Vec<_> = self.tables.iter().map(|(table, _)| format!("{SCHEMA}.{table}")).collect();
        let mut arguments = vec![
            "put".to_owned(),
            self.name.clone(),
            "source".to_owned(),
            format!("TABLES={}", tables.join(",")),
            format!("DATABASE={}", self.name),
            format!("ROUTE={}", self.route.name()),
            format!("TOPIC={}", pipeline.topic(&self.tables[0].0)),
            format!("MARKERS={}", pipeline.markers),
            format!("SCHEMAS={}", self.schemas),
            format!("PARTITIONS={}", self.partitions),
        ];
        arguments.extend(self.properties.iter().cloned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.stack.connector(&arguments).await.map(drop)
    }
}

/// A running pipeline. Dropping it deletes the connector, its slot and its two databases; topics stay until the stack
/// goes.
#[derive(Debug)]
pub struct Pipeline {
    /// Its name: also the connector's, the topic prefix, the slot, the publication and the database, at the source and
    /// at the sink.
    pub name: String,
    /// The prefix of the logical messages that the connector publishes.
    pub markers: String,
    tables: Vec<String>,
    route: Route,
    stack: Stack,
}

impl Pipeline {
    /// Begins one whose name starts with `stem` (small letters, digits, underscores).
    pub fn builder(stack: &Stack, stem: &str) -> Builder {
        Builder {
            stack: stack.clone(),
            name: unique(stem),
            prepare: Vec::new(),
            tables: Vec::new(),
            seed: Vec::new(),
            route: Route::Envelope,
            schemas: false,
            partitions: 1,
            properties: Vec::new(),
        }
    }

    /// Returns the topic of a table's changes.
    pub fn topic(&self, table: &str) -> String {
        match self.route {
            Route::One => format!("{}.all", self.name),
            // Debezium writes `_` for what no topic's name may hold.
            _ => format!("{}.{SCHEMA}.{table}", self.name)
                .replace(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c), "_"),
        }
    }

    /// Returns `inventory.<table>`, as the source and markers name it.
    pub fn table(&self, table: &str) -> String {
        format!("{SCHEMA}.{table}")
    }

    /// Returns the connector's signal topic; the key of a signal is the pipeline's name.
    pub fn signal_topic(&self) -> String {
        format!("{}-signal", self.name)
    }

    /// Returns the source database as superuser, `postgres://...`.
    pub fn source_url(&self) -> String {
        database_of(&self.stack.source, &self.name)
    }

    /// Returns the sink database as superuser, `postgres://...`.
    pub fn sink_url(&self) -> String {
        database_of(&self.stack.sink, &self.name)
    }

    /// Connects to the source database as superuser; `inventory` is first in the search path.
    pub async fn source(&self) -> Result<Database> {
        Database::connect(&self.source_url()).await
    }

    /// Connects to the sink database as superuser; `inventory` is first in the search path.
    pub async fn sink(&self) -> Result<Database> {
        Database::connect(&self.sink_url()).await
    }

    /// Looks at a table for bracketed reads whose markers reach its topic, on a topic of one partition.
    pub async fn bracket(&self, table: &str) -> Result<Bracket> {
        let prefix = self.markers.clone();
        self.bracket_by(
            table,
            match self.route {
                Route::Outbox => Post::Outbox { prefix, partition: None },
                _ => Post::Envelope { prefix },
            },
        )
        .await
    }

    /// The same by another way, as for one of several partitions.
    pub async fn bracket_by(&self, table: &str, post: Post) -> Result<Bracket> {
        Bracket::look(&self.source_url(), &self.table(table), &self.topic(table), post).await
    }

    /// Makes the pipeline's tables at the sink, empty, with the source's columns and primary keys.
    pub async fn make_sink_tables(&self) -> Result<()> {
        let (mut source, mut sink) = (self.source().await?, self.sink().await?);
        for table in &self.tables {
            let table = quoted_table(&in_schema(table));
            let literal = table.replace('\'', "''");
            let columns = source
                .value(format!(
                    "SELECT string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY \
                     attnum) FROM pg_attribute WHERE attrelid = '{literal}'::regclass AND attnum > 0 AND NOT attisdropped"
                ))
                .await?;
            let key = source
                .value(format!(
                    "SELECT ', ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = '{literal}'::regclass \
                     AND contype = 'p'"
                ))
                .await?;
            let (columns, key) = (columns.unwrap_or_default(), key.unwrap_or_default());
            sink.run(format!("CREATE TABLE {table} ({columns}{key})")).await?;
        }
        Ok(())
    }

    /// Waits until the connector reads from its slot. A change that commits from now on is streamed, not snapshotted.
    pub async fn streams(&self) -> Result<()> {
        let mut source = self.stack.source().await?;
        let active = format!("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{}' AND active", self.name);
        // A snapshot of a large table goes first, on a machine that may be busy.
        until(&format!("connector {} streams", self.name), Duration::from_secs(180), async || {
            Ok((source.number(&active).await? == 1).then_some(()))
        })
        .await
    }
}

impl Drop for Pipeline {
    /// Best effort and without a runtime: a server may be down, or the test may be on its way out of one.
    fn drop(&mut self) {
        let quietly = |command: &mut Command| {
            let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        let psql = |database: &str, sql: String| {
            quietly(Command::new(self.stack.stack_script()).args(["psql", database, "-c", &sql]));
        };
        let name = &self.name;
        quietly(Command::new(self.stack.connector_script()).args(["delete", name]));
        psql(
            "source",
            format!(
                "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = '{name}' \
                 AND active; SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = \
                 '{name}'"
            ),
        );
        psql("source", format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        psql("sink", format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
    }
}

fn in_schema(table: &str) -> String {
    format!("{SCHEMA}.{table}")
}

/// Replaces the database of `postgres://user@host:port/database`.
fn database_of(url: &str, name: &str) -> String {
    let server = url.rsplit_once('/').map_or(url, |(server, _)| server);
    format!("{server}/{name}")
}
