#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::{
    Batch, Claimed, Column, ColumnType, DifferenceQuery, ErrorClass, Extent, Key, KeyColumn, KeyList, KeyRange, KeySet,
    KeyType, KeyValue, LaneId, LaneState, MergedChange, Offset, Partition, ReadId, Removal, Row, Sink, SinkError,
    SinkLane, TableBatch, TableName, TableShape, TopicId, Unit, Value,
};

struct InMemory(MemorySink);

impl Fixture for InMemory {
    type Sink = MemorySink;

    fn sink(&self) -> &MemorySink {
        &self.0
    }

    async fn rows(&self, table: &TableName) -> Vec<Row> {
        self.0.rows(table).into_iter().map(|(_, row)| row).collect()
    }

    async fn recorded(&self, read_id: &ReadId) -> Vec<Recorded> {
        let statements = self.0.statements().into_iter().filter(|known| known.statement.read_id == *read_id);
        statements
            .map(|RecordedStatement { statement, orphans, .. }| Recorded {
                verdict: statement.verdict.as_str().into(),
                rule: statement.verdict.reason().map(|(rule, _)| rule.as_str().into()),
                orphans: statement.orphans,
                removed: statement.removed,
                missing: statement.missing,
                spared: statement.spared,
                in_range: statement.in_range,
                named_orphans: orphans.len() as u64,
            })
            .collect()
    }

    async fn age(&self, by: Duration) {
        self.0.advance(by);
    }
}

fn column(name: &str, column_type: ColumnType, nullable: bool, has_default: bool) -> Column {
    let type_name = if column_type == ColumnType::Int64 { "bigint" } else { "text" }.to_owned();
    Column { name: name.into(), column_type, type_name, nullable, generated: false, has_default }
}

fn key_column(column: usize, key_type: KeyType) -> KeyColumn {
    KeyColumn { column, key_type: Ok(key_type), order: Ok(()) }
}

fn contract_sink() -> MemorySink {
    let sink = MemorySink::new();
    let (int, text) = (ColumnType::Int64, ColumnType::Text(None));
    let items = vec![
        column("id", int.clone(), false, false),
        column("name", text.clone(), true, false),
        column("state", text.clone(), false, true),
        column("body", text.clone(), true, false),
    ];
    let lines = vec![
        column("quantity", int.clone(), true, false),
        column("line", int, false, false),
        column("code", text, false, false),
    ];
    let items = TableShape::new(TableName::new("contract", ITEMS), items, vec![key_column(0, KeyType::Int)], vec![]);
    let lines_key = vec![key_column(2, KeyType::Text), key_column(1, KeyType::Int)];
    let lines = TableShape::new(TableName::new("contract", LINES), lines, lines_key, vec![]);
    sink.create_table(items, &[("state", Value::Text("new".into()))]);
    sink.create_table(lines, &[]);
    sink
}

#[test]
fn the_sink_in_memory_keeps_the_contract() {
    ready(assert_contract(async || InMemory(contract_sink())));
}

fn lane_id() -> LaneId {
    LaneId { name: "w".into(), topic: "t".into(), topic_id: TopicId([1; 16]), partition: Partition(0) }
}

fn state(offset: i64) -> LaneState {
    LaneState {
        next_offset: Offset(offset),
        memory_offset: Offset(offset),
        highest_xid: None,
        unknown_past: false,
        partition_count: 1,
    }
}

fn item_key(id: i64) -> Key {
    Key::encode(&[KeyType::Int], &[KeyValue::Int(id)]).unwrap()
}

fn items(sink: &MemorySink, ids: &[i64]) -> Batch {
    let table = ready(sink.describe(&TableName::new("contract", ITEMS))).unwrap();
    let row = |id: i64| [Value::Int(id), Value::Null, Value::Absent, Value::Null].into();
    let changes = ids.iter().map(|id| (item_key(*id), Offset(*id), MergedChange::Upsert(row(*id)))).collect();
    Batch { tables: vec![TableBatch { table, changes }] }
}

fn ids(sink: &MemorySink) -> Vec<Key> {
    sink.rows(&TableName::new("contract", ITEMS)).into_iter().map(|(key, _)| key).collect()
}

fn claim(sink: &MemorySink) -> MemoryLane {
    ready(sink.claim(&lane_id())).unwrap().lane
}

