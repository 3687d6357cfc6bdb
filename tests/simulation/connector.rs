//! A connector that delivers at least once: it publishes the log, and sometimes a stretch of it again, a single record
//! late, or a marker not at all.

use std::collections::HashSet;

use super::{
    reads::Read,
    source::{Entry, Pos, Source, What},
};

/// What the connector does next.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Publishes this many entries of the log.
    Forward(u8),
    /// Restarts from this many entries before.
    Back(u8),
    /// Publishes the record that lies this far back in the topic once more.
    Again(u8),
    /// Skips the next entry if it is a marker.
    LoseMarker,
    /// The next row record cannot be decoded; `true`: its key can.
    Spoil(bool),
    /// Publishes the last record once more with other content, if it is a part and not the last one.
    Twist,
}

/// How a record of the topic is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Plain,
    /// The tombstone that follows a delete.
    Tombstone,
    /// A record whose value cannot be decoded.
    BadValue,
    /// A record whose key cannot be decoded.
    BadKey,
    /// A part that says something else than the source did.
    Twisted,
}

/// One record of the topic; its offset is its index.
#[derive(Clone, Debug)]
pub struct Record {
    pub pos: Pos,
    pub entry: Entry,
    pub shape: Shape,
    pub timestamp: i64,
}

/// The farthest back that a single late duplicate comes from.
pub const LATEST_DUPLICATE: usize = 20;

/// Publishes the log: faults as `steps` say up to `calm`, then everything that is left.
pub fn publish(source: &Source, reads: &[Read], steps: &[Step], calm: Pos) -> Vec<Record> {
    let mut topic = Topic { records: Vec::new(), next: 0, spoil: None, lost: HashSet::new() };
    for step in steps {
        match *step {
            Step::Forward(count) => {
                for _ in 0..count {
                    if topic.next < calm {
                        topic.publish_next(source);
                    }
                }
            }
            Step::Back(count) => topic.next = topic.next.saturating_sub(usize::from(count)),
            Step::Again(back) => topic.again(usize::from(back) % LATEST_DUPLICATE),
            Step::LoseMarker => {
                if topic.next < calm && source.log[topic.next].what.is_marker() {
                    topic.lose(source, reads);
                }
            }
            Step::Spoil(with_key) => topic.spoil = Some(if with_key { Shape::BadValue } else { Shape::BadKey }),
            Step::Twist => topic.twist(),
        }
    }
    topic.spoil = None;
    while topic.next < source.log.len() {
        topic.publish_next(source);
    }
    topic.records
}

struct Topic {
    records: Vec<Record>,
    next: Pos,
    spoil: Option<Shape>,
    /// Entries that are never published.
    lost: HashSet<Pos>,
}

impl Topic {
    /// Skips a marker. A statement that does not say what its read saw stays lost: nothing could tell it from a new one
    /// if it came later.
    fn lose(&mut self, source: &Source, reads: &[Read]) {
        if let What::Part { read, .. } = source.log[self.next].what
            && !reads[read].plan.form.has_snapshot()
        {
            self.lost.insert(self.next);
        }
        self.next += 1;
    }

    fn publish_next(&mut self, source: &Source) {
        let (pos, entry) = (self.next, &source.log[self.next]);
        self.next += 1;
        if self.lost.contains(&pos) {
            return;
        }
        let shape = match entry.what.row() {
            Some(_) => self.spoil.take().unwrap_or(Shape::Plain),
            None => Shape::Plain,
        };
        self.push(pos, entry, shape);
        if shape == Shape::Plain && matches!(entry.what, What::Delete { .. }) {
            self.push(pos, entry, Shape::Tombstone);
        }
    }

    fn again(&mut self, back: usize) {
        if let Some(index) = self.records.len().checked_sub(back + 1) {
            let Record { pos, entry, shape, .. } = self.records[index].clone();
            self.push(pos, &entry, shape);
        }
    }

    fn twist(&mut self) {
        let Some(Record { pos, entry, shape: Shape::Plain, .. }) = self.records.last().cloned() else { return };
        if matches!(entry.what, What::Part { part, parts, .. } if part < parts) {
            self.push(pos, &entry, Shape::Twisted);
        }
    }

    fn push(&mut self, pos: Pos, entry: &Entry, shape: Shape) {
        let timestamp = self.records.len() as i64;
        self.records.push(Record { pos, entry: entry.clone(), shape, timestamp });
    }
}
