//! The source's own log, as PostgreSQL's `test_decoding` tells it: every change and every marker, once, in the order in
//! which they count. Debezium has no part in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use test_support::{Database, Pipeline, unique};

use crate::load::Key;

/// A place in the source's log from which on everything is kept. Its session holds the slot.
pub struct SourceLog {
    session: Database,
    slot: String,
}

/// What the log says about removals.
#[derive(Debug, Default)]
pub struct Judged {
    /// Changes of rows.
    pub changes: u64,
    /// The reads whose close is in the log.
    pub closes: BTreeSet<String>,
    /// Keys that were live at a close and that its read had not seen.
    pub at_risk: u64,
    /// Removals of keys that were live at their statement's place.
    pub wrong: Vec<(String, Key)>,
}

impl SourceLog {
    /// Keeps the log from here on. The table's rows at this moment must be known otherwise.
    pub async fn keep(pipeline: &Pipeline) -> Result<SourceLog> {
        let mut session = pipeline.source().await?;
        let slot = unique("log");
        session.run(format!("SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding', true)")).await?;
        Ok(SourceLog { session, slot })
    }

    /// Replays the log over the rows that were live at its start, and judges removals, given by read.
    pub async fn judge(&mut self, start: BTreeSet<Key>, removed: &BTreeMap<String, Vec<Key>>) -> Result<Judged> {
        let lines = self
            .session
            .column(format!("SELECT data FROM pg_logical_slot_get_changes('{}', NULL, NULL)", self.slot))
            .await?;
        let mut live = start;
        let mut judged = Judged::default();
        for line in lines.into_iter().flatten() {
            if let Some(change) = line.strip_prefix("table inventory.orders: ") {
                judged.changes += 1;
                apply(change, &mut live).with_context(|| format!("read {change:?}"))?;
            } else if let Some((_, content)) = line.split_once(" content:")
                && line.starts_with("message: transactional: 1 prefix: sink-repair")
            {
                let marker: Value = serde_json::from_str(content).context("read a marker")?;
                if marker["kind"] == "chunk" {
                    close(&marker, &live, removed, &mut judged)?;
                }
            }
        }
        Ok(judged)
    }
}

fn close(
    marker: &Value,
    live: &BTreeSet<Key>,
    removed: &BTreeMap<String, Vec<Key>>,
    judged: &mut Judged,
) -> Result<()> {
    ensure!(marker["parts"] == 1, "a chunk of this table is one part");
    let read_id = marker["read_id"].as_str().context("no read id")?.to_owned();
    let seen: BTreeSet<Key> =
        marker["selected"].as_array().context("no selected")?.iter().map(key_of).collect::<Result<_>>()?;
    let range = (bound(&marker["range"]["lower"])?, bound(&marker["range"]["upper"])?);
    judged.at_risk += live.range(range).filter(|key| !seen.contains(*key)).count() as u64;
    for key in removed.get(&read_id).into_iter().flatten().filter(|key| live.contains(*key)) {
        judged.wrong.push((read_id.clone(), key.clone()));
    }
    judged.closes.insert(read_id);
    Ok(())
}

fn bound(value: &Value) -> Result<Bound<Key>> {
    if value["open"] == true {
        return Ok(Bound::Unbounded);
    }
    let key = key_of(&value["key"])?;
    Ok(if value["inclusive"] == true { Bound::Included(key) } else { Bound::Excluded(key) })
}

fn key_of(value: &Value) -> Result<Key> {
    let shop = i32::try_from(value[0].as_i64().context("no shop")?)?;
    Ok(Key { shop, code: value[1].as_str().context("no code")?.to_owned() })
}

/// Applies `INSERT: ...`, `UPDATE: old-key: ... new-tuple: ...`, `UPDATE: ...` or `DELETE: ...`.
fn apply(change: &str, live: &mut BTreeSet<Key>) -> Result<()> {
    let (op, rest) = change.split_once(": ").context("no operation")?;
    match op {
        "INSERT" => {
            live.insert(columns(rest)?);
        }
        "DELETE" => {
            live.remove(&columns(rest)?);
        }
        "UPDATE" => {
            if let Some(keys) = rest.strip_prefix("old-key: ") {
                let (old, new) = keys.split_once(" new-tuple: ").context("no new tuple")?;
                live.remove(&columns(old)?);
                live.insert(columns(new)?);
            }
        }
        other => anyhow::bail!("operation {other}"),
    }
    Ok(())
}

/// Reads `shop[integer]:1 code[text]:'it''s' ...`.
fn columns(text: &str) -> Result<Key> {
    let rest = text.strip_prefix("shop[integer]:").context("no shop")?;
    let (shop, rest) = rest.split_once(" code[text]:'").context("no code")?;
    let mut code = String::new();
    let mut chars = rest.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\'' if chars.peek() == Some(&'\'') => code.extend(chars.next()),
            '\'' => break,
            char => code.push(char),
        }
    }
    Ok(Key { shop: shop.parse()?, code })
}
