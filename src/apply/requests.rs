//! Repair requests: what the sink lacks is asked for again at the source.
//!
//! Debezium answers `execute-snapshot` with a filter by sending the rows as they are, through the stream. A row that was
//! deleted in between does not come.

use std::{collections::HashMap, time::Duration};

use serde_json::json;
use sink_api::{Key, KeyType, KeyValue, LaneId, StatementRow, TableShape, Verdict};
use tokio::time::Instant;

use super::{
    observer::Observer,
    ports::{MissingKeys, Outlet, Request},
    writer::Report,
};
use crate::{metrics::RequestKind, operate::range_json, statement::parse_range};

/// The most keys of one request: its filter stays well below a broker's record limit.
const KEYS_A_REQUEST: usize = 1_000;

/// How often a range is asked to be read afresh: what is refused that often has a lasting reason.
const READS_A_RANGE: u32 = 3;

/// The most keys of a table that wait to be asked for. The others are found again by the next pass.
const KEYS_WAITING: usize = 10_000;

/// How long missing keys are gathered before they are asked for: the statements of a pass follow one another closely.
const GATHER: Duration = Duration::from_secs(2);

/// How far two requests for rows are apart. Debezium 3.6 reads each as an incremental snapshot of its own; when many of
/// few rows queue up under load, its read-only form was seen to fail with a NullPointerException that ends the task.
const DISTANCE: Duration = Duration::from_secs(5);

/// What a lane asks of the source.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Keys that are to be asked for, by table.
    wanted: Vec<MissingKeys>,
    due: Option<Instant>,
    last: Option<Instant>,
    /// How often each table's range was asked for since it was last read with success.
    reads: HashMap<(String, String), u32>,
}

impl Requests {
    /// Gathers what a unit's report asks for; fresh reads are asked for at once. A request that cannot be sent is shown;
    /// the next pass finds its keys again.
    pub(super) async fn take<O: Outlet>(
        &mut self,
        outlet: &O,
        lane: &LaneId,
        report: &mut Report,
        observer: &mut Observer,
    ) {
        if !outlet.can_request() {
            return;
        }
        for judged in &report.statements {
            if let Some(request) = self.read_again(lane, &judged.row) {
                let result = outlet.request(&request).await;
                observer.requested(&request, &result);
            }
        }
        for missing in report.missing.drain(..).filter(|missing| !missing.keys.is_empty()) {
            let same = |wanted: &&mut MissingKeys| {
                wanted.table.name == missing.table.name && wanted.source_table == missing.source_table
            };
            match self.wanted.iter_mut().find(same) {
                Some(wanted) => {
                    // A pass that comes before the answer finds the same keys missing again.
                    wanted.keys.extend(missing.keys);
                    wanted.keys.sort_unstable();
                    wanted.keys.dedup();
                    wanted.keys.truncate(KEYS_WAITING);
                }
                None => self.wanted.push(missing),
            }
        }
        if !self.wanted.is_empty() {
            let distant = self.last.map(|last| last + DISTANCE);
            self.due.get_or_insert_with(|| (Instant::now() + GATHER).max(distant.unwrap_or_else(Instant::now)));
        }
    }

    /// Returns when the next request for rows is to be sent, if there is one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Sends one request for rows.
    pub(super) async fn send<O: Outlet>(&mut self, outlet: &O, lane: &LaneId, observer: &mut Observer) {
        self.due = None;
        let Some(wanted) = self.wanted.last_mut() else { return };
        let keys = wanted.keys.split_off(wanted.keys.len().saturating_sub(KEYS_A_REQUEST));
        let request = snapshot(lane, wanted, &keys);
        if wanted.keys.is_empty() {
            self.wanted.pop();
        }
        if let Some(request) = request {
            let result = outlet.request(&request).await;
            observer.requested(&request, &result);
            self.last = Some(Instant::now());
        }
        if !self.wanted.is_empty() {
            self.due = Some(Instant::now() + DISTANCE);
        }
    }

