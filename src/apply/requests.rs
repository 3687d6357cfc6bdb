//! Repair requests: what the sink lacks is asked for again at the source.
//!
//! Debezium answers `execute-snapshot` with a filter by sending the rows as they are, through the stream. A row that was
//! deleted in between does not come.

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::json;
use sink_api::{Key, LaneId, StatementRow, TableName, TableShape, Verdict};
use tokio::time::Instant;

use super::{
    asked::{Asked, Vain},
    feeds::Feeds,
    observer::Observer,
    ports::{MissingKeys, Outlet, Request},
    report::Report,
    signal_text::{filter, identifier, pattern},
};
use crate::{clock::UnixMillis, metrics::RequestKind, operate::range_json, statement::parse_range};

/// The most keys of one request: its filter stays well below a broker's record limit.
const KEYS_A_REQUEST: usize = 1_000;

/// How often a range is asked to be read afresh: what is refused that often has a lasting reason.
const READS_A_RANGE: u32 = 3;

/// How many ranges' requests are counted; beyond, counting begins anew.
const RANGES: usize = 10_000;

/// A lane that has read nothing for so long has read all.
const READING: Duration = Duration::from_secs(1);

/// A lane that reads records older than this is behind: clocks are closer than that.
const BEHIND: Duration = Duration::from_secs(5);

/// When requests for rows are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long missing keys are gathered before they are asked for: the statements of a pass follow one another closely.
    pub(super) gather: Duration,
    /// How far two requests are apart. Debezium 3.6 reads each as an incremental snapshot of its own; when many of few
    /// rows queue up under load, its read-only form was seen to fail with a NullPointerException that ends the task.
    pub(super) distance: Duration,
    /// How long a row may take to come. Debezium answers within seconds, unless it is busy with another snapshot, and
    /// then a second request does no harm; or it drops the request: in `read.only` mode its threads get in each other's
    /// way (`NullPointerException` in `notifyInProgress`, seen with 3.6.1).
    pub(super) answer: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { gather: Duration::from_secs(2), distance: Duration::from_secs(5), answer: Duration::from_secs(30) }
    }
}

/// What a lane asks of the source.
#[derive(Debug)]
pub(super) struct Requests {
    pace: Pace,
    /// Requests for fresh reads that are to be sent.
    fresh: Vec<Request>,
    /// Keys that are to be asked for, by table and source.
    wanted: Vec<Wanted>,
    /// What is to be asked for again, by table.
    sources: HashMap<TableName, (Arc<TableShape>, Vec<String>)>,
    asked: Asked,
    due: Option<Instant>,
    /// When the next key will have been asked for in vain.
    vain: Option<Instant>,
    last: Option<Instant>,
    /// When the last record was read, and its timestamp.
    read: Option<(Instant, UnixMillis)>,
    /// How often each table's range was asked for since it was last read with success.
    reads: HashMap<(String, String), u32>,
}

#[derive(Debug)]
struct Wanted {
    table: Arc<TableShape>,
    source: String,
    keys: Vec<Key>,
}

impl Requests {
    pub(super) fn new(pace: Pace) -> Requests {
        Requests {
            pace,
            fresh: Vec::new(),
            wanted: Vec::new(),
            sources: HashMap::new(),
            asked: Asked::new(pace.answer),
            due: None,
            vain: None,
            last: None,
            read: None,
            reads: HashMap::new(),
        }
    }

    /// Gathers what a unit's report asks for, if requests can be sent at all.
    pub(super) fn take(&mut self, lane: &LaneId, feeds: &Feeds, report: &mut Report) {
        for judged in &report.statements {
            let request = self.read_again(lane, &judged.row);
            self.fresh.extend(request);
        }
        for MissingKeys { table, source_table, mut keys, .. } in report.missing.drain(..) {
            keys.retain(|key| self.asked.want(&table.name, key));
            // Of several sources each is asked: the one that lacks the key sends nothing.
            let sources = source_table.map_or_else(|| feeds.sources(&table.name), |source| vec![source]);
            if sources.is_empty() {
                self.asked.not_sent(&table.name, &keys);
            }
            self.want(&table, &sources, &keys);
        }
    }

    fn want(&mut self, table: &Arc<TableShape>, sources: &[String], keys: &[Key]) {
        if keys.is_empty() {
            return;
        }
        self.sources.insert(table.name.clone(), (Arc::clone(table), sources.to_vec()));
        for source in sources {
            match self.wanted.iter_mut().find(|wanted| wanted.table.name == table.name && wanted.source == *source) {
                Some(wanted) => wanted.keys.extend_from_slice(keys),
                None => {
                    self.wanted.push(Wanted { table: Arc::clone(table), source: source.clone(), keys: keys.to_vec() })
                }
            }
        }
        let distant = self.last.map(|last| last + self.pace.distance);
        self.due.get_or_insert_with(|| (Instant::now() + self.pace.gather).max(distant.unwrap_or_else(Instant::now)));
    }

