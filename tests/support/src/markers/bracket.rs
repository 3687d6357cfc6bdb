//! The steps of a bracketed read.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::value::RawValue;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::marker::{Bound, Marker, Range};
use super::post::{Post, message};
use crate::postgres::{quoted, quoted_table};
use crate::{Database, unique};

/// How long [`Bracket::pass`] waits in each settle; nothing in a test should be open that long.
const SETTLE: Duration = Duration::from_secs(10);

/// How many keys a part holds at most: with keys of 30 bytes a record is well below Kafka's 1 MiB, even in base64.
const KEYS_PER_PART: usize = 10_000;

/// One connection that makes bracketed reads of one table.
#[derive(Debug)]
pub struct Bracket {
    connection: PgConnection,
    url: String,
    table: String,
    topic: String,
    post: Post,
    key: Vec<KeyColumn>,
    identity: Vec<String>,
    settled: bool,
}

#[derive(Debug)]
struct KeyColumn {
    name: String,
    /// Its type with modifiers, as `format_type` writes it.
    kind: String,
    collatable: bool,
}

/// A read whose transaction is still open.
#[derive(Clone, Debug)]
pub struct Read {
    /// What [`Bracket::close`] emits.
    pub marker: Marker,
    /// The last key, column by column as text, when the page was full: the next read goes on there.
    pub last: Option<Vec<String>>,
}

impl Bracket {
    /// Step 0. Connects as the role `certify`, which may only log in and read, and looks at the table
    /// (`schema.table`) of the source database at `url`.
    pub async fn look(url: &str, table: &str, topic: &str, post: Post) -> Result<Bracket> {
        let mut connection = Database::connect(&url.replace("//postgres@", "//certify@")).await?.connection;
        sqlx::raw_sql("SET synchronous_commit = local").execute(&mut connection).await?;
        let key = key_columns(&mut connection, table).await?;
        ensure!(!key.is_empty(), "{table} has no primary key");
        let identity = identity(&mut connection, table).await?;
        Ok(Bracket {
            connection,
            url: url.to_owned(),
            table: table.to_owned(),
            topic: topic.to_owned(),
            post,
            key,
            identity,
            settled: false,
        })
    }

    /// Step 1. Emits the low marker in a transaction of its own.
    pub async fn low(&mut self, read_id: &str) -> Result<()> {
        self.settled = false;
        let marker = Marker::low(read_id, &self.table, &self.topic);
        self.post.emit(&mut self.connection, &marker).await.map(drop)
    }

