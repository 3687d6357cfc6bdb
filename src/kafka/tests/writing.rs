//! Producing, and fetching one record whole.

use super::*;
use crate::record::{Header, RawRecord};

#[tokio::test(flavor = "multi_thread")]
async fn a_record_comes_back_whole_with_null_and_empty_told_apart() {
    let cluster = Cluster::new("orders", 2);
    let headers: Vec<Header> = vec![
        ("a".into(), Some(b"1".as_slice().into())),
        ("__debezium.context.task".into(), None),
        ("a".into(), Some([].into())),
        ("sink-repair.kind".into(), Some([0xff].into())),
    ];
    let written =
        [(Some(b"k".as_slice()), None), (None, Some(b"".as_slice())), (Some(b"".as_slice()), Some(b"v".as_slice()))];
    for (i, (key, value)) in written.into_iter().enumerate() {
        let record = Outgoing {
            topic: "orders",
            partition: Some(Partition(1)),
            key,
            value,
            timestamp: Some(1_700_000_000_000 + i as i64),
            headers: &headers,
        };
        let place = cluster.producer.send(&record).await.unwrap();
        assert_eq!(place, (Partition(1), Offset(i as i64)));
    }

    for (i, (key, value)) in written.into_iter().enumerate() {
        let offset = Offset(i as i64);
        let fetched =
            fetch_one(&client(&cluster.mock, &[]), "repair", &TopicPartition::new("orders", 1), offset, PATIENCE).await;
        let expected = RawRecord {
            offset,
            timestamp: Some(1_700_000_000_000 + i as i64),
            key: key.map(Box::from),
            value: value.map(Box::from),
            headers: headers.clone(),
        };
        assert_eq!(fetched.unwrap(), expected);
    }

    let mut worker = Worker::start(cluster.settings("orders", &[]));
    let assignments = worker.assigned().await;
    let mut records = assignments[1].start(StartAt::Offset(Offset(1))).await.unwrap();
    let chunk = within("records", records.next_chunk()).await.unwrap().unwrap();
    assert_eq!((chunk.records[0].key.clone(), chunk.records[0].value.clone()), (None, Some([].into())));
    assert_eq!(chunk.records[0].headers, headers[3..], "only what decoding looks at");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_not_there_is_not_waited_for() {
    let cluster = Cluster::new("orders", 1);
    cluster.write("orders", 0, 0..3, 0).await;
    let partition = TopicPartition::new("orders", 0);
    let settings = client(&cluster.mock, &[]);

    for offset in [3, 77] {
        let err = fetch_one(&settings, "repair", &partition, Offset(offset), PATIENCE).await.unwrap_err();
        assert_eq!(err.to_string(), format!("orders-0: record {offset} is not in the log any more"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_that_is_not_acknowledged_is_an_error() {
    let cluster = Cluster::new("orders", 1);
    // Long enough for the first record, which waits for the connection and the producer's id.
    let producer = Producer::new(&client(&cluster.mock, &[("message.timeout.ms", "5000")])).unwrap();
    let record = Outgoing { topic: "orders", value: Some(b"v"), ..Outgoing::default() };
    producer.send(&record).await.unwrap();
    cluster.mock.broker_down(1).unwrap();

    let err = within("an answer", producer.send(&record)).await.unwrap_err();

    assert!(matches!(err, SendError::Unacknowledged { .. }), "{err}");
}