/// Writes item 1 from nothing to offset 10.
fn attempt(sink: &MemorySink, lane: &mut MemoryLane) -> Result<(), SinkError> {
    let batch = items(sink, &[1]);
    ready(async {
        let mut unit = lane.begin(None).await?;
        unit.write(&batch).await?;
        unit.commit(&state(10)).await
    })
}

#[test]
fn a_fault_strikes_once_and_leaves_nothing_but_the_lost_reply() {
    let cases = [
        (Fault::Begin, ErrorClass::Transient),
        (Fault::Write(ErrorClass::Transient), ErrorClass::Transient),
        (Fault::Write(ErrorClass::Data), ErrorClass::Data),
        (Fault::Commit(ErrorClass::Transient), ErrorClass::Transient),
        (Fault::Commit(ErrorClass::Configuration), ErrorClass::Configuration),
    ];

    for (fault, class) in cases {
        let sink = contract_sink();
        let mut lane = claim(&sink);
        sink.inject(fault);

        let struck = attempt(&sink, &mut lane).unwrap_err().class;

        assert_eq!((struck, sink.faults_left()), (class, 0), "{fault:?}");
        assert_eq!((ids(&sink), ready(lane.committed()).unwrap()), (vec![], None), "{fault:?}");
        attempt(&sink, &mut lane).unwrap();
        assert_eq!(ids(&sink), [item_key(1)]);
    }
}

#[test]
fn a_lost_reply_is_transient_and_the_lane_can_find_out() {
    let sink = contract_sink();
    let mut lane = claim(&sink);
    sink.inject(Fault::CommitReply);

    let lost = attempt(&sink, &mut lane).unwrap_err().class;

    assert_eq!((lost, ids(&sink)), (ErrorClass::Transient, vec![item_key(1)]));
    assert_eq!(ready(lane.committed()).unwrap(), Some(state(10)));
    assert_eq!(sink.state(&lane_id()), Some(state(10)));
}

#[test]
fn a_lane_lost_at_commit_is_fenced_for_good() {
    let sink = contract_sink();
    let mut lane = claim(&sink);
    sink.inject(Fault::LaneLost);

    let lost = attempt(&sink, &mut lane).unwrap_err().class;

    assert_eq!((lost, ids(&sink)), (ErrorClass::Fenced, vec![]));
    assert_eq!(attempt(&sink, &mut lane).unwrap_err().class, ErrorClass::Fenced);
    assert_eq!(ready(lane.committed()).unwrap_err().class, ErrorClass::Fenced);
}

#[test]
fn a_fault_in_the_middle_of_a_unit_kills_it() {
    let sink = contract_sink();
    let mut lane = claim(&sink);
    let table = ready(sink.describe(&TableName::new("contract", ITEMS))).unwrap();
    let (keys, none, read_id) = ([item_key(1)].iter().collect(), KeyList::new(), ReadId("r".into()));
    let (extent, selected) = (Extent::Range(KeyRange::ALL), KeySet::List(KeyList::new()));
    let removal = Removal { table: &table, keys: &keys, read_id: &read_id, offset: Offset(1) };
    let query = DifferenceQuery {
        table: &table,
        extent: &extent,
        selected: &selected,
        spared: &none,
        name_orphans: 1,
        name_missing: 1,
    };

    for fault in [Fault::Difference, Fault::Remove] {
        sink.inject(fault);
        let (struck, commit) = ready(async {
            let mut unit = lane.begin(None).await.unwrap();
            unit.write(&items(&sink, &[1])).await.unwrap();
            let found = unit.difference(&query).await.map(|_| ());
            let struck = if found.is_ok() { unit.remove(&removal).await.map(|_| ()) } else { found };
            (struck, unit.commit(&state(10)).await)
        });
        assert_eq!(struck.unwrap_err().code.as_deref(), Some("injected"), "{fault:?}");
        assert!(commit.is_err(), "{fault:?}");
        assert_eq!((ids(&sink), sink.state(&lane_id()), sink.faults_left()), (vec![], None, 0));
    }
}

#[test]
fn a_seized_lane_is_fenced() {
    let sink = contract_sink();
    let mut lane = claim(&sink);

    sink.seize(&lane_id());

    assert_eq!(attempt(&sink, &mut lane).unwrap_err().class, ErrorClass::Fenced);
}

