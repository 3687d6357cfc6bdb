//! Topics by which several tables of several connectors come, at random: record forms, keys with and without schemas,
//! tombstones that say more or less, records that cannot be read, drift, statements, restarts. Whatever comes, no row
//! that lives at the source goes, and none comes or stays whose end was read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::{prelude::*, test_runner::Config};
use sink_api::{
    Column, ColumnType, Key, KeyColumn, KeyType, KeyValue, LaneId, Offset, Sink, TableName, TableShape, Value,
    testing::MemorySink,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Given, PACE, Parking, lane_id};
use crate::{
    apply::{
        barrier::Rules,
        feeds::Feeds,
        gaps::Gaps,
        known::KnownTables,
        lane::{Lane, LaneEnd, LaneSettings},
        observer::Observer,
        requests::Requests,
        scope::Scope,
        writer::Writer,
    },
    decode::{DecodeSettings, Decoder, TableMapping},
    metrics::Metrics,
    record::{CONNECTOR_HEADER, Record},
    statement::{Caps, OrphanPolicy},
    status::StatusBoard,
    stream::{Limits, Sequencer, Start, UnitLimits},
};

const CONNECTORS: [&str; 2] = ["shop", "web"];
const TABLES: [&str; 2] = ["orders", "lines"];
const KEYS: i64 = 3;

/// A source table: the connector and the table, by number.
type Source = (usize, usize);

/// How a connector writes its records.
#[derive(Clone, Debug)]
struct Form {
    flattened: bool,
    /// Whether rows name the connector in their source, or in a field.
    names_source: bool,
    /// Whether rows have Debezium's header of the connector.
    context: bool,
    /// Whether what is added to flattened rows stands in headers.
    in_headers: bool,
    /// Whether keys have a schema, and whether it is named after the topic.
    key_schema: Option<bool>,
    /// Whether tombstones have Debezium's header, and what rows have in headers.
    tombstone_context: bool,
    tombstone_added: bool,
    /// Whether deletes of flattened rows are rewritten; else they are tombstones only.
    rewrite: bool,
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Act {
    Put {
        source: Source,
        key: i64,
    },
    /// With its tombstone so many acts later.
    Delete {
        source: Source,
        key: i64,
        later: usize,
    },
    /// A row or a delete that nobody can read, the latter with its tombstone.
    Broken {
        source: Source,
        key: i64,
        delete: bool,
    },
    /// A row at the sink that the source does not have.
    Drift {
        source: Source,
        key: i64,
    },
    /// A bracketed read, with so many acts between its markers.
    Read {
        source: Source,
        window: usize,
    },
    /// The worker is started again, and reads so many records before its frontier.
    Restart {
        memory: i64,
    },
}

impl Act {
    /// The source table of its record.
    fn source(&self) -> Option<Source> {
        match *self {
            Act::Put { source, .. }
            | Act::Delete { source, .. }
            | Act::Broken { source, .. }
            | Act::Read { source, .. } => Some(source),
            Act::Drift { .. } | Act::Restart { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    topic: &'static str,
    /// Whether each connector's tables go to tables of their own; else tables of one name share one.
    apart: bool,
    forms: [Form; 2],
    acts: Vec<Act>,
}

fn form() -> impl Strategy<Value = Form> {
    let bits = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (bits, prop::option::of(any::<bool>()), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |((flattened, names_source, context, in_headers), key_schema, tombstone_context, tombstone_added, rewrite)| {
            Form {
                flattened,
                // Where nothing names the connector nobody can tell: docs/safety.md says so.
                names_source: names_source || !context,
                context,
                in_headers,
                key_schema,
                tombstone_context: tombstone_context && context,
                tombstone_added,
                rewrite,
            }
        },
    )
}

fn act(connectors: usize, tables: usize) -> impl Strategy<Value = Act> {
    let source = (0..connectors, 0..tables);
    (source, 0..KEYS, 0..4_usize, 0..18_u32, 0..12_i64).prop_map(|(source, key, few, what, memory)| match what {
        0..=5 => Act::Put { source, key },
        6..=10 => Act::Delete { source, key, later: few },
        11 | 12 => Act::Broken { source, key, delete: few % 2 == 0 },
        13 => Act::Drift { source, key },
        14 | 15 => Act::Read { source, window: few },
        _ => Act::Restart { memory },
    })
}

fn case() -> impl Strategy<Value = Case> {
    let topics = vec!["shop.inventory.orders", "merged", "all.inventory.lines", "web.inventory.orders"];
    (prop::sample::select(topics), 1..=2_usize, 1..=2_usize, any::<bool>(), [form(), form()]).prop_flat_map(
        |(topic, connectors, tables, apart, forms)| {
            prop::collection::vec(act(connectors, tables), 1..40).prop_map(move |acts| {
                let mut forms = forms.clone();
                for form in forms.iter_mut().filter(|form| form.flattened && !form.rewrite) {
                    // Deletes that are tombstones only have to say their table, where there are several: nothing else
                    // does (docs/safety.md).
                    if connectors * tables > 1 {
                        (form.in_headers, form.tombstone_added, form.tombstone_context) = (true, true, form.context);
                    }
                }
                Case { topic, apart, forms, acts }
            })
        },
    )
}

/// What is known of a key of a sink table.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    /// It lives, with this value.
    Lives(String),
    /// Its last record could not be read, or a side writer wrote.
    Unsure,
}

/// The rows that should be at the sink, by sink table and key; what is not there should not be.
type Truth = BTreeMap<(TableName, i64), Known>;

/// The stream, and what is true after each record.
struct Story<'c> {
    case: &'c Case,
    records: Vec<Record>,
    truth: Truth,
    truths: Vec<Truth>,
    /// Keys that live at the source.
    live: BTreeMap<Source, BTreeSet<i64>>,
    reads: usize,
    values: usize,
}

/// What is done with the worker and the sink, by the number of records before it.
enum Deed {
    Drift(TableName, i64),
    Restart(i64),
}

impl Story<'_> {
    fn key_of(&self, (connector, _): Source, key: i64) -> i64 {
        // Two connectors that write the same row of one table are nobody's set-up.
        if self.case.apart { key } else { key + 100 * connector as i64 }
    }

