//! What rust-rdkafka does not wrap: topic ids, the outcome of commits, and headers whose names are not UTF-8.
//!
//! The only file with unsafe code. Each block calls librdkafka's C interface with pointers that librdkafka gave out or
//! that live in this function, and copies what comes back before the owner is destroyed.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_void},
    ptr::{self, NonNull},
    time::Duration,
};

use rdkafka::{
    ClientContext, client::Client, error::RDKafkaErrorCode, message::BorrowedMessage,
    topic_partition_list::TopicPartitionList,
};
use rdkafka_sys as sys;
use sink_api::TopicId;

use super::error::TopicPartition;
use crate::record::Header;

/// What the cluster says about a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// Its name.
    pub topic: String,
    /// Its incarnation.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
}

/// An object of librdkafka and the function that frees it.
struct Owned<T> {
    pointer: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    fn new(pointer: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Result<Owned<T>, RDKafkaErrorCode> {
        let pointer = NonNull::new(pointer).ok_or(RDKafkaErrorCode::InvalidArgument)?;
        Ok(Owned { pointer, destroy })
    }

    fn get(&self) -> *mut T {
        self.pointer.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from the constructor that `destroy` belongs to and is freed only here.
        unsafe { (self.destroy)(self.pointer.as_ptr()) }
    }
}

/// Asks the cluster for the ids and partition counts of `topics`; `None` for one that does not exist. Blocks for at
/// most `timeout`.
///
/// # Errors
/// When the cluster does not answer, or may not.
pub(super) fn describe_topics<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    timeout: Duration,
) -> Result<Vec<Option<TopicDescription>>, RDKafkaErrorCode> {
    let names: Vec<CString> =
        topics.iter().map(|name| CString::new(*name)).collect::<Result<_, _>>().map_err(|_| RDKafkaErrorCode::Fail)?;
    let mut pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // Any broker knows; librdkafka's own choice, the controller, may be away while the others answer.
    let metadata = client
        .fetch_metadata(Some(topics[0]), timeout)
        .map_err(|err| err.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail))?;
    let broker = metadata.brokers().first().ok_or(RDKafkaErrorCode::BrokerNotAvailable)?.id();

    // SAFETY: `client` outlives the call, so its handle is valid throughout. `pointers` are NUL-terminated strings that
    // `names` keeps alive; librdkafka copies them. The queue, the options and the event are freed by `Owned`, after
    // everything has been copied out of them; a reply that comes later finds its queue closed, which librdkafka allows.
    unsafe {
        let handle = client.native_ptr();
        let queue = Owned::new(sys::rd_kafka_queue_new(handle), sys::rd_kafka_queue_destroy)?;
        let options = Owned::new(
            sys::rd_kafka_AdminOptions_new(handle, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS),
            sys::rd_kafka_AdminOptions_destroy,
        )?;
        sys::rd_kafka_AdminOptions_set_request_timeout(options.get(), millis, ptr::null_mut(), 0);
        sys::rd_kafka_AdminOptions_set_broker(options.get(), broker, ptr::null_mut(), 0);
        let collection = Owned::new(
            sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len()),
            sys::rd_kafka_TopicCollection_destroy,
        )?;
        sys::rd_kafka_DescribeTopics(handle, collection.get(), options.get(), queue.get());

        let event = sys::rd_kafka_queue_poll(queue.get(), millis);
        let event = Owned::new(event, sys::rd_kafka_event_destroy).map_err(|_| RDKafkaErrorCode::OperationTimedOut)?;
        accept(sys::rd_kafka_event_error(event.get()))?;
        let result = sys::rd_kafka_event_DescribeTopics_result(event.get());
        if result.is_null() {
            return Err(RDKafkaErrorCode::BadMessage);
        }
        let mut count = 0;
        let descriptions = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        (0..count).map(|i| describe(*descriptions.add(i))).collect()
    }
}

/// Copies one description.
///
/// # Safety
/// `description` must be part of an event that is alive.
unsafe fn describe(
    description: *const sys::rd_kafka_TopicDescription_t,
) -> Result<Option<TopicDescription>, RDKafkaErrorCode> {
    // SAFETY: by the contract above; all that is read here belongs to the description.
    unsafe {
        let error = sys::rd_kafka_TopicDescription_error(description);
        if !error.is_null() {
            match RDKafkaErrorCode::from(sys::rd_kafka_error_code(error)) {
                RDKafkaErrorCode::NoError => {}
                RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => return Ok(None),
                code => return Err(code),
            }
        }
        let topic = CStr::from_ptr(sys::rd_kafka_TopicDescription_name(description)).to_string_lossy().into_owned();
        let mut partitions = 0;
        sys::rd_kafka_TopicDescription_partitions(description, &mut partitions);
        let id = sys::rd_kafka_TopicDescription_topic_id(description);
        let high = sys::rd_kafka_Uuid_most_significant_bits(id);
        let low = sys::rd_kafka_Uuid_least_significant_bits(id);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
        Ok(Some(TopicDescription { topic, id: TopicId(bytes), partitions }))
    }
}

fn accept(code: sys::rd_kafka_resp_err_t) -> Result<(), RDKafkaErrorCode> {
    match RDKafkaErrorCode::from(code) {
        RDKafkaErrorCode::NoError => Ok(()),
        code => Err(code),
    }
}