#[test]
fn a_fault_can_let_operations_of_its_kind_pass_first() {
    let sink = contract_sink();
    sink.inject_after(1, Fault::Claim);
    sink.inject(Fault::Committed);

    let mut lane = claim(&sink);
    let second: Result<Claimed<MemoryLane>, SinkError> = ready(sink.claim(&lane_id()));
    let asked = ready(lane.committed()).unwrap_err().class;

    assert_eq!(second.unwrap_err().class, ErrorClass::Transient);
    assert_eq!((asked, sink.faults_left()), (ErrorClass::Transient, 0));
    // The claim that failed took nothing from the first owner.
    attempt(&sink, &mut lane).unwrap();
}

#[test]
fn a_poisoned_key_fails_every_batch_with_it_as_data() {
    let sink = contract_sink();
    let mut lane = claim(&sink);
    let table = TableName::new("contract", ITEMS);
    sink.poison(&table, &item_key(2), true);
    let mut write = |ids: &[i64]| {
        let batch = items(&sink, ids);
        ready(async { lane.begin(None).await?.write(&batch).await }).map_err(|error| error.class)
    };

    assert_eq!(write(&[1, 2, 3]).unwrap_err(), ErrorClass::Data);
    assert_eq!(write(&[2]).unwrap_err(), ErrorClass::Data);
    assert_eq!(write(&[1, 3]).unwrap().upserted, 2);
    sink.poison(&table, &item_key(2), false);
    assert_eq!(write(&[1, 2, 3]).unwrap().upserted, 3);
}

#[test]
fn a_sink_that_is_down_answers_nothing_and_forgets_nothing() {
    let sink = contract_sink();
    let mut lane = claim(&sink);
    attempt(&sink, &mut lane).unwrap();

    sink.set_down(true);
    let classes = [
        ready(sink.describe(&TableName::new("contract", ITEMS))).unwrap_err().class,
        ready(sink.claim(&lane_id())).unwrap_err().class,
        ready(sink.expire_removed("w", Duration::ZERO)).unwrap_err().class,
        ready(lane.committed()).unwrap_err().class,
        ready(lane.begin(Some(&state(10)))).unwrap_err().class,
    ];
    sink.set_down(false);

    assert_eq!(classes, [ErrorClass::Transient; 5]);
    assert_eq!(ready(lane.committed()).unwrap(), Some(state(10)));
    assert_eq!(ids(&sink), [item_key(1)]);
}

#[test]
fn a_side_writer_reaches_the_tables_past_the_contract() {
    let sink = contract_sink();
    let lines = TableName::new("contract", LINES);

    sink.put(&lines, [Value::Int(5), Value::Int(1), Value::Text("a".into())]);
    let (key, row) = sink.rows(&lines).remove(0);

    assert_eq!(key.decode(&[KeyType::Text, KeyType::Int]).unwrap(), [KeyValue::Text("a".into()), KeyValue::Int(1)]);
    assert_eq!(row[0], Value::Int(5));
    assert_eq!((sink.delete(&lines, &key), sink.delete(&lines, &key)), (true, false));
}

#[test]
fn a_removed_row_s_copy_says_who_removed_it_and_when() {
    let sink = contract_sink();
    let mut lane = claim(&sink);
    attempt(&sink, &mut lane).unwrap();
    sink.advance(Duration::from_secs(1));
    let table = ready(sink.describe(&TableName::new("contract", ITEMS))).unwrap();
    let (keys, read_id): (KeyList, _) = ([item_key(1)].iter().collect(), ReadId("r".into()));

    ready(async {
        let mut unit = lane.begin(Some(&state(10))).await.unwrap();
        let removal = Removal { table: &table, keys: &keys, read_id: &read_id, offset: Offset(15) };
        unit.remove(&removal).await.unwrap();
        unit.commit(&state(20)).await.unwrap();
    });

    let row: Row = [Value::Int(1), Value::Null, Value::Text("new".into()), Value::Null].into();
    let copy = RemovedRow {
        table: table.name.clone(),
        key: item_key(1),
        row,
        read_id,
        lane: lane_id(),
        offset: Offset(15),
        at: 1_000_000,
        restored: false,
    };
    assert_eq!(sink.removed(), [copy]);
}
