//! What becomes of a record or a statement that the sink refuses: it is found, and parked or held; what stands around it
//! goes on.

use std::sync::Arc;

use sink_api::{Difference, ErrorClass, Offset, Rule, Sink, SinkError, Verdict};

use super::{
    barrier,
    ports::{NotParked, Outlet},
    writer::{Stop, Writer, failed, timed_out},
};
use crate::{
    decode::{BadRecord, Stage},
    retry::Backoff,
    statement::{NOT_IN_TIME, REFUSED_BY_SINK},
    status::Awaited,
    stream::{Unit, Work},
};

/// What an operator can do about a record that cannot be applied.
pub const BAD_RECORD_HINT: &str =
    "mend the sink or the record's source, or set --dead-letter-topic to park such records and go on";

impl<S: Sink, O: Outlet> Writer<S, O> {
    /// Finds the one record of a unit that the sink refuses, by halves. What goes before it is committed.
    pub(super) async fn isolate(&mut self, unit: &Unit, error: &SinkError) -> Result<(), Stop> {
        let (mut first, mut second) = match unit.halves(&self.base) {
            Ok(halves) => halves,
            Err(work) => return self.refused(unit, work, error).await,
        };
        Box::pin(self.persist(&mut first)).await?;
        Box::pin(self.persist(&mut second)).await
    }

    /// Deals with a unit of one piece of work that the sink refuses.
    async fn refused(&mut self, unit: &Unit, work: Option<&Work>, error: &SinkError) -> Result<(), Stop> {
        let mut rest = Unit { work: Vec::new(), ..unit.clone() };
        match work {
            Some(Work::Rows(rows)) if let [change] = rows.as_slice() => {
                let bad = BadRecord {
                    stage: Stage::TaskPut,
                    table: Some(change.table.name.to_string()),
                    feed: None,
                    key: Some((Arc::clone(&change.table), change.key.clone())),
                    reason: error.to_string(),
                };
                if !self.outlet.can_park() {
                    return Err(Stop::Failed {
                        what: format!(
                            "the sink refuses the record at offset {} for {}: {error}",
                            change.offset, change.table.name
                        ),
                        hint: error.hint.clone().unwrap_or_else(|| BAD_RECORD_HINT.to_owned()),
                    });
                }
                self.park(change.offset, bad).await?;
            }
            Some(Work::Statement(statement)) => {
                // In doubt the rows stay: the sink's own rules stand against the removal.
                let what = if timed_out(error) { NOT_IN_TIME } else { REFUSED_BY_SINK };
                let reason = format!("{what}: {error}");
                let verdict = Verdict::Held { rule: Rule::Cascade, reason };
                let row = barrier::row(statement, &Difference::default(), verdict, 0);
                rest.work.push(Work::Refusal(Box::new(row)));
            }
            _ => return Err(failed(error, unit)),
        }
        match self.commit(&mut rest).await? {
            Ok(()) => Ok(()),
            Err(error) if error.class == ErrorClass::Fenced => Err(Stop::Fenced(error.to_string())),
            Err(error) => Err(failed(&error, unit)),
        }
    }

    pub(super) async fn park(&mut self, offset: Offset, bad: BadRecord) -> Result<(), Stop> {
        let mut backoff = Backoff::default();
        let mut attempts = 0;
        while let Err(error) = self.outlet.park(offset, &bad).await {
            let error = match error {
                NotParked::Unanswered(error) => error,
                NotParked::Impossible { why, hint } => {
                    let table = bad.table.as_deref().map(|table| format!(" for {table}")).unwrap_or_default();
                    return Err(Stop::Failed {
                        what: format!(
                            "the record at offset {offset}{table} can neither be applied nor parked: {}; {why}",
                            bad.reason
                        ),
                        hint,
                    });
                }
            };
            attempts += 1;
            let error = SinkError::new(ErrorClass::Transient, format!("park the record at offset {offset}: {error}"));
            self.wait(Awaited::Kafka, &error, attempts, &mut backoff).await;
        }
        self.waits.send_if_modified(|wait| wait.take().is_some());
        self.done.parked.push((offset, bad));
        Ok(())
    }
}