/// Commits whose outcomes can be asked for. rust-rdkafka's own asynchronous commit never says how it ended: it calls
/// back only for a callback that its event interface does not set.
pub(super) struct Commits {
    outcomes: Owned<sys::rd_kafka_queue_t>,
}

// SAFETY: librdkafka's queues may be used from any thread.
unsafe impl Send for Commits {}

/// How a commit ended for one partition.
#[derive(Debug)]
pub(super) struct CommitOutcome {
    pub(super) partition: TopicPartition,
    pub(super) offset: i64,
    pub(super) result: Result<(), RDKafkaErrorCode>,
}

impl Commits {
    pub(super) fn new<C: ClientContext>(client: &Client<C>) -> Result<Commits, RDKafkaErrorCode> {
        // SAFETY: the client is alive. The queue is freed before it, by the thread that owns both.
        let queue = unsafe { sys::rd_kafka_queue_new(client.native_ptr()) };
        Ok(Commits { outcomes: Owned::new(queue, sys::rd_kafka_queue_destroy)? })
    }

    /// Starts a commit.
    pub(super) fn start<C: ClientContext>(
        &self,
        client: &Client<C>,
        offsets: &TopicPartitionList,
    ) -> Result<(), RDKafkaErrorCode> {
        let queue = self.outcomes.get();
        // SAFETY: client and queue are alive; librdkafka copies the list. Without a callback the outcome is an event.
        accept(unsafe { sys::rd_kafka_commit_queue(client.native_ptr(), offsets.ptr(), queue, None, ptr::null_mut()) })
    }

    /// Returns what has ended since.
    pub(super) fn ended(&self) -> Vec<CommitOutcome> {
        let mut outcomes = Vec::new();
        // SAFETY: the queue is alive; each event and the list in it are, until they have been copied.
        unsafe {
            while let Ok(event) =
                Owned::new(sys::rd_kafka_queue_poll(self.outcomes.get(), 0), sys::rd_kafka_event_destroy)
            {
                let overall = accept(sys::rd_kafka_event_error(event.get()));
                let list = sys::rd_kafka_event_topic_partition_list(event.get());
                if list.is_null() {
                    continue;
                }
                let elements = std::slice::from_raw_parts((*list).elems, usize::try_from((*list).cnt).unwrap_or(0));
                outcomes.extend(elements.iter().map(|element| CommitOutcome {
                    partition: TopicPartition::new(&CStr::from_ptr(element.topic).to_string_lossy(), element.partition),
                    offset: element.offset,
                    result: overall.and_then(|()| accept(element.err)),
                }));
            }
        }
        outcomes
    }
}

/// Copies the headers that `wanted` names, in order. Names are made UTF-8; rust-rdkafka's own iterator panics on one
/// that is not.
pub(super) fn headers(message: &BorrowedMessage<'_>, wanted: impl Fn(&str) -> bool) -> Vec<Header> {
    let mut copied = Vec::new();
    let mut list = ptr::null_mut();
    // SAFETY: `message` is alive, and so are its headers, whose names and values are copied before it ends. librdkafka
    // terminates names with NUL, and a value that is not null has `size` bytes.
    unsafe {
        if accept(sys::rd_kafka_message_headers(message.ptr(), &mut list)).is_err() {
            return copied;
        }
        for i in 0.. {
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null::<c_void>(), 0);
            if accept(sys::rd_kafka_header_get_all(list, i, &mut name, &mut value, &mut size)).is_err() {
                return copied;
            }
            let name = CStr::from_ptr(name).to_string_lossy();
            if wanted(&name) {
                let value = (!value.is_null()).then(|| Box::from(std::slice::from_raw_parts(value.cast::<u8>(), size)));
                copied.push((name.into_owned(), value));
            }
        }
    }
    copied
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Instant;

    use rdkafka::{
        ClientConfig,
        consumer::{BaseConsumer, Consumer},
        message::{BorrowedHeaders, Header as RdHeader, OwnedHeaders},
        mocking::MockCluster,
        producer::{BaseProducer, BaseRecord, Producer},
    };

    use super::*;

    #[test]
    fn headers_whose_names_are_not_utf_8_are_read() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 1, 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", cluster.bootstrap_servers()).set("group.id", "g");
        let producer: BaseProducer = config.create().unwrap();
        let headers = OwnedHeaders::new();
        let list = (headers.as_borrowed() as *const BorrowedHeaders).cast_mut().cast::<sys::rd_kafka_headers_t>();
        // SAFETY: `list` is the native list that `headers` owns; name and value are copied.
        let added = unsafe { sys::rd_kafka_header_add(list, c"na\xffme".as_ptr(), 5, c"1".as_ptr().cast(), 1) };
        accept(added).unwrap();
        let headers = headers.insert(RdHeader { key: "null", value: None::<&str> });
        producer.send(BaseRecord::<(), str>::to("t").payload("v").headers(headers)).unwrap();
        producer.flush(Duration::from_secs(10)).unwrap();

        let consumer: BaseConsumer = config.create().unwrap();
        consumer
            .assign(&super::super::context::offset_list([(&super::super::TopicPartition::new("t", 0), 0)]))
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let message =
            std::iter::from_fn(|| (Instant::now() < deadline).then(|| consumer.poll(Duration::from_millis(100))))
                .flatten()
                .find_map(Result::ok)
                .unwrap();

        let expected = [("na\u{fffd}me".to_owned(), Some(b"1".as_slice().into())), ("null".to_owned(), None)];
        assert_eq!(super::headers(&message, |_| true), expected);
    }
}
