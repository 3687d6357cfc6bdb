//! A sink database and topics without a source: the test writes every record itself.

use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::{Value, json};
use test_support::kafka::{self, New};
use test_support::{Database, Stack, unique};

use crate::worker::Apply;

/// A topic that looks like a connector's, and a sink database. Dropping it deletes the database.
#[derive(Debug)]
pub struct Bare {
    pub stack: Stack,
    pub name: String,
}

impl Bare {
    /// Makes topic and database; `ddl` makes the sink's tables, in schema `inventory`.
    pub async fn new(stem: &str, ddl: &str) -> Result<Bare> {
        let bare = Bare { stack: Stack::from_env()?, name: unique(stem) };
        let name = &bare.name;
        bare.stack.sink().await?.run(format!("CREATE DATABASE {name}")).await?;
        let mut sink = bare.sink().await?;
        sink.run(format!("CREATE SCHEMA inventory; ALTER DATABASE {name} SET search_path = inventory, public")).await?;
        bare.sink().await?.run(ddl).await?;
        kafka::create_topic(&bare.stack, &bare.topic(), 1, &[]).await?;
        Ok(bare)
    }

    /// Returns the topic of `inventory.orders`.
    pub fn topic(&self) -> String {
        format!("{}.inventory.orders", self.name)
    }

    /// Returns the sink database as superuser.
    pub fn sink_url(&self) -> String {
        let server = self.stack.sink.rsplit_once('/').map_or(&*self.stack.sink, |(server, _)| server);
        format!("{server}/{}", self.name)
    }

    /// Connects to the sink database.
    pub async fn sink(&self) -> Result<Database> {
        Database::connect(&self.sink_url()).await
    }

    /// Writes records to the topic; returns the offset of each.
    pub async fn write(&self, records: Vec<New>) -> Result<Vec<i64>> {
        Ok(kafka::write(&self.stack, &self.topic(), records).await?.into_iter().map(|(_, offset)| offset).collect())
    }

    /// A worker on the topic.
    pub fn apply(&self) -> Apply {
        Apply::new(&self.stack, &self.name, &[self.topic()], &self.sink_url())
    }

    /// The envelope of a row of `inventory.orders`, without schema.
    pub fn envelope(&self, op: &str, row: Value) -> Value {
        let (before, after) = if op == "d" { (row, Value::Null) } else { (Value::Null, row) };
        json!({
            "before": before, "after": after, "op": op, "ts_ms": 1_796_014_136_110_i64, "transaction": null,
            "source": {
                "version": "3.6.1.Final", "connector": "postgresql", "name": self.name, "ts_ms": 1_796_014_136_063_i64,
                "snapshot": null, "db": "shop", "sequence": "[null,\"26572792\"]", "schema": "inventory",
                "table": "orders", "txId": 762, "lsn": 26_572_792, "xmin": null, "origin": null, "origin_lsn": null,
            },
        })
    }

    /// A created row `{id, v}` as a record.
    pub fn row(&self, id: i64, v: &str) -> New {
        let value = self.envelope("c", json!({ "id": id, "v": v }));
        New::text(&json!({ "id": id }).to_string(), &value.to_string())
    }

    /// The delete of a row, as a record.
    pub fn gone(&self, id: i64) -> New {
        let value = self.envelope("d", json!({ "id": id }));
        New::text(&json!({ "id": id }).to_string(), &value.to_string())
    }

    /// A chunk info record.
    pub fn chunk_info(&self, value: &Value) -> New {
        New {
            key: Some(b"{\"record\":\"chunk-info\"}".to_vec()),
            value: Some(value.to_string().into()),
            ..New::default()
        }
        .header("dblog.record", "chunk-info")
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // Best effort, as in a pipeline.
        let script = std::env::var("SINK_REPAIR_TEST_STACK").unwrap_or_default();
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let mut psql = Command::new(script);
        let _ = psql
            .args(["psql", "sink", "-c", &sql])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}
