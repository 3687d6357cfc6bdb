//! Kafka behind the lane's ports.

use std::{sync::Arc, time::Duration};

use sink_api::{LaneId, Offset, Partition};

use super::{
    hints,
    ports::{Delivery, Held, NotParked, Outlet, RecordStream, Request, StreamFailure},
};
use crate::{
    dead_letter::{self, Failure},
    decode::{BadRecord, Stage},
    kafka::{
        Assignment, Charge, ClientSettings, FetchError, Outgoing, PartitionError, Producer, Records, SendError,
        TopicPartition, fetch_one, may_be_compacted,
    },
};

/// How long a record to be parked may take to be fetched again, a try.
const FETCH_WITHIN: Duration = Duration::from_secs(30);

/// Between two questions that get no answer.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// By how many bytes a dead letter that is too large is shortened first; each further time by twice as many.
const FIRST_CUT: usize = 64;

/// The partition's records.
pub(super) struct KafkaRecords {
    pub(super) records: Records,
    /// For hints.
    pub(super) lane: LaneId,
}

impl RecordStream for KafkaRecords {
    type Held = Charge;

    async fn next(&mut self) -> Result<Option<Delivery<Charge>>, StreamFailure> {
        match self.records.next_chunk().await {
            Ok(chunk) => Ok(chunk.map(|chunk| Delivery { records: chunk.records, held: chunk.charge })),
            Err(PartitionError::Taken { .. }) => Ok(None),
            Err(error) => Err(StreamFailure { what: error.to_string(), hint: hints::unreadable(&self.lane, &error) }),
        }
    }

    fn caught_up(&self) -> bool {
        self.records.caught_up()
    }

    fn commit(&self, next_offset: Offset) {
        self.records.commit(next_offset);
    }
}

impl Held for Charge {
    fn shrink_to(&mut self, bytes: usize) {
        Charge::shrink_to(self, bytes);
    }

    fn absorb(&mut self, other: Charge) {
        Charge::absorb(self, other);
    }
}

/// Where dead letters and requests go.
#[derive(Clone)]
pub(super) struct KafkaOutlet {
    pub(super) worker: Arc<str>,
    pub(super) group: Arc<str>,
    pub(super) client: Arc<ClientSettings>,
    pub(super) producer: Arc<Producer>,
    pub(super) partition: TopicPartition,
    pub(super) assignment: Arc<Assignment>,
    pub(super) dead_letter_topic: Option<Arc<str>>,
    /// Topic and key of repair requests.
    pub(super) signal: Option<(Arc<str>, Arc<str>)>,
}

impl Outlet for KafkaOutlet {
    async fn partition_count(&self) -> Option<i32> {
        // The only error is that the partition was taken.
        self.assignment.describe().await.ok().map(|topic| topic.partitions)
    }

    async fn may_be_compacted(&self) -> Option<bool> {
        let ask = async {
            loop {
                match may_be_compacted(&self.client, &self.partition.topic).await {
                    Ok(answer) => return answer,
                    Err(error) => {
                        tracing::warn!(topic = %self.partition.topic, error, "kafka does not say the topic's cleanup.policy, trying again");
                        tokio::time::sleep(ASK_AGAIN_AFTER).await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            _ = self.assignment.taken() => None,
            answer = ask => Some(answer),
        }
    }

    fn can_park(&self) -> bool {
        self.dead_letter_topic.is_some()
    }

    /// The record is fetched again, since its headers did not travel with it and it may have been decoded long ago.
    async fn park(&self, offset: Offset, bad: &BadRecord) -> Result<(), NotParked> {
        let Some(topic) = &self.dead_letter_topic else {
            return Err(NotParked::Unanswered("no dead letter topic is set".to_owned()));
        };
        let original = fetch_one(&self.client, &self.group, &self.partition, offset, FETCH_WITHIN).await;
        let original = original.map_err(|error| match error {
            FetchError::Gone { .. } => NotParked::Impossible {
                why: error.to_string(),
                hint: "start the worker again: it goes on with what the log holds, or says what was lost".to_owned(),
            },
            error => NotParked::Unanswered(error.to_string()),
        })?;
        let (class, exception) = java_names(bad.stage);
        let mut headers = dead_letter::headers(
            &original,
            &Failure {
                topic: &self.partition.topic,
                partition: self.partition.partition,
                offset,
                worker: &self.worker,
                stage: bad.stage,
                class,
                exception,
                message: Some(&bad.reason),
                trace: &format!("{exception}: {}", bad.reason),
            },
        );
        let mut excess = FIRST_CUT;
        loop {
            let outgoing = Outgoing {
                topic,
                partition: None,
                key: original.key.as_deref(),
                value: original.value.as_deref(),
                timestamp: original.timestamp,
                headers: &headers,
            };
            match self.producer.send(&outgoing).await {
                Ok(_) => return Ok(()),
                Err(error @ SendError::TooLarge { .. }) => {
                    // Nobody says by how much.
                    if dead_letter::shorten(&mut headers, excess) == 0 {
                        return Err(too_large(topic, &error));
                    }
                    excess *= 2;
                }
                Err(error) => return Err(NotParked::Unanswered(error.to_string())),
            }
        }
    }

    fn can_request(&self) -> bool {
        self.signal.is_some()
    }

    async fn request(&self, request: &Request) -> Result<(), String> {
        let Some((topic, key)) = &self.signal else { return Err("no signal topic is set".to_owned()) };
        let value =
            serde_json::json!({ "id": request.id, "type": request.kind.as_str(), "data": request.data }).to_string();
        let outgoing = Outgoing {
            topic,
            // Debezium reads this partition only.
            partition: Some(Partition(0)),
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            timestamp: None,
            headers: &[],
        };
        self.producer.send(&outgoing).await.map(|_| ()).map_err(|error| error.to_string())
    }
}

fn too_large(topic: &str, error: &SendError) -> NotParked {
    NotParked::Impossible {
        why: error.to_string(),
        hint: format!(
            "raise max.message.bytes of {topic} above that of the record's topic (and message.max.bytes in --kafka, if it \
             is set), or mend the sink so that it takes the record; then start the worker again"
        ),
    }
}

/// Returns the class and the exception that Kafka Connect names at a stage.
fn java_names(stage: Stage) -> (&'static str, &'static str) {
    match stage {
        Stage::KeyConverter | Stage::ValueConverter => {
            ("org.apache.kafka.connect.json.JsonConverter", "org.apache.kafka.connect.errors.DataException")
        }
        Stage::TaskPut => ("org.apache.kafka.connect.sink.SinkTask", "java.sql.SQLException"),
    }
}
