//! What a lane needs of the outside, apart from the sink: its records and a way to write to Kafka.

use std::{future::Future, sync::Arc};

use sink_api::{Key, Offset, TableShape};

use crate::{decode::BadRecord, metrics::RequestKind, record::Record};

/// The records of one partition, in order.
pub trait RecordStream: Send + 'static {
    /// The memory of records that were delivered.
    type Held: Held;

    /// Returns the next records, waiting for them; `None` when the partition was taken away. Cancel safe.
    ///
    /// # Errors
    /// When the stream cannot go on: records that were asked for are no longer there.
    fn next(&mut self) -> impl Future<Output = Result<Option<Delivery<Self::Held>>, StreamFailure>> + Send;

    /// Whether every record up to the end seen at the start was returned.
    fn caught_up(&self) -> bool;

    /// Lets Kafka know the frontier. Never waits.
    fn commit(&self, next_offset: Offset);
}

/// Some records of a partition, in order.
#[derive(Debug)]
pub struct Delivery<H> {
    /// The records.
    pub records: Vec<Record>,
    /// Their memory.
    pub held: H,
}

/// Memory that counts against the worker's budget until it is dropped.
pub trait Held: Send + Sized + 'static {
    /// Gives back all but `bytes`.
    fn shrink_to(&mut self, bytes: usize);

    /// Takes over what `other` holds.
    fn absorb(&mut self, other: Self);
}

/// Why a stream ended, in a sentence, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFailure {
    /// What happened.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

/// Writes to Kafka and asks it on behalf of a lane. Each call returns once the broker has answered.
pub trait Outlet: Clone + Send + Sync + 'static {
    /// Asks for the topic's partition count as it is now, until there is an answer; `None` when the partition was taken
    /// away before.
    fn partition_count(&self) -> impl Future<Output = Option<i32>> + Send;

    /// Whether records may be missing from the middle of the topic's log (compaction), as far as is known now, until
    /// there is an answer; `None` when the partition was taken away before.
    fn may_be_compacted(&self) -> impl Future<Output = Option<bool>> + Send;

    /// Whether bad records can be parked.
    fn can_park(&self) -> bool;

    /// Parks the record at `offset` in the dead letter queue.
    fn park(&self, offset: Offset, bad: &BadRecord) -> impl Future<Output = Result<(), NotParked>> + Send;

    /// Whether repair requests can be sent.
    fn can_request(&self) -> bool;

    /// Sends a repair request: its id, type and data.
    fn request(&self, request: &Request) -> impl Future<Output = Result<(), String>> + Send;
}

/// Why a record was not parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotParked {
    /// Kafka did not answer: it is tried again.
    Unanswered(String),
    /// It never can be.
    Impossible {
        /// Why.
        why: String,
        /// What to do about it.
        hint: String,
    },
}

/// A repair request in Debezium's signal format.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Unique for ever.
    pub id: String,
    /// The signal's type.
    pub kind: RequestKind,
    /// The signal's `data`, always an object.
    pub data: serde_json::Value,
    /// How many keys it asks for.
    pub keys: usize,
}

/// Keys that the sink lacks, of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct MissingKeys {
    /// The sink table.
    pub table: Arc<TableShape>,
    /// The source's name of the table, when it is known here.
    pub source_table: Option<String>,
    /// Where in the stream the sink lacked them: that of the statement that found them.
    pub at: Offset,
    /// The keys, as many as were named.
    pub keys: Vec<Key>,
    /// How many there are in all.
    pub count: u64,
}
