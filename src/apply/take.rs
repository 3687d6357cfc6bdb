//! From records to a unit of work: decode, sequence, gather; the sink is asked for the tables that a record needs.

use std::sync::Arc;

use sink_api::{Offset, Sink, SinkError, StatementKind, TableName, TableShape};

use super::{
    hints,
    isolate::BAD_RECORD_HINT,
    known::Met,
    lane::{Lane, LaneEnd},
    ports::{Outlet, RecordStream},
    writer::outdated,
};
use crate::{
    decode::{BadRecord, Damaged, DecodeError, Event, Stage},
    record::Record,
    stream::{Step, UnitBuilder},
};

impl<S: Sink, R: RecordStream, O: Outlet> Lane<S, R, O> {
    /// Takes records until one ends the lane.
    pub(super) async fn take_all(
        &mut self,
        records: Vec<Record>,
        builder: &mut UnitBuilder,
        steps: &mut Vec<Step>,
        timestamps: &mut Vec<i64>,
    ) -> Result<(), LaneEnd> {
        self.requests.read(records.last().and_then(|record| record.timestamp));
        for record in records {
            builder.record(record.timestamp);
            timestamps.extend(record.timestamp);
            self.take(&record, builder, steps).await?;
        }
        Ok(())
    }

    /// Takes one record: decode, sequence, gather.
    async fn take(&mut self, record: &Record, builder: &mut UnitBuilder, steps: &mut Vec<Step>) -> Result<(), LaneEnd> {
        // Records before the frontier only rebuild what the lane knew; what they ask for was done in an earlier life.
        if let Some(first) = self.gaps.before(record.offset) {
            let Some(lost) = self.gaps.may_be_lost(&self.outlet).await else { return Err(LaneEnd::Stopped) };
            if lost {
                self.sequencer.gap(first, record.offset);
            }
        }
        let rebuilding = record.offset < self.sequencer.state().next_offset;
        let decoded = match self.decode(record).await {
            // The table may have changed since, or be gone. What cannot be read again voids the windows that it stands in.
            Err(LaneEnd::Failed { what, .. }) if rebuilding => {
                tracing::debug!(reason = what, "a record before the frontier cannot be read again");
                Err(BadRecord { stage: Stage::TaskPut, table: None, feed: None, key: None, reason: what })
            }
            decoded => decoded?,
        };
        match decoded {
            Ok(Event::Truncate { table, .. })
                if !rebuilding && let Some(end) = self.refuses_truncate(&table.name, record.offset) =>
            {
                return Err(end);
            }
            Ok(event) => {
                let event = self.scope.admit(record, event);
                if rebuilding {
                    // What an earlier life noted may have been taken back since.
                    self.feeds.met(&event);
                } else if let Err(error) = self.feeds.note(&self.sink, &self.id, &event, &mut self.observer).await {
                    return Err(self.sink_failed(record, error));
                }
                if let Event::Row(row) = &event {
                    self.requests.event(&row.table.name, &row.key, &self.observer);
                }
                self.sequencer.push(record.offset, record.timestamp, event, steps);
            }
            Err(bad) => {
                self.decoder.unread(record, &bad);
                if !rebuilding && !self.outlet.can_park() {
                    // Before it is sequenced: the frontier must not pass it.
                    return Err(self.bad_record(record, &bad));
                }
                self.sequencer.push_bad(record.offset, record.timestamp, &bad, steps);
                if !rebuilding {
                    builder.park(record.offset, bad);
                }
            }
        }
        steps.drain(..).for_each(|step| builder.push(step));
        Ok(())
    }

    /// Returns why a truncate ends the lane, if it does.
    fn refuses_truncate(&self, table: &TableName, offset: Offset) -> Option<LaneEnd> {
        let what = format!("{}: {table} was truncated at the source, at offset {offset}", self.id);
        match self.feeds.other_than(table) {
            _ if !self.settings.apply_truncate => {
                Some(LaneEnd::Failed { what, hint: hints::truncated(&self.id, table, offset.next()) })
            }
            Some(other) => Some(LaneEnd::Failed {
                what: format!("{what}, and the topic has changes of {other} as well"),
                hint: hints::truncated_beside(&self.id, table, offset.next()),
            }),
            None => None,
        }
    }

