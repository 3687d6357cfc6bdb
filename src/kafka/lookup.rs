//! Questions to the cluster that do not belong on the poll thread.
//!
//! A client of its own, with the group's name but never a member of it: its calls block for seconds when a broker is
//! away, and the poll thread must not. Each question comes in two forms, blocking for our own thread and async for
//! lanes, which asks again until it is answered or the partition is taken.

use std::{sync::Arc, time::Duration};

use rdkafka::{
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    topic_partition_list::Offset as RdOffset,
};
use sink_api::Offset;
use tokio::task::spawn_blocking;

use super::{
    context::{QuietContext, partition_list},
    error::TopicPartition,
    health::Pulse,
    native::{self, TopicDescription},
    settings::{ClientSettings, SettingsError, refused},
};

/// Longer than any healthy answer takes, short enough that a stop is not held up.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Between two tries.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Where a partition's log starts and ends. The end is that for readers of committed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// The offset of the first record that the log has, or the end when it has none.
    pub start: Offset,
    /// The offset that the next record gets.
    pub end: Offset,
}

/// A question that was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct LookupError {
    what: String,
    why: String,
    /// Whether the cluster itself said no, rather than nothing.
    answered: bool,
}

impl LookupError {
    fn new(what: String, err: &KafkaError) -> LookupError {
        let code = err.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
        LookupError { what, why: code.to_string(), answered: is_answer(code) }
    }

    pub(super) fn missing(topic: &str) -> LookupError {
        LookupError { what: format!("describe {topic}"), why: "the topic does not exist".into(), answered: true }
    }

    fn of_code(what: String, code: RDKafkaErrorCode) -> LookupError {
        LookupError { what, why: code.to_string(), answered: is_answer(code) }
    }
}

/// Whether a broker gave this code, rather than librdkafka in place of an answer.
pub(super) fn is_answer(code: RDKafkaErrorCode) -> bool {
    code as i32 > 0
}

/// A client that looks things up.
#[derive(Clone)]
pub struct Lookup {
    client: Arc<Client>,
    pulse: Arc<Pulse>,
}

struct Client(Option<BaseConsumer<QuietContext>>);

impl Client {
    fn get(&self) -> &BaseConsumer<QuietContext> {
        self.0.as_ref().expect("the client is taken out only when it is dropped")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Closing waits for librdkafka's threads, and the last one to hold a lookup may be an async task.
        let client = self.0.take();
        std::thread::spawn(move || drop(client));
    }
}

impl Lookup {
    pub(super) fn new(settings: &ClientSettings, group: &str, pulse: Arc<Pulse>) -> Result<Lookup, SettingsError> {
        let client = settings.observer(group)?.create_with_context(QuietContext).map_err(|err| refused(&err))?;
        Ok(Lookup { client: Arc::new(Client(Some(client))), pulse })
    }

    /// Makes a client that looks things up for a command. `group` is for the broker's access rules only.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn of(settings: &ClientSettings, group: &str) -> Result<Lookup, SettingsError> {
        Lookup::new(settings, group, Arc::default())
    }

    /// Asks once for a topic's id and partition count.
    ///
    /// # Errors
    /// When there is no answer, or no such topic.
    pub async fn topic(&self, topic: &str) -> Result<TopicDescription, LookupError> {
        let asked = topic.to_owned();
        let answer = self.once(move |lookup| lookup.describe(&[&asked])).await?;
        answer.into_iter().next().flatten().ok_or_else(|| LookupError::missing(topic))
    }

    /// Asks once where a log starts and ends.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn log(&self, partition: &TopicPartition) -> Result<LogBounds, LookupError> {
        let partition = partition.clone();
        self.once(move |lookup| lookup.bounds(&partition)).await
    }

    async fn once<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Lookup) -> Result<T, LookupError> + Send + 'static,
    ) -> Result<T, LookupError> {
        let lookup = self.clone();
        let stopping =
            |_| LookupError { what: "ask Kafka".into(), why: "the program is stopping".into(), answered: false };
        spawn_blocking(move || ask(&lookup)).await.map_err(stopping)?
    }

    /// Asks for ids and partition counts; `None` for topics that do not exist. Blocks.
    pub(super) fn describe(&self, topics: &[&str]) -> Result<Vec<Option<TopicDescription>>, LookupError> {
        let client = self.client.get();
        // Serves the client's log lines, which would pile up otherwise.
        while client.poll(Duration::ZERO).is_some() {}
        native::describe_topics(client.client(), topics, ANSWER_WITHIN)
            .map_err(|code| LookupError::of_code(format!("describe {}", topics.join(",")), code))
    }

    /// Lists all topics. Blocks.
    pub(super) fn topics(&self) -> Result<Vec<String>, LookupError> {
        let metadata = self
            .client
            .get()
            .fetch_metadata(None, ANSWER_WITHIN)
            .map_err(|err| LookupError::new("list topics".into(), &err))?;
        Ok(metadata.topics().iter().map(|topic| topic.name().to_owned()).collect())
    }

    /// Asks where a log starts and ends. Blocks.
    pub(super) fn bounds(&self, partition: &TopicPartition) -> Result<LogBounds, LookupError> {
        let (start, end) = self
            .client
            .get()
            .fetch_watermarks(&partition.topic, partition.partition.0, ANSWER_WITHIN)
            .map_err(|err| LookupError::new(format!("ask for the offsets of {partition}"), &err))?;
        Ok(LogBounds { start: Offset(start), end: Offset(end) })
    }

    /// Asks for the group's committed offset. Blocks.
    pub(super) fn committed(&self, partition: &TopicPartition) -> Result<Option<Offset>, LookupError> {
        let what = || format!("ask for the committed offset of {partition}");
        let list = self
            .client
            .get()
            .committed_offsets(partition_list([partition.clone()]), ANSWER_WITHIN)
            .map_err(|err| LookupError::new(what(), &err))?;
        let elements = list.elements();
        let element = elements.first().expect("the list has the one partition that was put into it");
        element.error().map_err(|err| LookupError::new(what(), &err))?;
        match element.offset() {
            RdOffset::Offset(offset) => Ok(Some(Offset(offset))),
            _ => Ok(None),
        }
    }

    /// Asks until there is an answer. Failures show in the log and in the health.
    pub(super) async fn until_answered<T, F>(&self, ask: F) -> T
    where
        T: Send + 'static,
        F: Fn(&Lookup) -> Result<T, LookupError> + Clone + Send + 'static,
    {
        loop {
            let (lookup, ask) = (self.clone(), ask.clone());
            match spawn_blocking(move || ask(&lookup)).await {
                Ok(Ok(answer)) => {
                    self.pulse.answered();
                    return answer;
                }
                Ok(Err(err)) => self.report(&err),
                // The runtime is shutting down, and this task with it.
                Err(_) => {}
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }

    /// Shows a failed question.
    pub(super) fn report(&self, err: &LookupError) {
        if err.answered {
            self.pulse.failed(&err.to_string());
        } else {
            self.pulse.away(&err.to_string());
        }
    }
}