    /// Sends all that is left, for a lane that ends.
    pub(super) async fn send_all<O: Outlet>(&mut self, outlet: &O, lane: &LaneId, observer: &mut Observer) {
        while !self.wanted.is_empty() {
            self.send(outlet, lane, observer).await;
        }
    }

    /// Returns the request for a fresh read of a statement that was refused for a passing reason (rule `again`).
    fn read_again(&mut self, lane: &LaneId, row: &StatementRow) -> Option<Request> {
        let range = (row.source_table.clone(), row.extent.clone());
        let Verdict::Refused { rule, again: true, .. } = &row.verdict else {
            self.reads.remove(&range);
            return None;
        };
        let asked = self.reads.entry(range).or_default();
        *asked += 1;
        if *asked > READS_A_RANGE {
            return None;
        }
        let mut data = json!({ "table": row.source_table, "reason": rule.as_str(), "read_id": row.read_id });
        if let Some(range) = parse_range(&row.extent) {
            data["range"] = range_json(&range);
        }
        Some(Request { id: request_id(lane), kind: RequestKind::Read, data, keys: 0 })
    }
}

fn request_id(lane: &LaneId) -> String {
    format!("sink-repair-{}-{}", lane.partition, uuid::Uuid::new_v4())
}

/// Returns the request for some of a table's missing keys.
fn snapshot(lane: &LaneId, missing: &MissingKeys, keys: &[Key]) -> Option<Request> {
    let types = missing.table.key_types().ok()?;
    let source = missing.source_table.clone().unwrap_or_else(|| missing.table.name.to_string());
    Some(Request {
        id: request_id(lane),
        kind: RequestKind::ExecuteSnapshot,
        keys: keys.len(),
        data: json!({
            "data-collections": [source],
            "type": "incremental",
            "additional-conditions": [{
                "data-collection": source,
                "filter": filter(&missing.table, &types, keys)?,
            }],
        }),
    })
}

/// Writes `"a" IN (1, 2)`, or for a composite key `("a", "b") IN ((1, 'x'), ...)`.
fn filter(table: &TableShape, types: &[KeyType], keys: &[Key]) -> Option<String> {
    let names: Vec<String> = table
        .key
        .iter()
        .map(|column| format!("\"{}\"", table.columns[column.column].name.replace('"', "\"\"")))
        .collect();
    let mut rows = Vec::with_capacity(keys.len());
    for key in keys {
        let values: Vec<String> = key.decode(types).ok()?.iter().map(literal).collect::<Option<_>>()?;
        rows.push(parenthesised(&values));
    }
    Some(format!("{} IN ({})", parenthesised(&names), rows.join(", ")))
}

fn parenthesised(items: &[String]) -> String {
    match items {
        [one] => one.clone(),
        several => format!("({})", several.join(", ")),
    }
}

/// Writes a value as a PostgreSQL literal. Quotes are doubled; backslashes mean themselves
/// (`standard_conforming_strings`, on by default since PostgreSQL 9.1).
fn literal(value: &KeyValue) -> Option<String> {
    Some(match value {
        KeyValue::Bool(value) => value.to_string(),
        KeyValue::Int(value) => value.to_string(),
        KeyValue::UInt(value) => value.to_string(),
        KeyValue::Decimal(value) => format!("'{value}'::numeric"),
        KeyValue::Text(text) => format!("'{}'", text.replace('\'', "''")),
        KeyValue::Bytes(bytes) => format!("'\\x{}'::bytea", hex::encode(bytes)),
        KeyValue::Uuid(bytes) => format!("'{}'::uuid", uuid::Uuid::from_bytes(*bytes)),
        KeyValue::Date(days) => format!("'epoch'::date + {days}"),
        KeyValue::Time(micros) => format!("'00:00'::time + {micros} * interval '1 microsecond'"),
        KeyValue::Timestamp(micros) => format!("'epoch'::timestamp + {micros} * interval '1 microsecond'"),
        KeyValue::TimestampTz(micros) => {
            format!("'1970-01-01 00:00:00+00'::timestamptz + {micros} * interval '1 microsecond'")
        }
    })
}
