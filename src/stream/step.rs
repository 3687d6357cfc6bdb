//! What is to be done, in stream order.

use std::sync::Arc;

use sink_api::{Extent, Offset, ReadId, RowChange, Rule, StatementKind, StatementRow, TableName, TableShape, Verdict};

use super::{close::Refusal, window::Window};
use crate::{
    decode::{Claim, Damaged},
    statement::{Statement, extent_text},
};

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Apply a change.
    Row(RowChange),
    /// Remove all rows of a table.
    Truncate(Arc<TableShape>),
    /// A barrier: evaluate a statement, unless the sink has a verdict on its read.
    Statement(Box<Statement>),
    /// Write down a statement that proves nothing, unless the sink has a verdict on its read.
    Refusal(Box<StatementRow>),
}

impl Step {
    /// Returns what is left to do of a step that stands before the frontier.
    pub(super) fn before_the_frontier(self) -> Option<Step> {
        match self {
            Step::Row(_) | Step::Truncate(_) => None,
            Step::Refusal(row) => Some(Step::Refusal(row)),
            Step::Statement(statement) => {
                let reason = "it stands before the place where this lane began to apply".to_owned();
                Some(Step::refused(&statement, Refusal { rule: Rule::Window, reason, again: true }))
            }
        }
    }

    /// Refuses a statement that was complete.
    pub(super) fn refused(statement: &Statement, refused: Refusal) -> Step {
        Step::Refusal(Box::new(refused_row(statement, refused)))
    }

    pub(super) fn damaged(read_id: ReadId, offset: Offset, damaged: Damaged) -> Step {
        let Damaged { kind, source_table, rule, reason, .. } = damaged;
        let refused = Refusal { rule, reason, again: false };
        let row = row(read_id, kind, None, source_table.unwrap_or_default(), String::new(), offset, refused);
        Step::Refusal(Box::new(row))
    }
}

/// Refuses a statement.
pub(super) fn refusal(read_id: ReadId, claim: &Claim, extent: &Extent, offset: Offset, refused: Refusal) -> Step {
    let table = claim.read.table.name.clone();
    let row =
        row(read_id, claim.kind, Some(table), claim.read.source.table.clone(), extent_text(extent), offset, refused);
    Step::Refusal(Box::new(row))
}

/// Returns what is written down of a statement that was complete and is refused.
pub(super) fn refused_row(statement: &Statement, refused: Refusal) -> StatementRow {
    row(
        statement.read_id.clone(),
        statement.kind,
        Some(statement.table.name.clone()),
        statement.source.table.clone(),
        statement.extent_text(),
        statement.offset,
        refused,
    )
}

/// Refuses a read whose window ended without a statement.
pub(super) fn window_refusal(window: Window, offset: Offset, reason: String) -> Step {
    let read = window.read;
    let refused = match window.void {
        Some(void) => Refusal { rule: void.rule, reason: void.reason, again: true },
        None => Refusal { rule: Rule::Window, reason, again: true },
    };
    let table = read.table.name.clone();
    let row = row(read.read_id, StatementKind::Chunk, Some(table), read.source.table, String::new(), offset, refused);
    Step::Refusal(Box::new(row))
}

fn row(
    read_id: ReadId,
    kind: StatementKind,
    table: Option<TableName>,
    source_table: String,
    extent: String,
    offset: Offset,
    Refusal { rule, reason, again }: Refusal,
) -> StatementRow {
    StatementRow {
        read_id,
        kind,
        table,
        source_table,
        extent,
        offset,
        verdict: Verdict::Refused { rule, reason, again },
        orphans: 0,
        removed: 0,
        missing: 0,
        spared: 0,
        confirmed: None,
        in_range: 0,
    }
}
