//! The watch thread: what has to be asked of the cluster again and again.
//!
//! Which of the wanted topics exist (one that appears is subscribed to), whether a topic that is read is still the same
//! incarnation (librdkafka goes on reading a topic that was made anew, if only it is long enough), and where partitions
//! end, also of those that are not fetched at the moment.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    Registry,
    error::PartitionError,
    health::Pulse,
    lookup::{Lookup, LookupError},
    native::TopicDescription,
    partition::{Command, PartitionState, Reach},
    topics::TopicSelection,
};

/// How old the lag may be, and how long a topic that was made anew may be taken for the old one.
const EVERY: Duration = Duration::from_secs(3);

/// While topics are missing or the cluster is away.
const EVERY_WHEN_WAITING: Duration = Duration::from_secs(1);

pub(super) struct Watch {
    pub(super) topics: TopicSelection,
    pub(super) lookup: Lookup,
    pub(super) reach: Reach,
    pub(super) pulse: Arc<Pulse>,
    pub(super) registry: Registry,
    pub(super) stop: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn run(self) {
        // What is subscribed to only grows: a topic that is deleted is librdkafka's to notice, and may come back.
        let mut subscribed = BTreeSet::new();
        while !self.stop.load(Ordering::SeqCst) {
            let complete = match self.round(&mut subscribed) {
                Ok(complete) => {
                    self.pulse.answered();
                    complete
                }
                Err(err) => {
                    self.lookup.report(&err);
                    false
                }
            };
            thread::park_timeout(if complete { EVERY } else { EVERY_WHEN_WAITING });
        }
    }

    /// Asks everything once. Returns whether all topics exist.
    fn round(&self, subscribed: &mut BTreeSet<String>) -> Result<bool, LookupError> {
        let lanes = self.registry.all();
        let descriptions = self.discover(subscribed, &lanes)?;
        for lane in &lanes {
            let description = descriptions.iter().find(|description| *description.topic == *lane.partition.topic);
            if let (Some(was), Some(now)) = (lane.topic_id.get(), description)
                && *was != now.id
            {
                let err =
                    PartitionError::Recreated { topic: Arc::clone(&lane.partition.topic), was: *was, now: now.id };
                self.reach.tell(Command::Fail(Arc::clone(lane), err));
            }
        }
        for lane in lanes.iter().filter(|lane| lane.position().is_some()) {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            lane.ends_at(self.lookup.bounds(&lane.partition)?.end);
        }
        Ok(self.pulse.state().missing_topics.is_empty() && !subscribed.is_empty())
    }

    /// Subscribes to topics that are new. Returns what is known of those that are read.
    fn discover(
        &self,
        subscribed: &mut BTreeSet<String>,
        lanes: &[Arc<PartitionState>],
    ) -> Result<Vec<TopicDescription>, LookupError> {
        let mut asked: BTreeSet<String> = lanes.iter().map(|lane| lane.partition.topic.to_string()).collect();
        let mut found: BTreeSet<String> = BTreeSet::new();
        match &self.topics {
            TopicSelection::Names(names) => asked.extend(names.iter().cloned()),
            TopicSelection::Pattern(pattern) => {
                found.extend(self.lookup.topics()?.into_iter().filter(|topic| pattern.matches(topic)));
                if found.is_empty() && subscribed.is_empty() {
                    self.pulse.missing(vec![pattern.to_string()]);
                } else {
                    self.pulse.missing(Vec::new());
                }
            }
        }
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        let answers = if asked.is_empty() { Vec::new() } else { self.lookup.describe(&asked)? };
        let descriptions: Vec<TopicDescription> = answers.into_iter().flatten().collect();
        if let TopicSelection::Names(names) = &self.topics {
            found.extend(descriptions.iter().map(|description| description.topic.clone()));
            found.retain(|topic| names.contains(topic));
            self.pulse.missing(names.iter().filter(|name| !found.contains(*name)).cloned().collect());
        }
        let before = subscribed.len();
        subscribed.extend(found);
        if subscribed.len() > before {
            self.reach.tell(Command::Subscribe(subscribed.iter().cloned().collect()));
        }
        Ok(descriptions)
    }
}
