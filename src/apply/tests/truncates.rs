//! Truncates have no key: they are applied where nothing else can be meant.

use std::sync::Arc;

use sink_api::{Offset, TableName, TableShape, testing::MemorySink};
use tokio_util::sync::CancellationToken;

use super::{Parking, change, lane, lane_id, orders, record, shape, sink};
use crate::{
    apply::lane::{LaneEnd, LaneSettings},
    metrics::Metrics,
    record::Record,
    status::StatusBoard,
};

fn truncate(offset: i64) -> Record {
    let source = r#""source":{"connector":"postgresql","name":"shop","db":"app","schema":"inventory","table":"orders","txId":7,"ts_ms":1}"#;
    Record { key: None, ..record(offset, 0, &format!(r#"{{"before":null,"after":null,{source},"op":"t"}}"#)) }
}

async fn apply(sink: &MemorySink, records: Vec<Record>, apply_truncate: bool) -> LaneEnd {
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let (mut lane, _) = lane(sink, records, Parking::default(), metrics, &board, true).await;
    lane.settings = Arc::new(LaneSettings { apply_truncate, ..(*lane.settings).clone() });
    lane.run(CancellationToken::new()).await
}

#[tokio::test]
async fn a_truncate_empties_the_one_table_of_its_topic_when_it_is_to_be_applied() {
    let records = || vec![change(0, 1), truncate(1), change(2, 3)];

    let applied = sink();
    assert_eq!(apply(&applied, records(), true).await, LaneEnd::CaughtUp);
    assert_eq!(applied.rows(&orders()).len(), 1);

    let stopped = sink();
    let end = apply(&stopped, records(), false).await;
    let LaneEnd::Failed { what, hint } = end else { panic!("{end:?}") };
    assert!(what.ends_with("inventory.orders was truncated at the source, at offset 1"), "{what}");
    assert!(hint.contains("--to 2") && hint.contains("--truncate apply"), "{hint}");
    assert_eq!(stopped.state(&lane_id()).map(|state| state.next_offset), Some(Offset(1)));
}

#[tokio::test]
async fn a_truncate_in_a_topic_of_two_tables_stops_the_lane() {
    let sink = sink();
    let lines = TableName::new("inventory", "lines");
    let like = shape();
    sink.create_table(TableShape::new(lines.clone(), like.columns, like.key, vec![]), &[]);
    let mut of_lines = change(0, 1);
    let value = String::from_utf8(of_lines.value.unwrap().to_vec()).unwrap().replace("\"orders\"", "\"lines\"");
    of_lines.value = Some(value.into_bytes().into());

    let end = apply(&sink, vec![of_lines, change(1, 1), truncate(2)], true).await;

    let LaneEnd::Failed { what, hint } = end else { panic!("{end:?}") };
    assert!(what.ends_with("at offset 2, and the topic has changes of inventory.lines as well"), "{what}");
    assert!(hint.contains("--to 3"), "{hint}");
    assert_eq!((sink.rows(&orders()).len(), sink.rows(&lines).len()), (1, 1));
}
