//! The contract of a sink.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    Batch, Difference, HeldStatement, Key, KeyList, KeyRange, KeySet, LaneId, LaneState, Offset, ReadId, SinkError,
    SourceName, StatementRow, TableName, TableShape,
};

/// A store that changes and statements of absence are applied to.
pub trait Sink: Clone + Send + Sync + 'static {
    /// The connection of one lane.
    type Lane: SinkLane;

    /// Reads the shape of `table` afresh from the sink's catalog.
    ///
    /// # Errors
    /// `Configuration` when the table is not there or cannot be a sink table, with the reason.
    fn describe(&self, table: &TableName) -> impl Future<Output = Result<Arc<TableShape>, SinkError>> + Send;

    /// Takes a lane over: from here on every earlier owner's unit of work fails as `Fenced`.
    ///
    /// # Errors
    /// `Transient` when the sink is away.
    fn claim(&self, lane: &LaneId) -> impl Future<Output = Result<Claimed<Self::Lane>, SinkError>> + Send;

    /// Notes that a stream feeds `table`: the source's own name of the table, the topic's incarnation and the worker's name
    /// (a worker of another name applies the topic at its own pace). Returns the stream that was noted first when that
    /// cannot be this one ([`SourceName::may_be`]); from then on [`RemovalBudget::streams`] names all of
    /// them. Idempotent; made before the first write to the table. A claim that is taken away while its lane goes on
    /// writing is made again by the lane's next unit of work.
    ///
    /// # Errors
    /// `Transient` when the sink is away.
    fn claim_table(
        &self,
        table: &TableName,
        source: &SourceName,
        lane: &LaneId,
    ) -> impl Future<Output = Result<Option<String>, SinkError>> + Send;

    /// Returns the lane's held statements that no later one settled ([`StatementRow::settles`]), oldest first, at most
    /// `most` of the newest.
    ///
    /// # Errors
    /// `Transient` when the sink is away.
    fn held(&self, lane: &LaneId, most: usize) -> impl Future<Output = Result<Vec<HeldStatement>, SinkError>> + Send;

    /// Brings removed rows back, never over a row that is there; each row at most once.
    ///
    /// # Errors
    /// By class; what was restored before an error stays.
    fn undo(&self, selector: &UndoSelector) -> impl Future<Output = Result<Vec<Undone>, SinkError>> + Send;

    /// Forgets copies, older than `keep`, of rows that lanes of workers called `name` removed. Returns how many there were.
    ///
    /// # Errors
    /// `Transient` when the sink is away.
    fn expire_removed(&self, name: &str, keep: Duration) -> impl Future<Output = Result<u64, SinkError>> + Send;
}

/// Which removals to take back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoSelector {
    /// Those of one read.
    Read(ReadId),
    /// Those from one sink table since an instant (microseconds since 1970-01-01 UTC).
    Table {
        /// The table.
        table: TableName,
        /// The earliest removal to take back.
        since: i64,
    },
}

/// What an undo did to the rows of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// The table.
    pub table: Option<TableName>,
    /// Rows brought back.
    pub restored: u64,
    /// Rows left as they are, since the key holds a row again.
    pub occupied: u64,
    /// Rows that could not be brought back, with the reasons (a constraint, a column that is gone).
    pub failed: Vec<String>,
}

/// A lane that was taken over.
#[derive(Debug)]
pub struct Claimed<L> {
    /// The lane.
    pub lane: L,
    /// What its last owner committed; `None` for a lane that was never committed, or whose state is of another
    /// incarnation of the topic.
    pub state: Option<LaneState>,
    /// The source tables whose changes have come by this topic or an earlier one of its name, by the names under which
    /// they were noted ([`Sink::claim_table`]), each with the sink table that it went to; by workers of any name.
    pub sources: Vec<(SourceName, TableName)>,
    /// The incarnation that the sink knows under this topic's name, when it is another one than the lane's.
    pub other_incarnation: Option<crate::TopicId>,
}

/// The write side of one lane.
pub trait SinkLane: Send + 'static {
    /// A unit of work in progress.
    type Unit<'a>: Unit
    where
        Self: 'a;

    /// Begins a unit of work that replaces `expected` (the state committed last) when it commits.
    ///
    /// # Errors
    /// `Fenced` when the lane was taken over since; `Transient` when the sink is away.
    fn begin(&mut self, expected: Option<&LaneState>)
    -> impl Future<Output = Result<Self::Unit<'_>, SinkError>> + Send;

    /// After an error at commit whose outcome is unknown: returns the state that is committed now.
    ///
    /// # Errors
    /// `Fenced` when the lane was taken over since; `Transient` when the sink is away.
    fn committed(&mut self) -> impl Future<Output = Result<Option<LaneState>, SinkError>> + Send;
}

