//! Which source feeds which sink table (rule `one-stream`).
//!
//! A statement is about the keys of one source table. Where two sources, or two topics, write into one sink table, one's
//! statements would remove the other's rows: then statements on that table are void, by name. So each source is noted in
//! the sink before its first write.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use sink_api::{LaneId, Sink, SinkError, SourceName, TableName};

use super::{observer::Observer, patiently};
use crate::decode::{Event, SourceTable};

/// The sources that this lane has noted.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    /// The source of the last change: nearly always that of the next.
    last: Option<Arc<SourceTable>>,
    /// For each sink table, the sources noted.
    noted: HashMap<TableName, Vec<SourceName>>,
    /// Sink tables of changes before the frontier.
    met: HashSet<TableName>,
}

impl Feeds {
    /// Returns the source tables whose rows come to a sink table, by their own names (`schema.table`), each once.
    pub(super) fn sources(&self, table: &TableName) -> Vec<String> {
        let noted = self.noted.get(table).into_iter().flatten();
        let mut sources: Vec<String> = noted.map(|noted| noted.table.clone()).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// Returns a table that changes have come for, other than `table`.
    pub(super) fn other_than(&self, table: &TableName) -> Option<&TableName> {
        self.noted.keys().chain(&self.met).find(|noted| *noted != table)
    }

    /// Takes note of a change before the frontier: of what table it is, and no more.
    pub(super) fn met(&mut self, event: &Event) {
        if let Event::Row(row) = event
            && !self.met.contains(&row.table.name)
        {
            self.met.insert(row.table.name.clone());
        }
    }

    /// Notes the source of an event in the sink, when it is new to the lane.
    ///
    /// # Errors
    /// Those of the sink, but for transient ones.
    pub(super) async fn note<S: Sink>(
        &mut self,
        sink: &S,
        lane: &LaneId,
        event: &Event,
        observer: &mut Observer,
    ) -> Result<(), SinkError> {
        // A statement feeds nothing.
        let Event::Row(row) = event else { return Ok(()) };
        if self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &row.source)) {
            return Ok(());
        }
        self.last = Some(Arc::clone(&row.source));
        let (table, source) = (&row.table.name, row.source.name());
        let noted = self.noted.entry(table.clone()).or_default();
        // Records of one table may say more or less of where they come from.
        if noted.iter().any(|noted| noted.says(&source)) {
            return Ok(());
        }
        let holder = patiently(observer, || sink.claim_table(table, &source, lane)).await?;
        if let Some(holder) = holder {
            tracing::warn!(%lane, %table, %source, holder, "another stream feeds this table as well: statements on it are void");
        }
        noted.push(source);
        Ok(())
    }
}
