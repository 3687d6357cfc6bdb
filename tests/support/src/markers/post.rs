//! How a payload gets from a logical message into the table's topic.

use anyhow::{Context, Result};
use serde_json::json;
use sqlx::PgConnection;

use super::Marker;

/// The way of markers; it must be the connector's ([`crate::Route`]).
#[derive(Clone, Debug)]
pub enum Post {
    /// As an envelope; the connector's router knows the topic, the prefix decides the partition
    /// ([`super::prefix_reaching`]).
    Envelope {
        /// The message's prefix, `sink-repair` or `sink-repair.<n>`.
        prefix: String,
    },
    /// By Debezium's outbox router.
    Outbox {
        /// The message's prefix ([`crate::Pipeline::markers`]).
        prefix: String,
        /// The partition; `None` lets the key decide.
        partition: Option<i32>,
    },
}

impl Post {
    /// Emits a marker in the connection's transaction, or in one of its own, and returns its place in the log.
    pub async fn emit(&self, connection: &mut PgConnection, marker: &Marker) -> Result<String> {
        self.emit_payload(connection, marker, &marker.json()?).await
    }

    /// Emits any payload in a marker's name: read id, kind and topic are the marker's.
    pub async fn emit_payload(&self, connection: &mut PgConnection, marker: &Marker, payload: &str) -> Result<String> {
        match self {
            Post::Envelope { prefix } => message(connection, prefix, payload).await,
            Post::Outbox { prefix, partition } => {
                // As the key, read id and kind keep markers from replacing each other on a compacted topic.
                let mut content = json!({
                    "id": format!("{}/{}/{}", marker.read_id, marker.kind, marker.part.unwrap_or(1)),
                    "topic": marker.topic,
                    "key": format!("{}/{}/{}", marker.read_id, marker.kind, marker.part.unwrap_or(1)),
                    "kind": marker.kind,
                    "payload": payload,
                });
                if let Some(partition) = partition {
                    content["part"] = json!(partition);
                }
                message(connection, prefix, &content.to_string()).await
            }
        }
    }
}

/// Emits a transactional logical message.
pub(super) async fn message(connection: &mut PgConnection, prefix: &str, content: &str) -> Result<String> {
    sqlx::query_scalar("SELECT pg_logical_emit_message(true, $1, $2)::text")
        .bind(prefix)
        .bind(content)
        .fetch_one(connection)
        .await
        .context("emit a logical message")
}