/// A unit of work: nothing of it is durable before `commit`, all of it after. Dropping it undoes it.
pub trait Unit: Send {
    /// Writes a batch.
    ///
    /// # Errors
    /// By class; after an error the unit is dead.
    fn write(&mut self, batch: &Batch) -> impl Future<Output = Result<Written, SinkError>> + Send;

    /// Removes all rows of `table`.
    ///
    /// # Errors
    /// By class; after an error the unit is dead.
    fn truncate(&mut self, table: &TableShape) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Returns the verdict's name that the lane's incarnation has given on `read_id`, if there is one.
    ///
    /// # Errors
    /// By class; after an error the unit is dead.
    fn verdict(&mut self, read_id: &ReadId) -> impl Future<Output = Result<Option<String>, SinkError>> + Send;

    /// Finds what the sink holds beyond the expected keys of an extent, and which of those it lacks. Sees the
    /// unit's own writes.
    ///
    /// # Errors
    /// By class; `Configuration` when the sink's order of keys is not the encoding's.
    fn difference(&mut self, query: &DifferenceQuery<'_>)
    -> impl Future<Output = Result<Difference, SinkError>> + Send;

    /// Returns what a removal from `table` by a statement of `source` depends on.
    ///
    /// # Errors
    /// By class; after an error the unit is dead.
    fn removal_budget(
        &mut self,
        table: &TableShape,
        source: &SourceName,
    ) -> impl Future<Output = Result<RemovalBudget, SinkError>> + Send;

    /// Keeps copies of the rows of `removal.keys` and removes them. Returns how many there were.
    ///
    /// # Errors
    /// By class; `Data` when the sink keeps some of the rows all the same (a trigger); after an error the unit is dead.
    fn remove(&mut self, removal: &Removal<'_>) -> impl Future<Output = Result<u64, SinkError>> + Send;

    /// Writes down a statement, its verdict and, when it was reported or held, the orphans it would remove.
    ///
    /// # Errors
    /// By class; after an error the unit is dead.
    fn record(
        &mut self,
        statement: &StatementRow,
        orphans: &KeyList,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Makes the unit durable together with the lane's new state.
    ///
    /// # Errors
    /// By class. After a `Transient` error the outcome may be unknown: [`SinkLane::committed`] tells.
    fn commit(self, state: &LaneState) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// What a write did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// Rows inserted or updated.
    pub upserted: u64,
    /// Rows deleted.
    pub deleted: u64,
    /// Keys whose row could not be made, since the sink lacks the old value of an unchanged large column.
    pub missing: Vec<(Arc<TableShape>, Key)>,
}

/// The keys that a statement is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Extent {
    /// All keys of a range.
    Range(KeyRange),
    /// These keys, strictly ascending.
    Keys(KeyList),
}

/// A question about the difference between a statement and the sink.
#[derive(Clone, Debug)]
pub struct DifferenceQuery<'a> {
    /// The sink table.
    pub table: &'a Arc<TableShape>,
    /// The keys in question.
    pub extent: &'a Extent,
    /// The keys that the source holds, all inside the extent.
    pub selected: &'a KeySet,
    /// The keys about which nothing is known, strictly ascending; may reach beyond the extent.
    pub spared: &'a KeyList,
    /// How many orphans to name; all are counted.
    pub name_orphans: usize,
    /// How many missing keys to name; all are counted.
    pub name_missing: usize,
}

/// Keys to remove by a statement.
#[derive(Clone, Debug)]
pub struct Removal<'a> {
    /// The sink table.
    pub table: &'a Arc<TableShape>,
    /// The keys, strictly ascending.
    pub keys: &'a KeyList,
    /// The read that proved them absent.
    pub read_id: &'a ReadId,
    /// The statement's place in the lane's partition.
    pub offset: Offset,
}

/// What the caps of a table need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovalBudget {
    /// Rows of the table that statements removed within the last 24 hours, this unit's included.
    pub removed_last_day: u64,
    /// About how many rows the table has.
    pub rows: u64,
    /// The streams that feed the table, or one that it is a part of or that is a part of it, by name, when any of them
    /// cannot be the statement's own: its source by the lane's topic and by workers of the lane's name ([`Feed::feeds`](crate::Feed::feeds)).
    pub streams: Vec<String>,
    /// Whether the statement's own stream is noted to feed the table: only then do the table's changes pass through the
    /// lane.
    pub fed: bool,
}
