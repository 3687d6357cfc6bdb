//! Dead letters, exactly as Kafka Connect writes them (`DeadLetterQueueReporter`).
//!
//! The record as it was (key, value, timestamp, headers in order), then ten `__connect.errors.*` headers in Connect's
//! order, all values UTF-8 text. Tools that replay or inspect Connect's queues read ours.

use sink_api::{Offset, Partition};

use crate::{
    decode::Stage,
    record::{Header, RawRecord},
};

/// Where a record came from, and why it was parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The topic that it was read from.
    pub topic: &'a str,
    /// The partition that it was read from.
    pub partition: Partition,
    /// Its offset there.
    pub offset: Offset,
    /// The worker's name (`--name`), in the place of the connector's.
    pub worker: &'a str,
    /// Where in the line it failed.
    pub stage: Stage,
    /// What stood for the class that ran: a converter's, by its Java name. For [`Stage::TaskPut`] it is Connect's own.
    pub class: &'a str,
    /// The exception's Java name, for tools that sort by it (`org.apache.kafka.connect.errors.DataException`, ...).
    pub exception: &'a str,
    /// What went wrong, without row data. `None` makes a header with a null value.
    pub message: Option<&'a str>,
    /// The chain of causes.
    pub trace: &'a str,
}

/// The class that Connect names for every failure in `put`.
const SINK_TASK: &str = "org.apache.kafka.connect.sink.SinkTask";

/// The header of the stack trace, which is shortened first.
const TRACE: &str = "__connect.errors.exception.stacktrace";
/// The header of the message, which is shortened next.
const MESSAGE: &str = "__connect.errors.exception.message";

/// What a shortened text ends with.
const CUT: &str = "... (cut to fit the topic)";

/// Returns the headers of a dead letter: the record's own, then Connect's ten.
pub fn headers(original: &RawRecord, failure: &Failure<'_>) -> Vec<Header> {
    let class = if failure.stage == Stage::TaskPut { SINK_TASK } else { failure.class };
    let partition = failure.partition.to_string();
    let offset = failure.offset.to_string();
    // A worker has no tasks; a lane is the nearest thing to one.
    let task = partition.clone();
    let mut headers = original.headers.clone();
    headers.extend(
        [
            ("__connect.errors.topic", Some(failure.topic)),
            ("__connect.errors.partition", Some(partition.as_str())),
            ("__connect.errors.offset", Some(offset.as_str())),
            ("__connect.errors.connector.name", Some(failure.worker)),
            ("__connect.errors.task.id", Some(task.as_str())),
            ("__connect.errors.stage", Some(stage_name(failure.stage))),
            ("__connect.errors.class.name", Some(class)),
            ("__connect.errors.exception.class.name", Some(failure.exception)),
            (MESSAGE, failure.message),
            (TRACE, Some(failure.trace)),
        ]
        .map(|(name, value)| (name.to_owned(), value.map(|text| text.as_bytes().into()))),
    );
    headers
}

/// Shortens the headers of a dead letter that the topic does not take by about `excess` bytes, as far as they go: the
/// stack trace first, then the message. Returns by how many; the record itself is never shortened.
pub fn shorten(headers: &mut [Header], excess: usize) -> usize {
    let (mut left, mut taken) = (excess, 0);
    for name in [TRACE, MESSAGE] {
        // The last one is ours: the record may itself have been a dead letter.
        let text = headers.iter_mut().rev().find(|(header, _)| header == name).and_then(|(_, value)| value.as_mut());
        if left > 0
            && let Some(text) = text
        {
            let cut = shorten_text(text, left);
            left = left.saturating_sub(cut);
            taken += cut;
        }
    }
    taken
}

/// Takes at least `excess` bytes from the end, if there are as many. Returns how many it took.
fn shorten_text(text: &mut Box<[u8]>, excess: usize) -> usize {
    let before = text.len();
    if before <= CUT.len() {
        return 0;
    }
    let mut keep = before.saturating_sub(excess + CUT.len());
    // The first byte that goes must begin a character.
    while keep > 0 && text[keep] & 0b1100_0000 == 0b1000_0000 {
        keep -= 1;
    }
    *text = [&text[..keep], CUT.as_bytes()].concat().into();
    before - text.len()
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::KeyConverter => "KEY_CONVERTER",
        Stage::ValueConverter => "VALUE_CONVERTER",
        Stage::TaskPut => "TASK_PUT",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn record() -> RawRecord {
        RawRecord {
            offset: Offset(41),
            timestamp: Some(7),
            key: None,
            value: None,
            headers: vec![("trace".into(), Some([0xff, 0x00].into())), ("trace".into(), None)],
        }
    }

    fn failure() -> Failure<'static> {
        Failure {
            topic: "inventory.orders",
            partition: Partition(3),
            offset: Offset(41),
            worker: "orders-to-search",
            stage: Stage::ValueConverter,
            class: "org.apache.kafka.connect.json.JsonConverter",
            exception: "org.apache.kafka.connect.errors.DataException",
            message: Some("column `total` is no number"),
            trace: "org.apache.kafka.connect.errors.DataException: column `total` is no number",
        }
    }

    fn text(header: &Header) -> (String, String) {
        let (name, value) = header;
        (name.clone(), value.as_deref().map_or("(null)".into(), |value| String::from_utf8(value.to_vec()).unwrap()))
    }

    #[test]
    fn connects_ten_headers_follow_the_records_own_in_connects_order_as_text() {
        let headers = headers(&record(), &failure());

        assert_eq!(headers[..2], record().headers);
        let ours: Vec<_> = headers[2..].iter().map(text).collect();
        let expected = [
            ("__connect.errors.topic", "inventory.orders"),
            ("__connect.errors.partition", "3"),
            ("__connect.errors.offset", "41"),
            ("__connect.errors.connector.name", "orders-to-search"),
            ("__connect.errors.task.id", "3"),
            ("__connect.errors.stage", "VALUE_CONVERTER"),
            ("__connect.errors.class.name", "org.apache.kafka.connect.json.JsonConverter"),
            ("__connect.errors.exception.class.name", "org.apache.kafka.connect.errors.DataException"),
            ("__connect.errors.exception.message", "column `total` is no number"),
            (
                "__connect.errors.exception.stacktrace",
                "org.apache.kafka.connect.errors.DataException: column `total` is no number",
            ),
        ];
        assert_eq!(ours, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_failure_in_put_names_connects_sink_task() {
        let headers = headers(&record(), &Failure { stage: Stage::TaskPut, message: None, ..failure() });

        assert_eq!(text(&headers[8]).1, "org.apache.kafka.connect.sink.SinkTask");
        assert_eq!(headers[10], ("__connect.errors.exception.message".into(), None));
    }

    #[test]
    fn the_stack_trace_is_shortened_before_the_message_and_the_record_never() {
        let trace = "é".repeat(500);
        let mut headers = headers(&record(), &Failure { trace: &trace, ..failure() });
        let before = headers.clone();

        assert!(shorten(&mut headers, 301) >= 301);

        assert_eq!(headers[..11], before[..11], "all but the stack trace");
        let shortened = text(&headers[11]).1;
        assert!(shortened.len() <= 1000 - 301 && shortened.ends_with("(cut to fit the topic)"), "{shortened}");
        assert!((1..10_000).contains(&shorten(&mut headers, 10_000)), "as far as they go");
        assert_eq!(shorten(&mut headers, 10_000), 0, "a record that is too large by itself stays so");
        assert_eq!(headers[..10], before[..10]);
    }
}
