//! What librdkafka calls back, kept for the poll thread to act on after the poll.
//!
//! Callbacks run inside `poll`, on the poll thread. They only note what happened: the thread then acts in one place, in
//! the order in which it happened. The exception is the consumer's drop, which polls by itself: there a revocation is
//! answered on the spot.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
    topic_partition_list::{Offset as RdOffset, TopicPartitionList},
    types::RDKafkaRespErr,
};
use tracing::{debug, info, warn};

use super::error::TopicPartition;

/// A change of the group that the thread has to answer.
#[derive(Debug)]
pub(super) enum Rebalance {
    /// These partitions are ours now.
    Assign(Vec<TopicPartition>),
    /// These are to be given up; when `lost` they already belong to someone else.
    Revoke { partitions: Vec<TopicPartition>, lost: bool },
}

/// What happened since the thread looked last.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) rebalances: VecDeque<Rebalance>,
    pub(super) errors: Vec<(RDKafkaErrorCode, String)>,
    /// Topics that have another id than before.
    pub(super) made_anew: Vec<String>,
}

/// The context of the group's consumer.
#[derive(Default)]
pub(super) struct GroupContext {
    inbox: Mutex<Inbox>,
    /// Callbacks served, so that the thread can tell an empty queue from a served event.
    served: AtomicU64,
    closing: AtomicBool,
    /// What librdkafka has assigned, for the revocation at the end.
    assigned: Mutex<BTreeSet<TopicPartition>>,
}

impl GroupContext {
    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    pub(super) fn assigned(&self) -> MutexGuard<'_, BTreeSet<TopicPartition>> {
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on revocations are answered inside the callback.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    fn note(&self) -> MutexGuard<'_, Inbox> {
        self.served.fetch_add(1, Ordering::Relaxed);
        self.inbox()
    }
}

impl ClientContext for GroupContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let mut inbox = self.note();
        inbox.made_anew.extend(made_anew(message).map(str::to_owned));
        drop(inbox);
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail) {
            // No error: it is told in the partition's queue.
            RDKafkaErrorCode::PartitionEOF => {}
            code => self.note().errors.push((code, reason.to_owned())),
        }
    }
}

impl ConsumerContext for GroupContext {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, code: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let partitions = names(list);
        if self.closing.load(Ordering::SeqCst) {
            let assigned = std::mem::take(&mut *self.assigned());
            let ours = partition_list(partitions.into_iter().filter(|partition| assigned.contains(partition)));
            if let Err(err) = consumer.incremental_unassign(&ours) {
                debug!(error = %err, "give up partitions while closing");
            }
            return;
        }
        self.note().rebalances.push_back(match code {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Rebalance::Assign(partitions),
            _ => Rebalance::Revoke { partitions, lost: consumer.assignment_lost() },
        });
    }
}

/// The context of clients whose failures come back from their calls: their log is for debugging.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QuietContext;

impl ClientContext for QuietContext {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        debug!(target: "librdkafka", facility, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        debug!(target: "librdkafka", %error, "{reason}");
    }
}

impl ConsumerContext for QuietContext {}

/// The topic that a line of librdkafka's metadata log says to have changed its id. It is the only place where librdkafka
/// tells: by itself it goes on reading the new topic at the old offset (`rd_kafka_topic_metadata_update`).
fn made_anew(line: &str) -> Option<&str> {
    let (_, line) = line.split_once(": Topic ")?;
    let (topic, ids) = line.split_once(" changed id from ")?;
    // The first time that librdkafka hears of a topic.
    (!ids.starts_with(NO_ID)).then_some(topic)
}

/// A topic id of 16 zero bytes, in librdkafka's base64.
const NO_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// Passes a line of librdkafka on.
fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        // Not our ERROR: librdkafka goes on trying, and says this of every refused connection.
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning => warn!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Notice => info!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => debug!(target: "librdkafka", facility, "{message}"),
    }
}

/// Returns the partitions of a list, in its order.
fn names(list: &TopicPartitionList) -> Vec<TopicPartition> {
    let mut topics: Vec<Arc<str>> = Vec::new();
    let mut name = |topic: &str| match topics.iter().find(|known| &***known == topic) {
        Some(known) => Arc::clone(known),
        None => {
            topics.push(topic.into());
            topics[topics.len() - 1].clone()
        }
    };
    list.elements()
        .into_iter()
        .map(|element| TopicPartition {
            topic: name(element.topic()),
            partition: sink_api::Partition(element.partition()),
        })
        .collect()
}

/// Makes a list without offsets.
pub(super) fn partition_list(partitions: impl IntoIterator<Item = TopicPartition>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition(&partition.topic, partition.partition.0);
    }
    list
}

/// Makes a list with offsets.
pub(super) fn offset_list<'a>(offsets: impl IntoIterator<Item = (&'a TopicPartition, i64)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets {
        list.add_partition_offset(&partition.topic, partition.partition.0, RdOffset::Offset(offset))
            .expect("an offset that came from Kafka or from a frontier is one that librdkafka takes");
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_whose_id_changed_is_told_from_one_that_is_new() {
        let line = |from: &str| format!("[thrd:main]: Topic a.b changed id from {from} to yGdxfCRqQMGWmYxsYCWHQw");

        assert_eq!(made_anew(&line("4zWVyTlmQJ2GkrbWVSQjtg")), Some("a.b"));
        assert_eq!(made_anew(&line(NO_ID)), None);
        assert_eq!(made_anew("[thrd:main]: Topic a.b partition 0 Leader 1 Epoch 0"), None);
    }
}