    /// Decodes a record, looking up the tables that it needs.
    async fn decode(&mut self, record: &Record) -> Result<Result<Event, BadRecord>, LaneEnd> {
        let mut refreshed: Option<TableName> = None;
        loop {
            match self.decoder.decode(record) {
                Ok(event) => match unordered(&event).filter(|table| refreshed.as_ref() != Some(*table)).cloned() {
                    // An index may have been made meanwhile that gives its keys the order.
                    Some(table) => {
                        self.learn_again(&table, record).await?;
                        refreshed = Some(table);
                    }
                    None => return Ok(Ok(event)),
                },
                Err(DecodeError::Bad(bad)) => {
                    // What does not fit may fit the table as it is now.
                    let table = bad.table.as_deref().and_then(|source| self.decoder.sink_of(source)).cloned();
                    match table.filter(|table| refreshed.as_ref() != Some(table)) {
                        Some(table) => {
                            self.learn_again(&table, record).await?;
                            refreshed = Some(table);
                        }
                        None => return Ok(Err(bad)),
                    }
                }
                Err(DecodeError::NeedsTable { table, refused }) => match (self.describe(&table).await, refused) {
                    (Ok(shape), _) => self.meet(shape)?,
                    (Err(error), Some(refused)) => {
                        self.decoder.refused(&table);
                        return Ok(Ok(Event::Damaged(Damaged {
                            reason: format!("{}: {error}", refused.reason),
                            ..*refused
                        })));
                    }
                    (Err(error), None) => return Err(self.sink_failed(record, error)),
                },
                Err(DecodeError::Setup { table: Some(table), .. }) if refreshed.as_ref() != Some(&table) => {
                    self.learn_again(&table, record).await?;
                    refreshed = Some(table);
                }
                Err(DecodeError::Setup { reason, hint, .. }) => {
                    return Err(LaneEnd::Failed {
                        what: format!("{} at offset {}: {reason}", self.id, record.offset),
                        hint,
                    });
                }
            }
        }
    }

    async fn describe(&mut self, table: &TableName) -> Result<Arc<TableShape>, SinkError> {
        super::patiently(&mut self.observer, || self.sink.describe(table)).await
    }

    async fn learn_again(&mut self, table: &TableName, record: &Record) -> Result<(), LaneEnd> {
        let shape = self.describe(table).await.map_err(|error| self.sink_failed(record, error))?;
        self.meet(shape)
    }

    /// Takes the shape of a table, by which records are decoded from now on.
    pub(super) fn meet(&mut self, shape: Arc<TableShape>) -> Result<(), LaneEnd> {
        match self.known.meet(&shape) {
            Met::KeyChanged => {
                return Err(LaneEnd::Outdated(outdated(&shape.name, "its primary key is another one")));
            }
            Met::Taken { unordered: Some(why) } => self.observer.unordered(&shape.name, &why),
            Met::Taken { unordered: None } => {}
        }
        self.decoder.learn(shape);
        Ok(())
    }

    fn sink_failed(&self, record: &Record, error: SinkError) -> LaneEnd {
        LaneEnd::Failed {
            what: format!("{} at offset {}: {error}", self.id, record.offset),
            hint: error.hint.unwrap_or_else(|| "mend the sink, then restart the worker".to_owned()),
        }
    }

    fn bad_record(&self, record: &Record, bad: &BadRecord) -> LaneEnd {
        let table = bad.table.as_ref().map(|table| format!(" for {table}")).unwrap_or_default();
        LaneEnd::Failed {
            what: format!(
                "{}: the record at offset {}{table} cannot be applied: {}",
                self.id, record.offset, bad.reason
            ),
            hint: BAD_RECORD_HINT.to_owned(),
        }
    }
}

/// Returns the table whose key stands against a statement of a range of it, if it does.
fn unordered(event: &Event) -> Option<&TableName> {
    let Event::Part(part) = event else { return None };
    let claim = &part.claim;
    let is_ranged = matches!(claim.kind, StatementKind::Chunk | StatementKind::ChunkInfo);
    (is_ranged && claim.read.table.range_order().is_err()).then_some(&claim.read.table.name)
}
