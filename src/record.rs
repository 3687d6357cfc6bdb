//! A Kafka record as the lanes take it.

use sink_api::Offset;

/// One record of a partition, with the headers that decoding looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number in the partition.
    pub offset: Offset,
    /// Milliseconds since 1970-01-01 UTC; `None` when the broker has none.
    pub timestamp: Option<i64>,
    /// The key's bytes.
    pub key: Option<Box<[u8]>>,
    /// The value's bytes; `None` is a tombstone.
    pub value: Option<Box<[u8]>>,
    /// The headers that [`is_wanted_header`] names, in order.
    pub headers: Vec<(String, Option<Box<[u8]>>)>,
}

/// A header: its name, and its value, which may be null.
pub type Header = (String, Option<Box<[u8]>>);

/// A record as it lies in Kafka, with all its headers: what goes to the dead letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// Its number in the partition.
    pub offset: Offset,
    /// Milliseconds since 1970-01-01 UTC; `None` when the broker has none.
    pub timestamp: Option<i64>,
    /// The key's bytes.
    pub key: Option<Box<[u8]>>,
    /// The value's bytes.
    pub value: Option<Box<[u8]>>,
    /// All headers, in order.
    pub headers: Vec<Header>,
}

/// The header in which Debezium names the connector, by its logical name.
pub const CONNECTOR_HEADER: &str = "__debezium.context.connectorLogicalName";

/// Whether decoding looks at a header: the others are not carried to the lanes.
pub fn is_wanted_header(name: &str) -> bool {
    // Of Debezium's context headers, which stand on every record, only the connector's name says something.
    if name.starts_with("__debezium.context.") {
        return name == CONNECTOR_HEADER;
    }
    name.starts_with("__") || is_statement_header(name) || name.starts_with("sink-repair.")
}

/// Whether only absence events and chunk info records have a header of this name.
pub fn is_statement_header(name: &str) -> bool {
    name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("dblog."))
}

impl Record {
    /// Returns the value of the last header called `name`, when it has one.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().rev().find(|(header, _)| header == name).and_then(|(_, value)| value.as_deref())
    }

    /// Returns about how much memory the record holds, in bytes.
    pub fn bytes(&self) -> usize {
        let field = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        size_of::<Record>()
            + field(&self.key)
            + field(&self.value)
            + self.headers.iter().map(|(name, value)| name.len() + field(value) + 48).sum::<usize>()
    }
}