    /// Step 2. Waits until every transaction that the log holds before the low marker is visible, and returns whether
    /// that was so within the limit; the chunk's `settled` says the same.
    pub async fn settle(&mut self, limit: Duration) -> Result<bool> {
        // A transaction id assigned after the low marker's commit: whatever came before the marker in the log had its id
        // by then, and so a lower one.
        let mark: String =
            sqlx::query_scalar("SELECT pg_current_xact_id()::text").fetch_one(&mut self.connection).await?;
        let start = Instant::now();
        loop {
            self.settled = sqlx::query_scalar("SELECT pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8")
                .bind(&mark)
                .fetch_one(&mut self.connection)
                .await?;
            if self.settled || start.elapsed() > limit {
                return Ok(self.settled);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Step 3, to the emit. Reads at most `rows` keys above `above`, or from the table's start; the transaction stays
    /// open until [`Bracket::close`] or [`Bracket::abandon`].
    pub async fn read(&mut self, read_id: &str, above: Option<&[String]>, rows: usize) -> Result<Read> {
        let snapshot = self.begin().await?;
        let (keys, last) = self.page(above, rows).await?;
        let full = keys.len() == rows;
        let above = match above {
            Some(values) => Bound::Key { key: self.key_json(values).await?, inclusive: false },
            None => Bound::OPEN,
        };
        let upper = match keys.last() {
            Some(key) if full => Bound::Key { key: key.clone(), inclusive: true },
            _ => Bound::OPEN,
        };
        let marker = Marker {
            kind: "chunk".to_owned(),
            range: Some(Range { lower: above, upper }),
            selected: Some(keys),
            ..self.claim(read_id, snapshot)
        };
        Ok(Read { marker, last: last.filter(|_| full) })
    }

    /// The same for a list of keys, each column by column as text: what answers `verify-keys-absent`.
    pub async fn read_keys(&mut self, read_id: &str, asked: &[Vec<String>]) -> Result<Read> {
        let snapshot = self.begin().await?;
        let mut all = Vec::new();
        let mut present = Vec::new();
        for values in asked {
            let key = self.key_json(values).await?;
            let sql = format!(
                "SELECT count(*) FROM {} WHERE ({}) = ({})",
                quoted_table(&self.table),
                self.columns(),
                self.parameters()
            );
            let found: i64 =
                bound(sqlx::query_scalar(AssertSqlSafe(sql)), values).fetch_one(&mut self.connection).await?;
            if found > 0 {
                present.push(key.clone());
            }
            all.push(key);
        }
        let marker = Marker {
            kind: "keys".to_owned(),
            asked: Some(all),
            present: Some(present),
            key_order: None,
            ..self.claim(read_id, snapshot)
        };
        Ok(Read { marker, last: None })
    }

    /// The end of step 3. Emits the marker, in as many parts as it needs, and commits.
    pub async fn close(&mut self, read: &Read) -> Result<()> {
        for part in read.marker.split(KEYS_PER_PART)? {
            self.post.emit(&mut self.connection, &part).await?;
        }
        sqlx::raw_sql("COMMIT").execute(&mut self.connection).await.context("close the bracket")?;
        Ok(())
    }

    /// Ends the read without a marker.
    pub async fn abandon(&mut self) -> Result<()> {
        sqlx::raw_sql("ROLLBACK").execute(&mut self.connection).await?;
        Ok(())
    }

    /// All steps over the whole table, in chunks of `rows` keys; returns the read ids. The last chunk is open above.
    pub async fn pass(&mut self, rows: usize) -> Result<Vec<String>> {
        let pass = unique("pass");
        let mut reads = Vec::new();
        let mut above: Option<Vec<String>> = None;
        loop {
            let read_id = format!("{pass}-{}", reads.len() + 1);
            self.low(&read_id).await?;
            ensure!(self.settle(SETTLE).await?, "the source did not settle within {SETTLE:?}");
            let read = self.read(&read_id, above.as_deref(), rows).await?;
            self.close(&read).await?;
            reads.push(read_id);
            match read.last {
                Some(last) => above = Some(last),
                None => return Ok(reads),
            }
        }
    }

    /// Answers `verify-keys-absent` for any sink: an absence event for each asked key that is not there. By the outbox
    /// way only, and as superuser: `certify` may not take the lock that makes it safe. Returns how many were absent.
    pub async fn absence_events(&self, read_id: &str, asked: &[Vec<String>]) -> Result<usize> {
        let Post::Outbox { prefix, .. } = self.post.clone() else { bail!("absence events need the outbox way") };
        let mut writer = Database::connect(&self.url).await?.connection;
        // Writers wait from here to the commit: a key that is absent now is absent at the events' place in the log. The
        // snapshots of the queries below are younger than the lock.
        let lock = format!(
            "BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL synchronous_commit = off; LOCK TABLE {} IN SHARE MODE",
            quoted_table(&self.table)
        );
        sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut writer).await.context("lock the table")?;
        let fields: Vec<_> = self
            .key
            .iter()
            .enumerate()
            .map(|(n, column)| format!("'{}', ${}::text::{}", column.name.replace('\'', "''"), n + 1, column.kind))
            .collect();
        let mut absent = 0;
        for values in asked {
            let sql = format!(
                "SELECT jsonb_build_object({})::text WHERE NOT EXISTS (SELECT FROM {} WHERE ({}) = ({}))",
                fields.join(", "),
                quoted_table(&self.table),
                self.columns(),
                self.parameters()
            );
            let key: Option<String> =
                bound(sqlx::query_scalar(AssertSqlSafe(sql)), values).fetch_optional(&mut writer).await?;
            let Some(key) = key else { continue };
            absent += 1;
            let content = serde_json::json!({
                "id": format!("{read_id}/{absent}"),
                "topic": self.topic,
                "key": serde_json::from_str::<serde_json::Value>(&key)?,
                "payload": "",
                "op": "absent",
                "table": self.table,
                "read_id": read_id,
            });
            message(&mut writer, &prefix, &content.to_string()).await?;
        }
        sqlx::raw_sql("COMMIT").execute(&mut writer).await.context("commit absence events")?;
        Ok(absent)
    }

    /// Opens the read's transaction and returns its snapshot. The lock comes before anything that takes a snapshot:
    /// TRUNCATE and rewrites are not MVCC-safe, an older snapshot would read the table as empty.
    async fn begin(&mut self) -> Result<String> {
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE {} IN ACCESS SHARE MODE",
            quoted_table(&self.table)
        );
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut self.connection).await.context("begin the read")?;
        if identity(&mut self.connection, &self.table).await? != self.identity {
            self.abandon().await?;
            bail!("{} is not the table that it was at the bracket's start", self.table);
        }
        Ok(sqlx::query_scalar("SELECT pg_current_snapshot()::text").fetch_one(&mut self.connection).await?)
    }