    fn sink_of(&self, (connector, table): Source) -> TableName {
        let name = if self.case.apart {
            format!("{}_{}", CONNECTORS[connector], TABLES[table])
        } else {
            TABLES[table].to_owned()
        };
        TableName::new("inventory", name)
    }

    fn push(&mut self, key: Option<String>, value: Option<String>, headers: Vec<(String, String)>) {
        let offset = self.records.len() as i64;
        self.records.push(Record {
            offset: Offset(offset),
            timestamp: Some(offset),
            key: key.map(|key| key.into_bytes().into()),
            value: value.map(|value| value.into_bytes().into()),
            headers: headers.into_iter().map(|(name, value)| (name, Some(value.into_bytes().into()))).collect(),
        });
        self.truths.push(self.truth.clone());
    }

    fn key(&self, source: Source, key: i64) -> String {
        let key = self.key_of(source, key);
        match self.case.forms[source.0].key_schema {
            None => format!(r#"{{"id":{key}}}"#),
            Some(by_topic) => {
                let name = if by_topic {
                    self.case.topic.to_owned()
                } else {
                    format!("{}.inventory.{}", CONNECTORS[source.0], TABLES[source.1])
                };
                format!(
                    r#"{{"schema":{{"type":"struct","fields":[{{"type":"int64","optional":false,"field":"id"}}],"optional":false,"name":"{name}.Key"}},"payload":{{"id":{key}}}}}"#
                )
            }
        }
    }

    /// What `ExtractNewRecordState` adds.
    fn added(&self, (connector, table): Source, delete: bool) -> Vec<(String, String)> {
        let form = &self.case.forms[connector];
        let mut added = vec![
            ("__op".to_owned(), if delete { "d" } else { "u" }.to_owned()),
            ("__schema".to_owned(), "inventory".to_owned()),
            ("__table".to_owned(), TABLES[table].to_owned()),
            ("__txId".to_owned(), "7".to_owned()),
        ];
        if form.names_source {
            added.push(("__source_name".to_owned(), CONNECTORS[connector].to_owned()));
        }
        added
    }

    /// A change's value and headers; `value` is that of the row, `None` is a delete.
    fn change(&self, source: Source, key: i64, value: Option<&str>) -> (String, Vec<(String, String)>) {
        let (connector, table) = source;
        let form = &self.case.forms[connector];
        let key = self.key_of(source, key);
        let mut headers = Vec::new();
        if form.context {
            headers.push((CONNECTOR_HEADER.to_owned(), CONNECTORS[connector].to_owned()));
        }
        let row = value.map(|value| format!(r#"{{"id":{key},"v":"{value}"}}"#));
        if !form.flattened {
            let name =
                if form.names_source { format!(r#""name":"{}","#, CONNECTORS[connector]) } else { String::new() };
            let (after, op) = row.as_deref().map_or(("null", "d"), |row| (row, "u"));
            let value = format!(
                r#"{{"before":null,"after":{after},"source":{{{name}"db":"app","schema":"inventory","table":"{}","txId":7}},"op":"{op}"}}"#,
                TABLES[table]
            );
            return (value, headers);
        }
        let added = self.added(source, value.is_none());
        let mut fields = vec![format!(r#""id":{key}"#), format!(r#""v":"{}""#, value.unwrap_or_default())];
        fields.push(format!(r#""__deleted":"{}""#, value.is_none()));
        if form.in_headers {
            headers.extend(added);
        } else {
            fields.extend(added.iter().map(|(name, value)| format!(r#""{name}":"{value}""#)));
        }
        (format!("{{{}}}", fields.join(",")), headers)
    }

    fn tombstone(&mut self, source: Source, key: i64) {
        let form = &self.case.forms[source.0];
        let mut headers = Vec::new();
        if form.tombstone_context {
            headers.push((CONNECTOR_HEADER.to_owned(), CONNECTORS[source.0].to_owned()));
        }
        if form.flattened && form.in_headers && form.tombstone_added {
            headers.extend(self.added(source, true));
        }
        self.push(Some(self.key(source, key)), None, headers);
    }

    fn put(&mut self, source: Source, key: i64) {
        self.values += 1;
        let value = format!("v{}", self.values);
        self.live.entry(source).or_default().insert(key);
        let at = (self.sink_of(source), self.key_of(source, key));
        self.truth.insert(at, Known::Lives(value.clone()));
        let (value, headers) = self.change(source, key, Some(&value));
        self.push(Some(self.key(source, key)), Some(value), headers);
    }

    /// Returns whether the delete has a tombstone of its own.
    fn delete(&mut self, source: Source, key: i64) -> bool {
        self.live.entry(source).or_default().remove(&key);
        let at = (self.sink_of(source), self.key_of(source, key));
        let form = self.case.forms[source.0].clone();
        if form.flattened && !form.rewrite {
            // The tombstone is all that comes. One that does not say its table may be nobody's.
            self.truth.insert(at, Known::Unsure);
            self.tombstone(source, key);
            return false;
        }
        self.truth.remove(&at);
        let (value, headers) = self.change(source, key, None);
        self.push(Some(self.key(source, key)), Some(value), headers);
        true
    }

    fn broken(&mut self, source: Source, key: i64, delete: bool) {
        let at = (self.sink_of(source), self.key_of(source, key));
        let live = self.live.entry(source).or_default();
        if delete {
            live.remove(&key)
        } else {
            live.insert(key)
        };
        self.truth.insert(at, Known::Unsure);
        let (value, headers) = self.change(source, key, Some("x"));
        self.push(Some(self.key(source, key)), Some(value[..value.len() / 2].to_owned()), headers);
        if delete {
            self.tombstone(source, key);
        }
    }

    fn marker(&mut self, source: Source, payload: String) {
        let form = &self.case.forms[source.0];
        let connector = CONNECTORS[source.0];
        let mut headers = Vec::new();
        if form.context {
            headers.push((CONNECTOR_HEADER.to_owned(), connector.to_owned()));
        }
        let name = if form.names_source { format!(r#""name":"{connector}","#) } else { String::new() };
        let content = STANDARD.encode(payload);
        let value = format!(
            r#"{{"op":"m","source":{{{name}"db":"app","schema":"","table":"","txId":7}},"message":{{"prefix":"sink-repair","content":"{content}"}}}}"#
        );
        self.push(Some(r#"{"prefix":"sink-repair"}"#.to_owned()), Some(value), headers);
    }

    fn low(&mut self, source: Source) -> String {
        self.reads += 1;
        let read = format!(
            r#""v":1,"read_id":"r-{}","table":"inventory.{}","topic":"{}","connector":"{}""#,
            self.reads, TABLES[source.1], self.case.topic, CONNECTORS[source.0]
        );
        self.marker(source, format!(r#"{{{read},"kind":"low"}}"#));
        read
    }

    fn close(&mut self, source: Source, read: &str) {
        let keys = self.live.get(&source).cloned().unwrap_or_default();
        let selected: Vec<String> = keys.iter().map(|key| self.key_of(source, *key).to_string()).collect();
        let payload = format!(
            r#"{{{read},"kind":"chunk","part":1,"parts":1,"range":{{"lower":{{"open":true}},"upper":{{"open":true}}}},"selected":[{}],"key_columns":["id"],"key_types":["bigint"],"snapshot":"9:9:","settled":true}}"#,
            selected.join(",")
        );
        self.marker(source, payload);
    }
}

/// Plays the acts; what is due later comes before the act then.
fn tell(case: &Case) -> (Vec<Record>, Vec<Truth>, Vec<(usize, Deed)>) {
    enum Due {
        Tombstone(Source, i64),
        Close(Source, String),
    }
    let mut story = Story {
        case,
        records: Vec::new(),
        truth: Truth::new(),
        truths: vec![Truth::new()],
        live: BTreeMap::new(),
        reads: 0,
        values: 0,
    };
    let (mut due, mut deeds): (Vec<(usize, Due)>, Vec<_>) = (Vec::new(), Vec::new());
    for (at, act) in case.acts.iter().enumerate() {
        // A connector writes a tombstone right after its delete: only others come between.
        let connector = act.source().map(|(connector, _)| connector);
        let (now, later): (Vec<_>, Vec<_>) = due.into_iter().partition(|(when, due)| {
            *when <= at || matches!(due, Due::Tombstone((of, _), _) if connector == Some(*of))
        });
        due = later;
        let (first, then): (Vec<_>, Vec<_>) = now.into_iter().partition(|(_, due)| matches!(due, Due::Tombstone(..)));
        let now = first.into_iter().chain(then);
        for (_, due) in now {
            match due {
                Due::Tombstone(source, key) => story.tombstone(source, key),
                Due::Close(source, read) => story.close(source, &read),
            }
        }
        match *act {
            Act::Put { source, key } => story.put(source, key),
            Act::Delete { source, key, later } => {
                if story.delete(source, key) {
                    due.push((at + 1 + later, Due::Tombstone(source, key)));
                }
            }
            Act::Broken { source, key, delete } => story.broken(source, key, delete),
            Act::Drift { source, key } => {
                let at = (story.sink_of(source), story.key_of(source, key));
                if !story.truth.contains_key(&at) {
                    story.truth.insert(at.clone(), Known::Unsure);
                    *story.truths.last_mut().unwrap() = story.truth.clone();
                    deeds.push((story.records.len(), Deed::Drift(at.0, at.1)));
                }
            }
            Act::Read { source, window } => {
                let read = story.low(source);
                due.push((at + 1 + window, Due::Close(source, read)));
            }
            Act::Restart { memory } => deeds.push((story.records.len(), Deed::Restart(memory))),
        }
    }
    (story.records, story.truths, deeds)
}

fn table(name: TableName) -> TableShape {
    let column = |name: &str, column_type, type_name: &str, nullable| Column {
        name: name.into(),
        column_type,
        type_name: type_name.into(),
        nullable,
        generated: false,
        has_default: false,
    };
    let columns =
        vec![column("id", ColumnType::Int64, "bigint", false), column("v", ColumnType::Text(None), "text", true)];
    TableShape::new(name, columns, vec![KeyColumn { column: 0, key_type: Ok(KeyType::Int), order: Ok(()) }], vec![])
}

/// One life of a lane, up to the record `end`.
async fn live(case: &Case, sink: &MemorySink, records: &[Record], memory: i64) -> LaneEnd {
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let id = LaneId { topic: case.topic.into(), ..lane_id() };
    let claimed = sink.claim(&id).await.unwrap();
    let frontier = claimed.state.as_ref().map_or(Offset(0), |state| state.next_offset);
    let window = claimed.state.as_ref().map_or(Offset(0), |state| state.memory_offset);
    let from = window.0.min(frontier.0 - memory);
    let start =
        Start { frontier, highest_xid: None, unknown_past: false, first_partition_count: 1, partition_count: 1 };
    let sequencer = Sequencer::new(start, Limits::default());
    let (waits, waited) = watch::channel(None);
    let rules = Arc::new(Rules { caps: Caps::default(), policy: OrphanPolicy::Remove });
    let parking = Parking::keeping(&Arc::new(Mutex::new(Vec::new())));
    let template = if case.apart { "{schema}.{connector}_{table}" } else { "{schema}.{table}" };
    let settings = DecodeSettings { mapping: TableMapping::parse(template).unwrap(), ..DecodeSettings::default() };
    let status = board.lane(&id.topic, id.partition);
    let lane = Lane {
        settings: Arc::new(LaneSettings {
            unit: UnitLimits { rows: 3, bytes: 1 << 20, statements: 4 },
            delay: Duration::ZERO,
            grace: Duration::from_secs(1),
            apply_truncate: false,
            until_caught_up: true,
        }),
        sink: sink.clone(),
        records: Given {
            records: records.iter().filter(|record| record.offset.0 >= from).cloned().collect(),
            committed: Arc::default(),
            more: None,
        },
        outlet: parking.clone(),
        observer: Observer::new(id.clone(), metrics, status),
        waits: waited,
        decoder: Decoder::new(Arc::new(settings), &id.topic).carrying(claimed.sources),
        known: KnownTables::default(),
        feeds: Feeds::default(),
        requests: Requests::new(PACE),
        writer: Some(Writer::new(sink.clone(), claimed.lane, parking, rules, claimed.state, sequencer.state(), waits)),
        sequencer,
        id,
        placeless: false,
        gaps: Gaps::new(Offset(from.max(0))),
        scope: Scope::new(0, 1),
    };
    tokio::time::timeout(Duration::from_secs(20), lane.run(CancellationToken::new())).await.unwrap()
}

/// What the cases came to.
#[derive(Debug, Default)]
struct Report {
    cases: u32,
    stopped: u32,
    statements: u32,
    applied: u32,
    removed: usize,
}

async fn run(case: &Case, report: &Mutex<Report>) -> Result<(), String> {
    let (records, truths, deeds) = tell(case);
    let sink = MemorySink::new();
    for connector in CONNECTORS {
        for name in TABLES {
            let name = if case.apart { format!("{connector}_{name}") } else { name.to_owned() };
            sink.create_table(table(TableName::new("inventory", name)), &[]);
        }
    }
    let mut memory = 0;
    let mut end = LaneEnd::CaughtUp;
    for (upto, deed) in deeds.iter().map(|(at, deed)| (*at, Some(deed))).chain([(records.len(), None)]) {
        end = live(case, &sink, &records[..upto], memory).await;
        if !matches!(end, LaneEnd::CaughtUp) {
            break;
        }
        match deed {
            Some(Deed::Drift(table, key)) => sink.put(table, vec![Value::Int(*key), Value::Text("drift".into())]),
            Some(Deed::Restart(records)) => memory = *records,
            None => {}
        }
    }
    let id = LaneId { topic: case.topic.into(), ..lane_id() };
    let frontier = sink.state(&id).map_or(0, |state| state.next_offset.0);
    {
        let mut report = report.lock().unwrap();
        report.cases += 1;
        report.stopped += u32::from(!matches!(end, LaneEnd::CaughtUp));
        report.removed += sink.removed().len();
        for recorded in sink.statements() {
            report.statements += 1;
            report.applied += u32::from(recorded.statement.verdict == sink_api::Verdict::Applied);
        }
    }
    check(case, &sink, &truths[frontier as usize]).map_err(|what| {
        let shown = |record: &Record| {
            let text = |bytes: &Option<Box<[u8]>>| {
                bytes.as_deref().map_or("null".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
            };
            let headers: Vec<_> =
                record.headers.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
            format!("{} {} {} {headers:?}", record.offset, text(&record.key), text(&record.value))
        };
        let stream: Vec<String> = records.iter().map(shown).collect();
        format!("{what}\nfrontier {frontier}, {end:?}\n{}", stream.join("\n"))
    })
}

fn check(case: &Case, sink: &MemorySink, truth: &Truth) -> Result<(), String> {
    for connector in CONNECTORS {
        for table in TABLES {
            let name = if case.apart { format!("{connector}_{table}") } else { table.to_owned() };
            let name = TableName::new("inventory", name);
            let rows: BTreeMap<Key, Value> =
                sink.rows(&name).into_iter().map(|(key, row)| (key, row[1].clone())).collect();
            for key in (0..KEYS).chain(100..100 + KEYS) {
                let row = rows.get(&Key::encode(&[KeyType::Int], &[KeyValue::Int(key)]).unwrap());
                match (truth.get(&(name.clone(), key)), row) {
                    (Some(Known::Lives(value)), Some(Value::Text(found))) if **found == **value => {}
                    (Some(Known::Lives(value)), found) => {
                        return Err(format!("{name} {key}: lives with {value}, found {found:?}"));
                    }
                    (Some(Known::Unsure), _) | (None, None) => {}
                    (None, Some(found)) => return Err(format!("{name} {key}: is gone, found {found:?}")),
                }
            }
        }
    }
    Ok(())
}

#[test]
fn no_row_is_lost_or_kept_by_what_another_table_s_records_say() {
    let cases = std::env::var("MERGED_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(600);
    let report = Mutex::new(Report::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    proptest!(Config { cases, failure_persistence: None, ..Config::default() }, |(case in case())| {
        runtime.block_on(run(&case, &report)).map_err(TestCaseError::fail)?;
    });
    let report = report.into_inner().unwrap();
    assert!(report.applied * 4 > report.statements, "hardly a statement is applied: {report:?}");
    assert!(report.stopped * 4 < report.cases, "too many lanes stop: {report:?}");
    assert!(report.removed > 0);
}
