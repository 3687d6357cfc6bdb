//! The topic: changes, and ready statements between them.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use test_support::Stack;

use super::{Form, layout::Layout};
use crate::feeder::{Feeder, New};
use crate::record::Renderer;
use crate::stream::Change;

/// What the source calls its table.
const TABLE: &str = "inventory.items";

/// Fills the topic; returns how many records it has.
pub fn fill(stack: &Stack, topic: &str, layout: &Layout, form: Form) -> Result<u64> {
    let mut writer = Writer {
        feeder: Feeder::bulk(stack, topic)?,
        renderer: Renderer::new(topic, false),
        topic,
        layout,
        changes: 0,
    };
    writer.changes(layout.lead_in())?;
    for (number, chunk) in layout.chunks().iter().enumerate() {
        let read_id = format!("bench-{}", number + 1);
        let bound = |key: Option<u64>, inclusive: bool| match key {
            Some(key) => json!({ "key": key, "inclusive": inclusive }),
            None => json!({ "open": true }),
        };
        let range = json!({ "lower": bound(chunk.above, false), "upper": bound(chunk.up_to, true) });
        match form {
            Form::ChunkInfo => {
                writer.changes(layout.changes)?;
                writer.chunk_info(&json!({
                    "table": TABLE, "read_id": read_id, "range": range, "selected": chunk.keys, "changed": [],
                    "key_types": ["bigint"], "snapshot": writer.snapshot(),
                }))?;
            }
            Form::Markers => {
                writer.message(&json!({
                    "v": 1, "kind": "low", "read_id": read_id, "table": TABLE, "topic": topic,
                }))?;
                // The read sees them: what changes within a window is spared all the same.
                writer.changes(layout.changes)?;
                writer.message(&json!({
                    "v": 1, "kind": "chunk", "read_id": read_id, "table": TABLE, "topic": topic, "part": 1, "parts": 1,
                    "range": range, "selected": chunk.keys, "key_types": ["bigint"], "snapshot": writer.snapshot(),
                    "settled": true,
                }))?;
            }
        }
    }
    writer.changes(1)?;
    writer.feeder.finish()
}

struct Writer<'a> {
    feeder: Feeder,
    renderer: Renderer,
    topic: &'a str,
    layout: &'a Layout,
    changes: u64,
}

impl Writer<'_> {
    fn changes(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.changes += 1;
            let id = i64::try_from(self.layout.changed(self.changes))?;
            self.renderer.render(self.changes, Change::Update(id))?;
            let Renderer { key, value, .. } = &self.renderer;
            self.feeder.send(New { key, value: Some(value), ..New::default() })?;
        }
        Ok(())
    }

    /// Sees every transaction of a change so far.
    fn snapshot(&self) -> String {
        let next = Renderer::transaction(self.changes) + 1;
        format!("{next}:{next}:")
    }

    fn chunk_info(&mut self, payload: &serde_json::Value) -> Result<()> {
        self.feeder.send(New {
            key: br#"{"record":"chunk-info"}"#,
            value: Some(payload.to_string().as_bytes()),
            header: Some(("dblog.record", "chunk-info")),
            ..New::default()
        })
    }

    /// A logical message as Debezium publishes it.
    fn message(&mut self, payload: &serde_json::Value) -> Result<()> {
        let connector = self.topic.split('.').next().unwrap_or_default();
        let envelope = json!({
            "op": "m", "ts_ms": 1_796_000_000_000_i64, "transaction": null,
            "source": {
                "version": "3.6.1.Final", "connector": "postgresql", "name": connector, "ts_ms": 1_796_000_000_000_i64,
                "snapshot": "false", "db": "source", "sequence": "[null,\"30000000\"]", "schema": "", "table": "",
                "txId": Renderer::transaction(self.changes), "lsn": 30_000_000,
            },
            "message": { "prefix": "sink-repair", "content": STANDARD.encode(payload.to_string()) },
        });
        self.feeder.send(New {
            key: br#"{"prefix":"sink-repair"}"#,
            value: Some(envelope.to_string().as_bytes()),
            ..New::default()
        })
    }
}