    /// One page of keys as JSON, and the last one column by column as text.
    async fn page(
        &mut self,
        above: Option<&[String]>,
        rows: usize,
    ) -> Result<(Vec<Box<RawValue>>, Option<Vec<String>>)> {
        let texts: Vec<_> = self.key.iter().map(|column| format!("{}::text", quoted(&column.name))).collect();
        let condition = match above {
            Some(_) => format!("WHERE ({}) > ({})", self.columns(), self.parameters()),
            None => String::new(),
        };
        let sql = format!(
            "SELECT {}, ARRAY[{}] FROM {} {condition} ORDER BY {} LIMIT {rows}",
            self.json_of(&self.key.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>()),
            texts.join(", "),
            quoted_table(&self.table),
            self.columns()
        );
        let query =
            above.unwrap_or_default().iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, value| query.bind(value));
        let found = query.fetch_all(&mut self.connection).await.context("read keys")?;
        let keys = found.iter().map(|row| Ok(RawValue::from_string(row.try_get(0)?)?)).collect::<Result<_>>()?;
        let last = found.last().map(|row| row.try_get(1)).transpose()?;
        Ok((keys, last))
    }

    async fn key_json(&mut self, values: &[String]) -> Result<Box<RawValue>> {
        let parameters: Vec<_> =
            self.key.iter().enumerate().map(|(n, column)| format!("${}::text::{}", n + 1, column.kind)).collect();
        let sql = format!("SELECT {}", self.json_of(&parameters));
        let json: String =
            bound(sqlx::query_scalar(AssertSqlSafe(sql)), values).fetch_one(&mut self.connection).await?;
        Ok(RawValue::from_string(json)?)
    }

    /// A key as it stands in a marker: its value, or an array of several.
    fn json_of(&self, expressions: &[String]) -> String {
        match expressions {
            [one] => format!("to_jsonb({one})::text"),
            several => format!("jsonb_build_array({})::text", several.join(", ")),
        }
    }

    /// The key columns under byte order.
    fn columns(&self) -> String {
        let columns = self.key.iter().map(|column| {
            let collate = if column.collatable { " COLLATE \"C\"" } else { "" };
            format!("{}{collate}", quoted(&column.name))
        });
        columns.collect::<Vec<_>>().join(", ")
    }

    fn parameters(&self) -> String {
        let columns = self.key.iter().enumerate();
        columns.map(|(n, column)| format!("${}::text::{}", n + 1, column.kind)).collect::<Vec<_>>().join(", ")
    }

    fn claim(&self, read_id: &str, snapshot: String) -> Marker {
        Marker {
            key_types: Some(self.key.iter().map(|column| column.kind.clone()).collect()),
            key_order: Some("bytes".to_owned()),
            snapshot: Some(snapshot),
            settled: Some(self.settled),
            ..Marker::low(read_id, &self.table, &self.topic)
        }
    }
}

type Scalar<'q, T> = sqlx::query::QueryScalar<'q, sqlx::Postgres, T, sqlx::postgres::PgArguments>;

fn bound<'q, T>(query: Scalar<'q, T>, values: &'q [String]) -> Scalar<'q, T> {
    values.iter().fold(query, |query, value| query.bind(value))
}

async fn key_columns(connection: &mut PgConnection, table: &str) -> Result<Vec<KeyColumn>> {
    let rows = sqlx::query(
        "SELECT attname::text, format_type(atttypid, atttypmod), attcollation <> 0
         FROM pg_index
         CROSS JOIN unnest(indkey::int2[]) WITH ORDINALITY AS part(number, place)
         JOIN pg_attribute ON attrelid = indrelid AND attnum = part.number
         WHERE indrelid = $1::text::regclass AND indisprimary
         ORDER BY place",
    )
    .bind(quoted_table(table))
    .fetch_all(connection)
    .await
    .with_context(|| format!("look at the key of {table}"))?;
    rows.iter()
        .map(|row| Ok(KeyColumn { name: row.try_get(0)?, kind: row.try_get(1)?, collatable: row.try_get(2)? }))
        .collect()
}

/// What must not change in a bracket: the table's OID, file, key with types and collations, publications, and the
/// server's identity and timeline.
async fn identity(connection: &mut PgConnection, table: &str) -> Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT unnest(ARRAY[
             c.oid::text,
             pg_relation_filenode(c.oid)::text,
             (SELECT string_agg(format('%s %s %s %s', attname, atttypid, atttypmod, attcollation), ', ' ORDER BY attnum)
              FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey::int2[])
              WHERE indrelid = c.oid AND indisprimary),
             (SELECT string_agg(pubname, ', ' ORDER BY pubname) FROM pg_publication_tables
              WHERE schemaname = c.relnamespace::regnamespace::text AND tablename = c.relname),
             (SELECT system_identifier::text FROM pg_control_system()),
             (SELECT timeline_id::text FROM pg_control_checkpoint())])
         FROM pg_class c WHERE c.oid = $1::text::regclass",
    )
    .bind(quoted_table(table))
    .fetch_all(connection)
    .await
    .map(|values: Vec<Option<String>>| values.into_iter().map(Option::unwrap_or_default).collect())
    .with_context(|| format!("look at the identity of {table}"))
}