    /// Takes note of an event of a key: what was asked for may have come.
    pub(super) fn event(&mut self, table: &TableName, key: &Key, observer: &Observer) {
        if !self.asked.is_empty()
            && let Some(left) = self.asked.event(table, key)
        {
            observer.unobtainable(table, left);
        }
    }

    /// Returns when something is to be done, if there is anything. Fresh reads are asked for at once.
    pub(super) fn due(&self) -> Option<Instant> {
        let fresh = (!self.fresh.is_empty()).then(Instant::now);
        [fresh, self.due, self.vain].into_iter().flatten().min()
    }

    /// Takes note of the timestamp of a record that was just read, in milliseconds since 1970-01-01 UTC.
    pub(super) fn read(&mut self, timestamp: Option<i64>) {
        if self.vain.is_some()
            && let Some(timestamp) = timestamp
        {
            self.read = Some((Instant::now(), UnixMillis(timestamp)));
        }
    }

    /// Whether rows that were sent in time may not have been read yet.
    fn is_behind(&self, now: Instant) -> bool {
        self.read.is_some_and(|(at, timestamp)| now < at + READING && UnixMillis::now().since(timestamp) > BEHIND)
    }

    /// Does what is due. What is `waiting` for its sink does not read. A request that cannot be sent is shown; the next
    /// pass finds again what it was for.
    pub(super) async fn act<O: Outlet>(&mut self, outlet: &O, lane: &LaneId, waiting: bool, observer: &mut Observer) {
        self.send_fresh(outlet, observer).await;
        let now = Instant::now();
        let is_vain = self.vain.is_some_and(|vain| vain <= now);
        if is_vain && (waiting || self.is_behind(now)) {
            self.vain = Some(now + self.pace.answer);
        } else if is_vain {
            for Vain { table, again, unobtainable } in self.asked.vain(now) {
                if let Some(keys) = unobtainable {
                    observer.unobtainable(&table, keys);
                }
                if let Some((shape, sources)) = self.sources.get(&table).cloned() {
                    self.want(&shape, &sources, &again);
                }
            }
            self.vain = self.asked.next();
        }
        if self.due.is_some_and(|due| due <= now) {
            self.send(outlet, lane, observer).await;
        }
    }

    async fn send_fresh<O: Outlet>(&mut self, outlet: &O, observer: &mut Observer) {
        while let Some(request) = self.fresh.pop() {
            let result = outlet.request(&request).await;
            observer.requested(&request, &result);
        }
    }

    /// Sends one request for rows.
    async fn send<O: Outlet>(&mut self, outlet: &O, lane: &LaneId, observer: &mut Observer) {
        self.due = None;
        let Some(wanted) = self.wanted.last_mut() else { return };
        let keys = wanted.keys.split_off(wanted.keys.len().saturating_sub(KEYS_A_REQUEST));
        let request = snapshot(lane, wanted, &keys);
        let table = wanted.table.name.clone();
        if wanted.keys.is_empty() {
            self.wanted.pop();
        }
        if request.is_none() {
            self.asked.not_sent(&table, &keys);
        }
        if let Some(request) = request {
            let result = outlet.request(&request).await;
            observer.requested(&request, &result);
            let now = Instant::now();
            self.last = Some(now);
            match result {
                Ok(()) => {
                    self.asked.sent(&table, &keys, now);
                    self.vain.get_or_insert(now + self.pace.answer);
                }
                Err(_) => self.asked.not_sent(&table, &keys),
            }
        }
        if !self.wanted.is_empty() {
            self.due = Some(Instant::now() + self.pace.distance);
        }
    }

    /// Sends all that is left, for a lane that ends.
    pub(super) async fn send_all<O: Outlet>(&mut self, outlet: &O, lane: &LaneId, observer: &mut Observer) {
        self.send_fresh(outlet, observer).await;
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
        if self.reads.len() >= RANGES {
            self.reads.clear();
        }
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
fn snapshot(lane: &LaneId, wanted: &Wanted, keys: &[Key]) -> Option<Request> {
    let types = wanted.table.key_types().ok()?;
    let pattern = pattern(&wanted.source);
    Some(Request {
        id: request_id(lane),
        kind: RequestKind::ExecuteSnapshot,
        keys: keys.len(),
        data: json!({
            "data-collections": [identifier(&wanted.source)],
            "type": "incremental",
            "additional-conditions": [{
                "data-collection": pattern,
                "filter": filter(&wanted.table, &types, keys)?,
            }],
        }),
    })
}
