//! One record, whole, by its offset: what the dead letter queue needs of a record that the lane has only in part.

use std::time::{Duration, Instant};

use rdkafka::{
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    message::Message,
};
use sink_api::Offset;

use super::{
    context::{QuietContext, offset_list},
    error::TopicPartition,
    lookup::is_answer,
    native,
    settings::{ClientSettings, SettingsError, refused},
};
use crate::record::RawRecord;

/// Why a record could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The log does not have it any more (compaction, retention).
    #[error("{partition}: record {offset} is not in the log any more")]
    Gone {
        /// Where.
        partition: TopicPartition,
        /// Which.
        offset: Offset,
    },
    /// It did not come in time; asking again may help.
    #[error("{partition}: fetch record {offset}: {why}")]
    Unanswered {
        /// Where.
        partition: TopicPartition,
        /// Which.
        offset: Offset,
        /// The last that was heard.
        why: String,
    },
    /// No client could be made.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// Fetches the record at `offset` with all its headers, within `limit`. `group` is for the broker's access rules only.
///
/// # Errors
/// `Gone` when the log has later records but not this one, `Unanswered` when nothing comes in time.
pub async fn fetch_one(
    settings: &ClientSettings,
    group: &str,
    partition: &TopicPartition,
    offset: Offset,
    limit: Duration,
) -> Result<RawRecord, FetchError> {
    let config = settings.observer(group)?;
    let client: BaseConsumer<QuietContext> = config.create_with_context(QuietContext).map_err(|err| refused(&err))?;
    let task = (partition.clone(), offset);
    let fetched = tokio::task::spawn_blocking(move || fetch(&client, &task.0, task.1, Instant::now() + limit)).await;
    fetched.unwrap_or_else(|_| {
        Err(FetchError::Unanswered { partition: partition.clone(), offset, why: "the program is stopping".into() })
    })
}

fn fetch(
    client: &BaseConsumer<QuietContext>,
    partition: &TopicPartition,
    offset: Offset,
    deadline: Instant,
) -> Result<RawRecord, FetchError> {
    let unanswered = |why: String| FetchError::Unanswered { partition: partition.clone(), offset, why };
    let gone = || FetchError::Gone { partition: partition.clone(), offset };
    client.assign(&offset_list([(partition, offset.0)])).map_err(|err| unanswered(err.to_string()))?;
    let mut why = "no answer in time".to_owned();
    while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        match client.poll(left.min(Duration::from_millis(200))) {
            None => {}
            Some(Ok(message)) if message.offset() == offset.0 => {
                return Ok(RawRecord {
                    offset,
                    timestamp: message.timestamp().to_millis(),
                    key: message.key().map(Box::from),
                    value: message.payload().map(Box::from),
                    headers: native::headers(&message, |_| true),
                });
            }
            // The first one that comes is the first that is left.
            Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => return Err(gone()),
            Some(Err(err)) => match err.rdkafka_error_code() {
                Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => return Err(gone()),
                Some(code) if is_answer(code) => why = code.to_string(),
                _ => why = err.to_string(),
            },
        }
    }
    Err(unanswered(why))
}
